"""The data behind a schedule: the blocks that every message carries, and an executor that moves them.

The vector of an all-reduce, reduce-scatter or all-gather is cut into n blocks, numbered 0 … n-1; member
i ends a reduce-scatter with block i and starts an all-gather with it. In an all-to-all, block
``origin * n + destination`` starts at `origin` and ends at `destination`.

The schedule fixes messages, sizes and order; this module gives each message the blocks that make
the collective right. Three choices deserve a word:

* ring all-to-all has n(n-1)/2 steps of one block each: blocks of distance 1 take one hop, then those of
  distance 2 take two hops, and so on, which fills every step;
* the second half of a direct all-reduce is gated by the *count* n-1 of received messages. That is
  sound: a receive of the second half is itself posted behind the gate, so the first n-1 are the reduction;
* a double binary tree moves the whole vector as an all-reduce, whatever the operation. That
  is more than a reduce-scatter needs. For all-gather and all-to-all its D bytes cannot hold what the
  result needs, so no right data flow exists: `payloads` then describes the all-reduce that it does.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from armillary.base.errors import InputError
from armillary.engine.astra_sim.collective.schedule import Schedule

V = TypeVar("V")


@dataclass(frozen=True)
class Payload:
    """What one message carries.

    With `reduce` the receiver adds the blocks to its own; without, it did not have them. With `keep`
    the sender keeps its copy; without, it has passed them on.
    """

    blocks: tuple[int, ...]
    reduce: bool
    keep: bool


def operation_done(schedule: Schedule) -> str:
    """Return the operation that the messages of `schedule` carry out (a double tree always all-reduces)."""
    return "all-reduce" if schedule.algorithm == "doubleBinaryTree" else schedule.operation


def start_blocks(schedule: Schedule, member: int) -> tuple[int, ...]:
    """Return the blocks that `member` holds at the start."""
    n, operation = schedule.n, operation_done(schedule)
    if operation == "all-gather":
        return (member,)
    first = member * n if operation == "all-to-all" else 0
    return tuple(range(first, first + n))


def payloads(schedule: Schedule, member: int) -> list[Payload]:
    """Return what each send of `member` carries, in the order of its sends.

    Raises:
        InputError: the messages of this schedule cannot bring every block to every member.
    """
    if schedule.relative == "pair" and schedule.n & (schedule.n - 1):
        raise InputError(
            f"{schedule.algorithm} {schedule.operation} over {schedule.n} members can be timed, but its messages "
            "do not bring every block everywhere; expected a power of two"
        )
    n, operation = schedule.n, operation_done(schedule)
    if schedule.algorithm == "doubleBinaryTree":
        return _tree(schedule, member)
    if operation == "all-to-all":
        routes = _ring_all_to_all(n) if schedule.algorithm == "ring" else [(0, d) for d in range(1, n)]
        # A bare block number per step: origin is `hop` members behind, destination `distance - hop` ahead.
        sign = -1 if schedule.reverse else 1
        return [
            Payload(((member - sign * hop) % n * n + (member + sign * (distance - hop)) % n,), False, False)
            for hop, distance in routes
        ]
    parts = {"ring": _ring, "direct": _direct, "halvingDoubling": _halving_doubling}
    scatter, gather = parts[schedule.algorithm](schedule, member)
    reducing = [Payload(blocks, True, False) for blocks in scatter]
    gathering = [Payload(blocks, False, True) for blocks in gather]
    return {"reduce-scatter": reducing, "all-gather": gathering}.get(operation, reducing + gathering)


Blocks = tuple[int, ...]
Halves = tuple[list[Blocks], list[Blocks]]


def _ring(schedule: Schedule, member: int) -> Halves:
    # Entry k is the block k members behind; the reduce-scatter ends by receiving the own block, the
    # all-gather starts by sending it.
    n, sign = schedule.n, -1 if schedule.reverse else 1
    around: list[Blocks] = [((member - sign * k) % n,) for k in range(n)]
    return around[1:], around[:-1]


def _direct(schedule: Schedule, member: int) -> Halves:
    n, sign = schedule.n, -1 if schedule.reverse else 1
    return [((member + sign * k) % n,) for k in range(1, n)], [(member,)] * (n - 1)


def _halving_doubling(schedule: Schedule, member: int) -> Halves:
    """Halve: pass on what the partner's side of bit k needs. Double: send all that is complete."""
    n = schedule.n
    offsets = [1 << k for k in range(n.bit_length() - 1)]
    # The partner at `offset` needs the blocks whose lowest bits agree with its own, not with ours.
    scatter = [tuple(b for b in range(n) if (b ^ member) % (2 * offset) == offset) for offset in offsets]
    gather = [tuple(b for b in range(n) if (b ^ member) % (2 * offset) == 0) for offset in reversed(offsets)]
    return scatter, gather


def _ring_all_to_all(n: int) -> list[tuple[int, int]]:
    """Return (hops behind it, distance in all) of the block sent at each step."""
    return [(hop, distance) for distance in range(1, n) for hop in range(distance)]


def _tree(schedule: Schedule, member: int) -> list[Payload]:
    """Pass the sum of the subtree up, the whole sum down. Only the root sends no message up."""
    everything = tuple(range(schedule.n))
    sends = len(schedule.role(member).send_peer)
    # Only the root has one child and no parent: it begins with no chunk step and sends one message.
    is_root = schedule.role(member).initial == 0 and sends == 1
    up = [] if is_root else [Payload(everything, reduce=True, keep=False)]
    return up + [Payload(everything, reduce=False, keep=True)] * (sends - len(up))


