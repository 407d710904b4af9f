"""One rank's joined trace as steps, with their dependencies and communications."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from armillary.base.errors import InputError
from armillary.convert.pytorch.communicating_nodes import communications
from armillary.convert.pytorch.communication import (
    ASYNCHRONOUS,
    GROUP_NOTE,
    RECV,
    SEND,
    Communication,
    add_event,
    of_operator,
)
from armillary.convert.pytorch.communication_kernels import UNSAID, names_its_kind
from armillary.convert.pytorch.data_waits import add_data_waits, end_before_use, uses
from armillary.convert.pytorch.delays import add_delays
from armillary.convert.pytorch.device import CpuOp, DeviceOp, RuntimeCall
from armillary.convert.pytorch.device_only import DEVICE_ONLY
from armillary.convert.pytorch.host import HostTrace
from armillary.convert.pytorch.host_time import own_time, was_cut
from armillary.convert.pytorch.launches import Launches, full_queues, launches
from armillary.convert.pytorch.link import Linked
from armillary.convert.pytorch.parents import mend_parents
from armillary.convert.pytorch.segments import Item
from armillary.convert.pytorch.steps import SHORT, Step, Thread, connect, fork_and_join
from armillary.convert.pytorch.streams import add_kernels, blocks
from armillary.convert.pytorch.tracks import StreamKey
from armillary.convert.pytorch.workers import add_workers, cut_at_issue, match_events, wake


@dataclass
class Rank:
    """The steps of one rank in issue order, and its communications."""

    steps: list[Step]
    communications: list[Communication]
    timed: bool
    start: int
    end: int
    """First start and last end of CPU operators, ns."""
    first: int
    last: int
    """First start and last end of everything recorded: operators, kernels and annotations of backends' threads, ns."""


def build(linked: Linked, *, alone: bool = False) -> Rank:
    """Return the steps of one rank.

    Args:
        linked: its joined trace.
        alone: no other rank is converted with it, so no partner waits for collectives for which it ran no kernel.
    """
    mend_parents(linked)
    comms = communications(linked.host)
    timed = bool(linked.device.ops or linked.device.kernels)
    ops, events = _recorded(linked) if timed else (_untimed(linked), [])
    kernels, calls = linked.device.kernels, linked.device.call_of()
    # Matched before the kernels are cut to the span, as a kernel belongs to the span of its launch.
    found = launches(linked.device, calls, kernels)
    if ops and timed and linked.host.schema != DEVICE_ONLY:  # the host trace can be of fewer steps
        first, last = _span(ops)
        kept = [
            (kernel, call)
            for kernel, call in zip(kernels, found, strict=True)
            if first <= (call or kernel).start <= last
        ]
        kernels, found = [kernel for kernel, _ in kept], [call for _, call in kept]
        calls = {at: call for at, call in calls.items() if first <= call.start <= last}
    start, end = _recorded_span(ops, kernels, events)
    # A call outside of all work would only stretch the thread that made it.
    calls = {at: call for at, call in calls.items() if start < call.end and call.start < end}
    recorded = [call for call in linked.device.calls if start < call.end and call.start < end]
    full = full_queues(kernels, found)
    threads = _threads(ops, recorded, calls, kernels, found, full)
    # From here on the order matters: all cuts must be known before `Thread.build` makes steps of the
    # segments, and all steps before `connect` and the waits below look for them.
    issued = match_events(comms, linked, events)
    bursts = fork_and_join(threads)
    cut_at_issue(threads, issued)
    for thread in threads.values():
        thread.build()
    connect(bursts)
    # A communication waits for the head of the operator that issued it.
    heads = {
        step.host: step
        for thread in threads.values()
        for step in thread.steps
        if step.kind == "cpu" and step.host >= 0
    }
    steps = [step for thread in threads.values() for step in thread.steps]
    try:
        steps += add_kernels(threads, calls, kernels, found, full, linked.device.waits, comms, heads)
    except InputError as error:
        raise InputError(f"{linked.device.source}: {error}") from None
    # Only now has every kernel its communication, or one made up from its name alone.
    describe_kernels(steps, linked.host)
    done = {id(step.source) for step in steps if isinstance(step.source, Communication)}
    rest = [(comm, event) for comm, event in issued if id(comm) not in done]
    if alone and done:
        # NCCL launches no kernel where a rank has nothing to send and to receive.
        empty = {id(comm) for comm, event in rest if event is None and comm.is_empty}
        rest = [(comm, event) for comm, event in rest if id(comm) not in empty]
        comms = [comm for comm in comms if id(comm) not in empty]
    for comm, event in rest:
        if event is not None:
            add_event(comm, linked.node_of(event))
    # What ran on no stream ran on a backend's threads, or left no trace of its time.
    workers = add_workers(threads, heads, rest)
    steps += workers
    used = uses(steps, linked, comms)
    # Before the ends of communications tell who waited for them.
    end_before_use(used, threads, linked)
    wake(threads.values(), workers)
    add_data_waits(used)
    # Waits that end after the step are refuted by the times. This also sets durations and keys, so it
    # follows the last wait.
    for step in steps:
        step.settle()
    steps = issue_order(steps)
    if not timed:
        return Rank(steps, comms, timed, 0, 0, 0, 0)
    # In a file that was cut, time without record says nothing of what the thread did.
    if not was_cut(linked.device):
        steps = own_time(steps)
    first, last = _span(ops) if any(ops.values()) else (start, end)
    return Rank(add_delays(steps, start, end), comms, timed, first, last, start, end)


