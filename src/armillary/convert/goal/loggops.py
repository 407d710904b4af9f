"""What LogGOPSim makes of a schedule: its model of messages, event by event.

A CPU is busy for `o` and `O` per byte with each message, a NIC for `g` and `G` per byte; a message needs `L` between
them. Above `S` bytes a send ends when it is received (rendezvous), else when it is posted.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction

from armillary.base.errors import InputError, one_of
from armillary.base.units import format_time
from armillary.convert.goal.operation import ANY, Operation

_POST, _ARRIVE, _WAKE = range(3)
_CPU, _OUT, _IN = range(3)
_FINE = 10**6
"""Units of a ns in which clocks count: those of the parameters."""
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,6})?", re.ASCII)
Key = tuple[int, int, int]
"""A resource: CPU or a NIC's direction, rank, and number."""


@dataclass(frozen=True)
class Model:
    """The parameters, ns, with LogGOPSim's defaults; `G` and `O` are per byte, `S` is bytes."""

    L: Fraction = Fraction(2500)
    o: Fraction = Fraction(1500)
    g: Fraction = Fraction(1000)
    G: Fraction = Fraction(6)
    O: Fraction = Fraction(0)  # noqa: E741 - the model's own name
    S: Fraction = Fraction(65535)

    @classmethod
    def of(cls, text: str) -> Model:
        """Read parameters such as ``L=500,G=0.02``; the others have their defaults.

        Raises:
            InputError: one is not known, is given twice, or has no possible value.
        """
        known, found = [each.name for each in fields(cls)], dict[str, Fraction]()
        for part in text.split(",") if text else ():
            name, _, value = part.partition("=")
            if name not in known or name in found:
                raise InputError(
                    f"--loggops {part[:60]}: got '{name[:40]}', expected {one_of(known)}, each once, e.g. L=500,G=0.02"
                )
            if not _NUMBER.fullmatch(value):
                raise InputError(
                    f"--loggops {part[:60]}: got '{value[:40]}', expected a number below 10^9 with at most 6 digits "
                    "behind the point, in ns (S: in bytes)"
                )
            found[name] = Fraction(value)
        return cls(**found)


@dataclass(frozen=True)
class Outcome:
    """When each host ends (ns), and for each receive (rank, number) which send (rank, number) it took."""

    ends: tuple[int, ...]
    took: dict[tuple[int, int], tuple[int, int]]


def told(model: Model, outcome: Outcome) -> str:
    """Return the sentence that says when hosts end."""
    numbers = ", ".join(f"{name} {float(value):g}" for name, value in vars(model).items())
    ends = sorted(outcome.ends)
    return (
        f"by LogGOPSim's model ({numbers}) hosts end after {format_time(ends[0])} to {format_time(ends[-1])}"
    )


def simulate(
    ranks: Sequence[Sequence[Operation]], model: Model = Model(), source: str = "schedule"
) -> Outcome:
    """Return when the hosts of a schedule end.

    Raises:
        InputError: operations wait for each other, or for messages that nobody sends; names the first one.
    """
    return _Run(ranks, model).outcome(source)