@dataclass(frozen=True)
class Message:
    """A message that was sent or received in a round of `Execution.round`."""

    source: int
    target: int
    payload: Payload


class Execution(Generic[V]):
    """Moves values along a schedule, message by message, by the rules of the chunk step pipeline.

    Nothing in it knows time: any order of deliveries and chunk step completions is allowed that keeps
    the messages of one pair of members in order. `held[i]` maps the blocks of member i to values.

    Raises:
        KeyError: a member should send or add to a block that it does not hold.
        ValueError: a member receives a block that it already has.
    """

    def __init__(self, schedule: Schedule, start: Callable[[int, int], V], add: Callable[[V, V], V]) -> None:
        """Start with ``start(member, block)`` in every block a member holds; `add` reduces two values."""
        n = schedule.n
        self.schedule = schedule
        self.held: list[dict[int, V]] = [
            {block: start(member, block) for block in start_blocks(schedule, member)} for member in range(n)
        ]
        self._add = add
        self._payloads = [payloads(schedule, member) for member in range(n)]
        self._done, self._received, self._next = [0] * n, [0] * n, [[0, 0] for _ in range(n)]
        self._flying: defaultdict[tuple[int, int], deque[tuple[Payload, dict[int, V]]]] = defaultdict(deque)
        self._posted: Counter[tuple[int, int]] = Counter()
        self._matched: Counter[tuple[int, int]] = Counter()
        self.deliverable: list[tuple[int, int]] = []
        self.chunk_steps: list[int] = []
        self.sent: list[Message] = []
        for member in range(n):
            self.chunk_steps += [member] * schedule.role(member).initial
            self._post(member)

    @property
    def finished(self) -> bool:
        """Whether every member has completed all its chunk steps and no message is left over."""
        roles = [self.schedule.role(member) for member in range(self.schedule.n)]
        return not any(self._flying.values()) and self._done == [len(r.charge_reduce) for r in roles]

    def deliver(self, pair: tuple[int, int]) -> Message:
        """Deliver the oldest message of (source, target) `pair`, which `deliverable` held."""
        source, target = pair
        payload, values = self._flying[pair].popleft()
        # Counters instead of receive objects: messages of one pair match posted receives in order.
        self._posted[pair] -= 1
        self._matched[pair] -= 1
        mine = self.held[target]
        for block, value in values.items():
            if not payload.reduce and block in mine:
                raise ValueError(f"member {target} gets block {block} from {source}, but has it already")
            mine[block] = self._add(mine[block], value) if payload.reduce else value
        self._received[target] += 1
        self.chunk_steps.append(target)
        return Message(source, target, payload)

    def complete(self, member: int) -> None:
        """Complete one of `member`'s chunk steps, which `chunk_steps` held, and post what it allows."""
        self._done[member] += 1
        self._post(member)

    def round(self) -> tuple[list[Message], list[Message]]:
        """Complete all chunk steps, then deliver all messages; return those sent and those received."""
        self.sent = []
        chunk_steps, self.chunk_steps = self.chunk_steps, []
        for member in chunk_steps:
            self.complete(member)
        pairs, self.deliverable = self.deliverable, []
        return self.sent, [self.deliver(pair) for pair in pairs]

    def run(self, seed: int) -> None:
        """Deliver and complete in an order drawn from `seed` until nothing is left to do."""
        draw = random.Random(seed).random
        while self.deliverable or self.chunk_steps:
            choice = int(draw() * (len(self.deliverable) + len(self.chunk_steps)))
            if choice < len(self.deliverable):
                self.deliver(_take(self.deliverable, choice))
            else:
                self.complete(_take(self.chunk_steps, choice - len(self.deliverable)))

    def _post(self, member: int) -> None:
        role, cursor = self.schedule.role(member), self._next[member]
        for side, transfers in enumerate((role.sends, role.receives)):
            while cursor[side] < len(transfers):
                transfer = transfers[cursor[side]]
                # Transfers are posted in order: a send that is not ready holds back those behind it.
                if (
                    transfer.after_done > self._done[member]
                    or transfer.after_received > self._received[member]
                ):
                    break
                peer = self.schedule.peer(member, transfer)
                if side == 0:
                    self._send(member, peer, self._payloads[member][cursor[0]])
                else:
                    self._posted[peer, member] += 1
                    self._match((peer, member))
                cursor[side] += 1

    def _send(self, source: int, target: int, payload: Payload) -> None:
        mine = self.held[source]
        values = {block: mine[block] if payload.keep else mine.pop(block) for block in payload.blocks}
        self._flying[source, target].append((payload, values))
        self.sent.append(Message(source, target, payload))
        self._match((source, target))

    def _match(self, pair: tuple[int, int]) -> None:
        if min(len(self._flying[pair]), self._posted[pair]) > self._matched[pair]:
            self._matched[pair] += 1
            self.deliverable.append(pair)


def _take(items: list[V], position: int) -> V:
    """Remove and return ``items[position]`` without keeping the order."""
    # Swapping with the last makes removal O(1); the order is random anyway.
    items[position], items[-1] = items[-1], items[position]
    return items.pop()