def _span(ops: dict[int, list[Item]]) -> tuple[int, int]:
    items = [item for run in ops.values() for item in run]
    return min((item.start for item in items), default=0), max((item.end for item in items), default=0)


def _recorded_span(
    ops: dict[int, list[Item]], kernels: Sequence[DeviceOp], events: Sequence[CpuOp]
) -> tuple[int, int]:
    found: list[Item | DeviceOp | CpuOp] = [item for run in ops.values() for item in run]
    found += [*kernels, *events]
    return min((one.start for one in found), default=0), max((one.end for one in found), default=0)


def _recorded(linked: Linked) -> tuple[dict[int, list[Item]], list[CpuOp]]:
    """Return the items of each thread within the time that the host trace covers, and the backends' annotations."""
    ops = linked.device.ops
    host_of = {op: at for at, op in enumerate(linked.op_of) if op >= 0}
    first = min((ops[op].start for op in host_of), default=0)
    last = max((ops[op].end for op in host_of), default=0)
    threads: dict[int, list[Item]] = defaultdict(list)
    events: list[CpuOp] = []
    for at, op in enumerate(ops):
        # Warm-up steps before the host trace, and notes of our own, are no part of the program.
        if not first <= op.start <= last or op.name.startswith(GROUP_NOTE):
            continue
        if op.is_annotation and op.name.startswith(ASYNCHRONOUS):
            events.append(op)
        else:
            threads[op.tid].append(Item(op.name, op.start, op.end, host_of.get(at, -1)))
    return threads, events


def _untimed(linked: Linked) -> dict[int, list[Item]]:
    """Return items with node indices for times: a node lasts until the last node inside it has begun."""
    nodes = linked.host.nodes
    index = {node.id: at for at, node in enumerate(nodes)}
    end = list(range(1, len(nodes) + 1))
    # Children before their parents, so every end is final when it is passed up.
    for at in range(len(nodes) - 1, -1, -1):
        above = index.get(nodes[at].parent, -1)
        if 0 <= above < at:
            end[above] = max(end[above], end[at])
    threads: dict[int, list[Item]] = defaultdict(list)
    for at, node in enumerate(nodes):
        if not node.is_structure and not node.name.startswith(GROUP_NOTE):
            threads[node.tid].append(Item(node.name, at, end[at], at))
    return threads


def _threads(
    ops: dict[int, list[Item]],
    recorded: Sequence[RuntimeCall],
    calls: dict[int, RuntimeCall],
    kernels: Sequence[DeviceOp],
    found: Launches,
    full: Mapping[int, StreamKey],
) -> dict[int, Thread]:
    launched: dict[int, DeviceOp] = {}
    cuts: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for kernel, launch in zip(kernels, found, strict=True):
        # The first kernel of a graph launch counts alone: the others start when the graph has them start.
        if launch and (not launch.correlation or launch.correlation not in launched):
            launched.setdefault(launch.correlation, kernel)
            if not blocks(launch, kernel):
                # Without a cut a kernel would wait for the end of an operator that goes on after the launch.
                cuts[launch.tid].append((min(launch.end, kernel.start), kernel.start))
    items = {tid: list(run) for tid, run in ops.items()}
    for call in calls.values():
        first = launched.get(call.correlation)
        # Only calls that wait become items inside operators; the others are part of their operator's time.
        waits = blocks(call, first) or call.correlation in full
        if call.tid not in ops and (first or waits or not ops):  # nothing else is known of this thread
            correlation = call.correlation if waits else 0
            items.setdefault(call.tid, []).append(
                Item(call.name, call.start, call.end, call=correlation, is_call=waits)
            )
        elif waits and call.tid in items:
            items[call.tid].append(Item(call.name, call.start, call.end, call=call.correlation, is_call=True))
    known = {id(call) for call in calls.values()}
    for call in recorded:  # two of one number, as where a thread waits for a queue that waits for its device
        if id(call) not in known and blocks(call, None) and call.tid in ops:
            items[call.tid].append(Item(call.name, call.start, call.end, call=call.correlation, is_call=True))
    for call in _between(ops, recorded):
        items[call.tid].append(Item(call.name, call.start, call.end))
    threads = {}
    for tid, run in items.items():
        # Stable: of two that start and end together, the first recorded is the outer one.
        run.sort(key=lambda item: (item.start, -item.end, item.is_call))
        threads[tid] = Thread(tid, run)
        threads[tid].cut_at_launches(cuts[tid])
    return threads


