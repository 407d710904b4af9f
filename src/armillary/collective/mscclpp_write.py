"""A collective algorithm as an MSCCL++ execution plan, in protocol Simple or LL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from armillary.base.counts import check_count
from armillary.base.errors import InputError
from armillary.collective import blocks as data
from armillary.collective.algorithms import rounds_for
from armillary.collective.mscclpp_plan import MOST_OPS
from armillary.collective.rounds import Blocks, Rounds

Protocol = Literal["Simple", "LL"]
Message = tuple[int, int, Blocks, bool]
"""Source, target, blocks, whether the target adds them."""
_WORDS = {"all-reduce": "allreduce", "all-gather": "allgather", "reduce-scatter": "reducescatter"}
# Of MSCCL++'s executor: 64 operations of a thread block, 16 channels.
_MOST_OPS = 60
_MOST_PEERS = 16


def plan_of(
    name: str, operation: str, n: int, protocol: Protocol = "Simple", chunks: int | None = None
) -> dict[str, Any]:
    """Return an algorithm among `n` GPUs, in place, as what the JSON file of a plan holds.

    Args:
        name: Name of an algorithm, as ``collectives`` of a study takes it.
        operation: all-reduce, all-gather or reduce-scatter.
        n: Number of GPUs.
        protocol: Simple, or LL: in packets.
        chunks: Parts that the algorithm cuts the data into; None: as many as it does.

    Raises:
        InputError: The algorithm cannot do it, or a GPU would have more peers than the executor has channels.
    """
    if operation not in _WORDS:
        raise InputError(f"MSCCL++ plan of a {operation}: expected one of {', '.join(_WORDS)}")
    rounds = rounds_for(name, operation, n, chunks=chunks)
    if rounds.switches:
        raise InputError(f"MSCCL++ plan of {name}: switches take part, expected an algorithm of GPUs only")
    count = sum(part.repeat * len(part.base.target) * (n if part.rotates else 1) for part in rounds.rounds)
    check_count(count, MOST_OPS, f"MSCCL++ plan of {name} {operation} among {n} GPUs: messages", "fewer GPUs")
    return plan_of_messages(
        f"{name} {operation}", operation, n, data.parts(rounds), _messages(rounds), protocol
    )


def _messages(rounds: Rounds) -> list[list[Message]]:
    found = []
    for part, carried in zip(rounds.expanded(), data.blocks(rounds), strict=True):
        columns = part.source.tolist(), part.target.tolist(), carried, part.reduce.tolist()
        found.append([(s, t, blocks, adds) for s, t, blocks, adds in zip(*columns, strict=True) if blocks])
    return found


def plan_of_messages(
    name: str, operation: str, n: int, parts: int, rounds: Sequence[Sequence[Message]], protocol: Protocol
) -> dict[str, Any]:
    """Return rounds of messages as a plan, see `plan_of`; `parts` blocks make up a collective's bytes.

    Raises:
        InputError: A GPU has more peers than the executor has channels.
    """
    outputs = {"all-gather": n * parts, "reduce-scatter": parts // n}.get(operation, parts)
    buffer = "o" if operation == "all-gather" else "i"
    gpus = [_Gpu(gpu, buffer) for gpu in range(n)]
    for one in rounds:
        for source, target, _, _ in one:
            gpus[source].meet(target)
            gpus[target].meet(source)
    for gpu in gpus:
        if len(gpu.peers) > _MOST_PEERS:
            raise InputError(
                f"MSCCL++ plan of {name}: gpu {gpu.number} has {len(gpu.peers)} peers, expected at most {_MOST_PEERS}, "
                "the channels of a thread block"
            )
    if protocol == "Simple":
        # Nothing may be written into a buffer whose owner has not begun.
        for gpu in gpus:
            everyone = list(range(len(gpu.peers)))
            gpu.add({"name": "rlxsignal", "channel_ids": everyone, "channel_type": "memory"})
            gpu.add({"name": "rlxwait", "channel_ids": everyone, "channel_type": "memory"})
    safe = _direct(n, rounds) if protocol == "Simple" else set()
    for number, one in enumerate(rounds):
        arrives: list[tuple[int, int, int, int, int, bool, bool]] = []
        for at, (source, target, blocks, adds) in enumerate(one):
            direct = (number, at) in safe
            last = list(_spans(blocks))
            for span, (first, count) in enumerate(last):
                place = first if direct else gpus[target].scratch
                gpus[target].scratch += 0 if direct else count
                gpus[source].put(target, first, count, place, direct, protocol)
                arrives.append((target, source, first, count, place, direct, adds))
                if protocol == "Simple" and span == len(last) - 1:
                    gpus[source].signal(target)
        waited: set[tuple[int, int]] = set()
        for target, source, first, count, place, direct, adds in arrives:
            if protocol == "Simple" and (target, source) not in waited:
                waited.add((target, source))
                times = sum((t, s) == (target, source) for s, t, _, _ in one)
                for _ in range(times):
                    gpus[target].wait(source)
            if not direct:
                gpus[target].take(first, count, place, adds, protocol)
    return {
        "name": name, "collective": _WORDS[operation], "protocol": protocol, "inplace": True, "reuse_resources": False,
        "gpus": [gpu.keys(parts, outputs) for gpu in gpus],
        "num_threads_per_block": 1024, "use_double_scratch_buffer": protocol == "LL", "buffer_alignment": 16,
        "min_message_size": 0, "max_message_size": 2**64 - 1,
    }  # fmt: skip


def _spans(blocks: Iterable[int]) -> Iterable[tuple[int, int]]:
    """Yield first and count of each run of blocks."""
    first, count = -1, 0
    for block in sorted(blocks):
        if count and block == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = block, 1
    if count:
        yield first, count


def _direct(n: int, rounds: Sequence[Sequence[Message]]) -> set[tuple[int, int]]:
    """Return the messages that may go straight to their place: their source knows that the place is used no more.

    A source knows of what was received by anyone whose later message has reached it, directly or not.
    """
    knows: list[set[tuple[int, int]]] = [set() for _ in range(n)]
    sent: dict[tuple[int, int], list[tuple[int, int]]] = {}
    added: dict[tuple[int, int], int] = {}
    said: dict[int, list[tuple[int, tuple[int, int]]]] = {}
    safe = set()
    for number, one in enumerate(rounds):
        before = [set(each) for each in knows]
        for at, (source, _, blocks, _) in enumerate(one):
            said.setdefault(source, []).append((number, (number, at)))
            for block in blocks:
                sent.setdefault((source, block), []).append((number, at))
        for at, (source, target, blocks, adds) in enumerate(one):
            if not adds and all(
                all(message in before[source] for message in sent.get((target, block), ()))
                and _after(before[source], said.get(target, ()), added.get((target, block)))
                for block in blocks
            ):
                safe.add((number, at))
        for at, (source, target, blocks, _) in enumerate(one):
            knows[target] |= before[source] | {(number, at)}
            for block in blocks:
                added[target, block] = number
    return safe


def _after(
    known: set[tuple[int, int]], said: Iterable[tuple[int, tuple[int, int]]], number: int | None
) -> bool:
    """Return whether a message that somebody sent after a round is known."""
    return number is None or any(when > number and message in known for when, message in said)


class _Gpu:
    """The program of one GPU as it grows: one thread block, and further ones where it is full."""

    def __init__(self, number: int, buffer: str) -> None:
        self.number, self.buffer = number, buffer
        self.peers: list[int] = []
        self.scratch = 0
        self.blocks: list[list[dict[str, Any]]] = [[]]

    def meet(self, peer: int) -> None:
        if peer not in self.peers:
            self.peers.append(peer)

    def add(self, op: dict[str, Any]) -> None:
        if len(self.blocks[-1]) >= _MOST_OPS:
            semaphore = len(self.blocks) - 1
            self.blocks[-1].append({"name": "sem_release", "semaphore_ids": [semaphore]})
            self.blocks.append([{"name": "sem_acquire", "semaphore_ids": [semaphore]}])
        self.blocks[-1].append(op)

    def put(self, peer: int, first: int, count: int, place: int, direct: bool, protocol: Protocol) -> None:
        at = self.peers.index(peer)
        # Remote buffers of a peer: its data, then its scratch.
        target = {"buffer_id": 2 * at + (not direct), "index": place, "size": count}
        name = "ppkt" if protocol == "LL" else "put"
        self.add({"name": name, "src_buff": [self._own(first, count)], "dst_buff": [target], "channel_ids": [at],
                  "channel_type": "memory"})  # fmt: skip

    def signal(self, peer: int) -> None:
        self.add({"name": "signal", "channel_ids": [self.peers.index(peer)], "channel_type": "memory"})

    def wait(self, peer: int) -> None:
        self.add({"name": "wait", "channel_ids": [self.peers.index(peer)], "channel_type": "memory"})

    def take(self, first: int, count: int, place: int, adds: bool, protocol: Protocol) -> None:
        own, came = self._own(first, count), {"type": "s", "index": place, "size": count}
        if adds:
            name = "repkt" if protocol == "LL" else "re"
            op = {"name": name, "src_buff": [own, came], "dst_buff": [own], "reduce_op": "sum"}
        else:
            op = {"name": "upkt" if protocol == "LL" else "copy", "src_buff": [came], "dst_buff": [own]}
        self.add(op)

    def _own(self, first: int, count: int) -> dict[str, Any]:
        return {"type": self.buffer, "index": first, "size": count}

    def keys(self, inputs: int, outputs: int) -> dict[str, Any]:
        each = list(range(len(self.peers)))
        return {
            "id": self.number, "input_chunks": inputs, "output_chunks": outputs, "scratch_chunks": self.scratch,
            "threadblocks": [
                {
                    "id": number, "ops": ops, "channels": [{"channel_type": "memory", "channel_ids": each}],
                    "remote_buffer_refs": [{
                        "access_channel_type": "memory", "remote_buffer_ids": list(range(2 * len(self.peers))),
                    }],
                }
                for number, ops in enumerate(self.blocks)
            ],
            "channels": [{"channel_type": "memory", "connected_to": self.peers}],
            "remote_buffers": [
                {"rank": peer, "type": kind, "access_channel_types": ["memory"]}
                for peer in self.peers for kind in (self.buffer, "s")
            ],
            "semaphores": [{"init_value": 0} for _ in self.blocks[1:]],
        }  # fmt: skip
