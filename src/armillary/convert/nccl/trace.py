"""Make a trace of recorded collectives: one rank per process, whose calls follow each other as they were recorded."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armillary.base.errors import InputError
from armillary.base.units import format_count, format_time
from armillary.convert.converted import Converted
from armillary.convert.groups import Groups
from armillary.convert.nccl.records import Call, Process
from armillary.trace import Graph, GraphBuilder, NodeType, Trace
from armillary.trace.node import Attribute

Key = tuple[str, int]
"""A communicator and the number of a call in it."""


@dataclass(frozen=True)
class _World:
    """Who is who: the processes in order of their rank, and the ranks of every communicator in its own order."""

    processes: tuple[Process, ...]
    members: Mapping[str, tuple[int, ...]]
    ranks: int
    copied: bool
    """Whether one process stands for all ranks."""


def trace_of(processes: Sequence[Process], source: str) -> Converted:
    """Return the trace of processes, and what of their records is not in it.

    Raises:
        InputError: a rank is missing or there twice, or nothing is left.
    """
    world = _world(processes, source)
    ranks = world.ranks
    used, dropped, misfits = _matched(world)
    if not used:
        raise InputError(f"{source}: no collective that all its ranks recorded, expected files of one run")
    graphs, known = [], Groups(ranks)
    numbers = {comm: known.number(members) for comm, members in world.members.items()}
    for process in world.processes:
        graphs.append(_graph(process, used, numbers, known, f"{source}, {process.name}"))
    warnings = _warnings(processes, world, dropped, misfits, ranks)
    first = [call for call in world.processes[0].calls if (call.comm, call.number) in used]
    spent = sum(call.ns for call in first)
    timed = all(call.start is not None for call in first)
    says = f"rank 0: {format_count(len(first))} collectives took {format_time(spent)} in all"
    begun = [call.start for call in first if call.start is not None]
    if timed:
        span = max(call.start + call.ns for call in first if call.start is not None) - min(begun)
        says += f" of {format_time(span)}"
    facts = {"recorded_ns": spent, "collectives": len(first), "gaps": timed}
    trace = Trace.replicate(graphs[0], ranks) if world.copied else Trace.from_ranks(graphs)
    return Converted(trace, known.ranks, tuple(warnings), facts, (says,))


def _world(processes: Sequence[Process], source: str) -> _World:
    seen: dict[str, dict[int, int]] = {}
    stated: dict[str, int] = {}
    for number, process in enumerate(processes):
        for call in process.calls:
            stated[call.comm] = max(stated.get(call.comm, 0), call.ranks)
            first = seen.setdefault(call.comm, {}).setdefault(call.rank, number)
            if first != number:
                raise InputError(
                    f"{source}: {processes[first].name} and {process.name} are both rank {call.rank} of communicator "
                    f"{call.comm[:40]}, expected files of one run"
                )
    if not seen:
        raise InputError(f"{source}: no collective, expected records of NCCL's inspector or profiler")
    # The profiler does not say how many ranks there are: all that recorded it.
    sizes = {comm: stated[comm] or len(holders) for comm, holders in seen.items()}
    world = max(sizes, key=lambda comm: sizes[comm])
    if len(processes) == 1 and sizes[world] > 1:
        if any(size not in (1, sizes[world]) for size in sizes.values()):
            raise InputError(
                f"{source}: has communicators of fewer than all {sizes[world]} ranks, expected files of all ranks"
            )
        # What one rank recorded of communicators of all ranks, all did.
        everyone = tuple(range(sizes[world]))
        members = {comm: everyone for comm, size in sizes.items() if size > 1}
        return _World(tuple(processes), members, sizes[world], copied=True)
    for number, process in enumerate(processes):
        if process.calls and number not in seen[world].values():
            raise InputError(
                f"{source}: {process.name} is not in communicator {world[:40]}, the largest; expected one of all ranks"
            )
    order = [seen[world][rank] for rank in sorted(seen[world])]
    rank_of = {number: rank for rank, number in enumerate(order)}
    members = {}
    for comm, holders in seen.items():
        absent = next((rank for rank in range(sizes[comm]) if rank not in holders), None)
        if absent is not None:
            raise InputError(
                f"{source}: communicator {comm[:40]}: no file of its rank {absent}, expected files of all "
                f"{sizes[comm]} ranks"
            )
        members[comm] = tuple(rank_of[holders[rank]] for rank in range(sizes[comm]))
    return _World(tuple(processes[number] for number in order), members, len(order), copied=False)


def _matched(world: _World) -> tuple[dict[Key, int], int, Counter[str]]:
    """Return the calls that all members recorded, with their place in an order that all share."""
    found: dict[Key, list[tuple[int, Call]]] = {}
    for process in world.processes:
        for at, call in enumerate(process.calls):
            if call.comm in world.members:
                found.setdefault((call.comm, call.number), []).append((at, call))
    dropped, misfits = 0, Counter[str]()
    whole: list[tuple[int, Key]] = []
    for key, calls in found.items():
        needed = 1 if world.copied else len(world.members[key[0]])
        alike = len({(call.operation, call.size) for _, call in calls}) == 1
        if len(calls) != needed:
            dropped += 1
        elif not alike:
            misfits[calls[0][1].operation.name] += 1
        else:
            whole.append((max(at for at, _ in calls), key))
    # The same order on all ranks, so that none waits for another that waits for it.
    return {key: place for place, (_, key) in enumerate(sorted(whole))}, dropped, misfits


def _graph(
    process: Process, used: Mapping[Key, int], numbers: Mapping[str, int], known: Groups, source: str
) -> Graph:
    builder = GraphBuilder()
    known.metadata(builder)
    calls = [call for call in process.calls if (call.comm, call.number) in used]
    timed = all(call.start is not None for call in calls)
    calls.sort(key=lambda call: (call.start or 0) if timed else used[call.comm, call.number])
    before: tuple[int, int] | None = (
        None  # end and node of the last call that has ended when the next one starts
    )
    running: list[tuple[int, int]] = []
    stream = {comm: at for at, comm in enumerate(numbers)}
    for call in calls:
        start = call.start if timed and call.start is not None else None
        while running and (start is None or running[0][0] <= start):
            before = heapq.heappop(running)
        after = [] if before is None else [before[1]]
        # A call during the first one waits from the beginning, as what it waited for was not recorded.
        since = before[0] if before is not None else calls[0].start
        if start is not None and since is not None and start > since:
            wait = start - since
            attrs: list[Attribute] = [("is_cpu_op", "bool", True), ("duration_ns", "int64", wait)]
            after = [
                builder.add(
                    "between", NodeType.COMP_NODE, attrs, after=after, duration_micros=(wait + 500) // 1000
                )
            ]
        number = numbers[call.comm]
        made = builder.collective(
            f"{call.operation.name.lower().replace('_', '-')} {call.number}", call.operation, call.size,
            group=number or None, after=after, duration_micros=(call.ns + 500) // 1000,
        )  # fmt: skip
        # Those of other communicators may run beside it.
        builder.nodes[-1].attrs += [("stream", "int64", stream[call.comm]), ("duration_ns", "int64", call.ns)]
        heapq.heappush(running, (0 if start is None else start + call.ns, made))
    return builder.graph(source)


def _warnings(
    processes: Sequence[Process], world: _World, dropped: int, misfits: Counter[str], ranks: int
) -> list[str]:
    notes = []
    if world.copied:
        notes.append(f"{processes[0].name} is the only file: all {ranks} ranks run what it recorded")
    if dropped:
        notes.append(f"{format_count(dropped)} collectives left out: not all of their ranks recorded them")
    if misfits:
        names = ", ".join(f"{name} ({count})" for name, count in misfits.items())
        notes.append(f"collectives left out, whose ranks recorded different operations or sizes: {names}")
    other = sum((process.other for process in processes), Counter[str]())
    notes += [f"{format_count(count)} left out: {name}" for name, count in sorted(other.items())]
    return notes