def _between(ops: dict[int, list[Item]], calls: Sequence[RuntimeCall]) -> list[RuntimeCall]:
    """Return the long non-blocking runtime calls between operators: they account for their thread's time there."""
    # Merge the operators of each thread into disjoint intervals, so that a bisection answers what overlaps.
    covered: dict[int, tuple[list[int], list[int]]] = {}
    for tid, run in ops.items():
        starts: list[int] = []
        ends: list[int] = []
        for item in sorted(run, key=lambda item: item.start):
            if ends and item.start < ends[-1]:
                ends[-1] = max(ends[-1], item.end)
            else:
                starts.append(item.start)
                ends.append(item.end)
        covered[tid] = starts, ends
    found = []
    for call in calls:
        if call.end - call.start < SHORT or call.tid not in covered or blocks(call, None):
            continue
        starts, ends = covered[call.tid]
        # Between the first and the last operator: outside, the call would extend the recorded span.
        if ends[0] <= call.start and call.end <= starts[-1]:
            inside = bisect_right(starts, call.start) - 1
            # It may hold whole operators but not cut one in two: items must nest.
            if ends[inside] <= call.start and all(
                end <= call.end for end in ends[inside + 1 : bisect_left(starts, call.end)]
            ):
                found.append(call)
    return found


def issue_order(steps: Sequence[Step]) -> list[Step]:
    """Return the steps in the order of their keys, but each after its waits: old traces count whole microseconds.

    If clocks are so coarse that steps wait for each other, the step of the least key breaks the cycle.
    """
    place = {id(step): at for at, step in enumerate(steps)}
    children: list[list[int]] = [[] for _ in steps]
    waiting = [0] * len(steps)
    for at, step in enumerate(steps):
        for wait in step.waits:
            children[place[id(wait)]].append(at)
            waiting[at] += 1
    # Kahn's algorithm with a heap: of the steps that wait for nothing more, the least key is next.
    ready = [(step.key, at) for at, step in enumerate(steps) if not waiting[at]]
    heapq.heapify(ready)
    left = iter(sorted((step.key, at) for at, step in enumerate(steps)))
    done = [False] * len(steps)
    result: list[Step] = []
    while len(result) < len(steps):
        # No step is ready only in a cycle; then the least key left is taken, however many waits it has.
        _, at = heapq.heappop(ready) if ready else next(left)
        if done[at]:
            continue
        done[at] = True
        result.append(steps[at])
        for child in children[at]:
            waiting[child] -= 1
            if not waiting[child]:
                heapq.heappush(ready, (steps[child].key, child))
    return result


def describe_kernels(steps: Sequence[Step], host: HostTrace) -> None:
    """Complete the communications that only a kernel shows.

    Bytes are those of the operator that launched it, if its name is a collective's. If the kernel's name leaves the
    kind open, as NCCL's SendRecv and RCCL's generic kernels do, it is the kind of most calls with such a kernel.
    """
    kinds: dict[str, Counter[str]] = {}
    alone: list[tuple[Step, Communication]] = []
    for step, comm in _of_kernels(steps):
        if comm.node >= 0 or comm.sized:
            kinds.setdefault(step.name, Counter())[comm.kind] += 1
        else:
            alone.append((step, comm))
    for step, comm in alone:
        found = next((made for at in _around(step.item) if (made := of_operator(at, host, step.name))), None)
        if found is not None:
            comm.kind, comm.size, comm.sized, comm.path = found.kind, found.size, True, found.path
        elif not names_its_kind(step.name) and step.name in kinds:
            comm.kind = kinds[step.name].most_common(1)[0][0]
        # Pairs of sends and receives in one kernel are what PyTorch makes of an all-to-all.
        if comm.kind == UNSAID:
            comm.kind = "ALL_TO_ALL"
        if comm.kind in (SEND, RECV) and comm.peer is None:
            comm.kind = "ALL_TO_ALL"  # a message without its other end cannot be told
        if comm.kind == "BARRIER":
            comm.sized = True


def _of_kernels(steps: Sequence[Step]) -> Iterator[tuple[Step, Communication]]:
    for step in steps:
        if step.kind == "comm" and isinstance(step.source, Communication):
            yield step, step.source


def _around(item: Item | None) -> Iterator[int]:
    """Yield the host nodes inside which a kernel was launched, innermost first."""
    while item is not None:
        if item.host >= 0:
            yield item.host
        item = item.above