class _Run:
    """The state of a run: clocks of CPUs and NICs, messages that nobody has taken, and receives without one.

    What needs a resource that is busy waits in its line, which wakes when the resource is free.
    """

    def __init__(self, ranks: Sequence[Sequence[Operation]], model: Model) -> None:
        self.ranks, self.most_eager = ranks, model.S
        L, o, g, G, O = (int(value * _FINE) for value in (model.L, model.o, model.g, model.G, model.O))  # noqa: E741
        self.latency, self.of_cpu, self.of_nic, self.per_byte, self.cpu_per_byte = L, o, g, G, O
        self.clock: dict[Key, int] = defaultdict(int)
        self.lines: dict[Key, deque[tuple[int, int, int]]] = defaultdict(deque)
        self.waiting = [[len(each.ended) + len(each.started) for each in operations] for operations in ranks]
        self.after_end: list[list[list[int]]] = [[[] for _ in operations] for operations in ranks]
        self.after_start: list[list[list[int]]] = [[[] for _ in operations] for operations in ranks]
        # By receiver, source and tag, `ANY` included: messages that arrived, and receives that were posted, in order.
        self.arrived: dict[Key, deque[tuple[int, int]]] = defaultdict(deque)
        self.posted: dict[Key, deque[tuple[int, int]]] = defaultdict(deque)
        self.taken: set[tuple[int, int]] = set()
        self.took: dict[tuple[int, int], tuple[int, int]] = {}
        self.done = 0
        self.events: list[tuple[int, int, int, Key]] = []
        self.order = 0
        for rank, operations in enumerate(ranks):
            for number, each in enumerate(operations):
                for other in each.ended:
                    self.after_end[rank][other].append(number)
                for other in each.started:
                    self.after_start[rank][other].append(number)
                if not self.waiting[rank][number]:
                    self._push(0, _POST, (0, rank, number))

    def _push(self, time: int, what: int, about: Key) -> None:
        # What was put in first comes first at equal times.
        self.order += 1
        heapq.heappush(self.events, (time, self.order, what, about))

    def outcome(self, source: str) -> Outcome:
        while self.events:
            time, _, what, about = heapq.heappop(self.events)
            if what == _WAKE:
                self._wake(time, about)
            else:
                self._run(time, what, *about[1:])
        total = sum(map(len, self.ranks))
        if self.done < total:
            raise InputError(
                f"{source}: {total - self.done} operations never end: they wait for each other, or for messages that "
                "nobody sends"
            )
        ends = [0] * len(self.ranks)
        for (kind, rank, _), time in self.clock.items():
            ends[rank] = max(ends[rank], time if kind == _CPU else 0)
        return Outcome(tuple(-(-end // _FINE) for end in ends), self.took)

    def _wake(self, time: int, key: Key) -> None:
        if self.clock[key] <= time:
            self._run(time, *self.lines[key].popleft(), woken=True)
        if self.lines[key]:
            self._push(max(time, self.clock[key]), _WAKE, key)

    def _run(self, time: int, what: int, rank: int, number: int, *, woken: bool = False) -> None:
        """Post an operation, or let its message arrive, unless what it needs is busy."""
        each = self.ranks[rank][number]
        if what == _POST and each.kind == "recv":
            self._receive(time, rank, number)
            return
        place = rank if what == _POST else each.peer
        keys: list[Key] = [(_CPU, place, each.cpu)]
        if each.kind == "send":
            keys.append((_OUT if what == _POST else _IN, place, each.nic))
        # What comes when the resource is free again stands behind those that waited for that.
        busy = [key for key in keys if self.clock[key] > time] or [
            key for key in keys if self.lines[key] and not woken
        ]
        if busy:
            key = max(busy, key=lambda each: self.clock[each])
            self.lines[key].append((what, rank, number))
            if len(self.lines[key]) == 1:
                self._push(max(time, self.clock[key]), _WAKE, key)
        elif what == _POST:
            self._post(time, rank, number, keys)
        else:
            self._arrive(time, rank, number, keys)

    def _free(self, time: int, rank: int, others: Sequence[int]) -> None:
        for other in others:
            self.waiting[rank][other] -= 1
            if not self.waiting[rank][other]:
                self._push(time, _POST, (0, rank, other))

    def _end(self, time: int, rank: int, number: int) -> None:
        self.done += 1
        self._free(time, rank, self.after_end[rank][number])

    def _receive(self, time: int, rank: int, number: int) -> None:
        each = self.ranks[rank][number]
        self._free(time, rank, self.after_start[rank][number])
        waiting = self.arrived[rank, each.peer, each.tag]
        # Those that a receive of another kind took are still in this line.
        while waiting and waiting[0] in self.taken:
            waiting.popleft()
        if waiting:
            self._match(time, rank, number, waiting.popleft())
        else:
            self.posted[rank, each.peer, each.tag].append((self.order, number))
            self.order += 1

    def _post(self, time: int, rank: int, number: int, keys: list[Key]) -> None:
        each = self.ranks[rank][number]
        self._free(time, rank, self.after_start[rank][number])
        if each.kind == "calc":
            self.clock[keys[0]] = time + each.amount * _FINE
            self._end(time + each.amount * _FINE, rank, number)
            return
        rest = max(each.amount - 1, 0)
        self.clock[keys[0]] = time + self.of_cpu + rest * self.cpu_per_byte
        self.clock[keys[1]] = time + self.of_nic + rest * self.per_byte
        self._push(time + self.of_cpu + self.latency, _ARRIVE, (0, rank, number))
        if each.amount <= self.most_eager:
            self._end(time, rank, number)

    def _arrive(self, time: int, rank: int, number: int, keys: list[Key]) -> None:
        """Take the first byte of a message of a rank, on the CPU and NIC of the numbers that it was sent on."""
        sent = self.ranks[rank][number]
        rest = max(sent.amount - 1, 0)
        self.clock[keys[0]] = time + self.of_cpu + rest * max(self.cpu_per_byte, self.per_byte)
        self.clock[keys[1]] = time + self.of_nic + rest * self.per_byte
        places = [(sent.peer, source, tag) for source in (rank, ANY) for tag in (sent.tag, ANY)]
        lines = [line for place in places if (line := self.posted.get(place))]
        if lines:
            # Of all receives that fit, the one that was posted first.
            self._match(time, sent.peer, min(lines).popleft()[1], (rank, number))
            return
        for place in places:
            self.arrived[place].append((rank, number))

    def _match(self, time: int, rank: int, number: int, sent: tuple[int, int]) -> None:
        self.took[rank, number] = sent
        self.taken.add(sent)
        message = self.ranks[sent[0]][sent[1]]
        self._end(time, rank, number)
        if message.amount > self.most_eager:
            for key in ((_CPU, sent[0], message.cpu), (_OUT, sent[0], message.nic)):
                self.clock[key] = max(self.clock[key], time)
            self._end(time, *sent)
