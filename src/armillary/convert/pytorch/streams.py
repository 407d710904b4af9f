"""Device streams: kernels in order, after their launch and after events of other streams; CPU calls that wait."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from armillary.convert.pytorch.communication import Communication, of_kernel
from armillary.convert.pytorch.communication_kernels import kernel_kind
from armillary.convert.pytorch.device import DeviceOp, RuntimeCall, StreamWait
from armillary.convert.pytorch.device_only import said
from armillary.convert.pytorch.segments import Item
from armillary.convert.pytorch.steps import Step, Thread

Lane = tuple[int, int]

STALLED = 100_000
"""A kernel that starts so late (ns) after all that it is known to wait for waited for something else."""


def blocks(call: RuntimeCall, kernel: DeviceOp | None) -> bool:
    """Whether a runtime call returned only when something on the device had ended."""
    if "ynchronize" in call.name:
        return True
    return kernel is not None and "emcpy" in call.name and call.start < kernel.end <= call.end


def is_communication(name: str) -> bool:
    """Whether a kernel communicates."""
    return kernel_kind(name) is not None


class Streams:
    """The kernels of all streams in order of launch."""

    def __init__(self) -> None:
        self.steps: dict[Lane, list[Step]] = defaultdict(list)
        self.keys: dict[Lane, list[int]] = defaultdict(list)

    def add(self, lane: Lane, step: Step) -> None:
        """Append the next kernel of a stream."""
        self.steps[lane].append(step)
        self.keys[lane].append(step.key)

    def before(self, lane: Lane, launched: int) -> Step | None:
        """Return the last kernel of a stream that was launched before a time."""
        at = bisect_left(self.keys[lane], launched)
        return self.steps[lane][at - 1] if at else None


def add_kernels(
    threads: dict[int, Thread],
    calls: dict[int, RuntimeCall],
    kernels: Sequence[DeviceOp],
    waits: Sequence[StreamWait],
    comms: list[Communication],
    heads: Mapping[int, Step],
) -> list[Step]:
    """Return a step for each kernel, and let blocking calls wait for those they waited for.

    Communication that only kernels tell of is added to `comms`; `heads` are the steps that issued the others.
    """
    streams = Streams()
    issuing = Issuing(comms, heads)
    waiting = _stream_waits(waits, calls)
    made = []
    issued = [(calls.get(kernel.correlation), kernel) for kernel in kernels]
    for call, kernel in sorted(
        issued, key=lambda pair: (pair[0].end if pair[0] else pair[1].start, pair[1].start)
    ):
        lane = (kernel.device, kernel.stream)
        launched = call.end if call else kernel.start
        step = Step(kernel.name, "kernel", kernel.end, launched, kernel.stream, source=kernel)
        step.begin = kernel.start
        _launch(step, threads, call, kernel)
        if previous := streams.before(lane, launched + 1):
            step.waits.append(previous)
        if is_communication(kernel.name):
            _communicate(step, kernel, call, issuing, comms)
            others = [other for other in streams.steps if other[0] == lane[0] and other != lane]
            step.waits += [
                s for other in others if (s := streams.before(other, launched)) and s.kind == "kernel"
            ]
        # Each holds for the next kernel of the stream, and by the order of the stream for those after it.
        told = waiting.get(lane[1], [])
        while told and told[-1].told <= launched:
            wait = told.pop()
            if found := streams.before((lane[0], wait.on), wait.recorded):
                step.waits.append(found)
        step.waits = [w for w in step.waits if w.end <= kernel.start]
        streams.add(lane, step)
        made.append(step)
    made += _explain(made)
    _synchronise(threads, streams, made)
    return made


class _Told(NamedTuple):
    """A stream was told to wait for what another one had to do when an event was recorded."""

    told: int
    recorded: int
    on: int


def _stream_waits(waits: Sequence[StreamWait], calls: dict[int, RuntimeCall]) -> dict[int, list[_Told]]:
    """Return for each stream what it was told to wait for, the last first."""
    found: dict[int, list[_Told]] = defaultdict(list)
    for wait in waits:
        told, recorded = calls.get(wait.correlation), calls.get(wait.on_correlation)
        if "Stream Wait" in wait.kind and told and recorded and wait.on_stream >= 0:
            found[wait.stream].append(_Told(told.start, recorded.start, wait.on_stream))
    return {stream: sorted(run, reverse=True) for stream, run in found.items()}


def _launch(step: Step, threads: dict[int, Thread], call: RuntimeCall | None, kernel: DeviceOp) -> None:
    """Let a kernel wait for the CPU step that launched it; without a record of that, for the last one before it."""
    if call is None:
        before = [found for thread in threads.values() if (found := thread.before(kernel.start))]
        step.waits += [max(before, key=lambda found: found.end)] if before else []
        return
    if thread := threads.get(call.tid):
        launched = min(call.end, kernel.start)  # a call can return late
        launch = thread.launching(launched)
        if launch and launch.end > kernel.start:
            launch = thread.before(launched)
        if launch:
            step.waits.append(launch)
        if segment := thread.segment_at(call.start):
            step.item = segment.owner


class Issuing:
    """Which communications have been issued, and have no kernel yet."""

    def __init__(self, comms: Sequence[Communication], heads: Mapping[int, Step]) -> None:
        self.of = {comm.node: comm for comm in comms}
        self.taken: set[int] = set()
        self._waiting: dict[int, deque[tuple[int, Communication]]] = defaultdict(deque)
        for comm in sorted(comms, key=lambda comm: heads[comm.node].end if comm.node in heads else 0):
            if head := heads.get(comm.node):
                self._waiting[head.lane].append((head.end, comm))

    def around(self, item: Item | None) -> Communication | None:
        """Return the communication that `item`, or an item around it, issues."""
        while item is not None:
            comm = self.of.get(item.host)
            if comm is not None and comm.node not in self.taken:
                return comm
            item = item.above
        return None

    def explains(self, item: Item | None) -> bool:
        """Whether `item`, or an item around it, issues a communication."""
        while item is not None and item.host not in self.of:
            item = item.above
        return item is not None

    def before(self, call: RuntimeCall | None) -> Communication | None:
        """Return the last of those that a thread issued, each without a kernel, before it launched one for all of them.

        So ``ncclGroupEnd`` does for messages and coalesced collectives.
        """
        last = None
        queue = self._waiting[call.tid] if call else deque()
        while call and queue and queue[0][0] <= call.start:
            _, comm = queue.popleft()
            if comm.node not in self.taken:
                last = comm
        return last


def _communicate(
    step: Step, kernel: DeviceOp, call: RuntimeCall | None, issuing: Issuing, comms: list[Communication]
) -> None:
    """Make the kernel the communication that launched it, or the one it says it is."""
    comm = issuing.around(step.item) or issuing.before(call)
    if comm is not None:
        issuing.taken.add(comm.node)
        step.kind, step.source, step.host = "comm", comm, comm.node
        return
    if issuing.explains(step.item):
        return  # another kernel of a call that has one
    comm = of_kernel(said(kernel.args), kernel.name)
    if comm is not None:
        comms.append(comm)
        step.kind, step.source = "comm", comm


def _explain(kernels: Sequence[Step]) -> list[Step]:
    """Find out why kernels started late: after a kernel of another stream, or else for no recorded reason.

    A stream that stood still until another stream's kernel ended had been told to wait for that (most traces do not
    say for what ``cudaStreamWaitEvent`` waits). What stays unexplained becomes steps of kind gap, which are returned.
    """
    by_end = sorted(kernels, key=lambda step: step.end)
    ends = [step.end for step in by_end]
    gaps = []
    for step in kernels:
        ready = max((wait.end for wait in step.waits), default=step.begin)
        if step.begin - ready < STALLED:
            continue
        at = bisect_right(ends, step.begin) - 1
        while at >= 0 and ends[at] > max(ready, step.begin - STALLED):
            if by_end[at].lane != step.lane and by_end[at].key < step.key:
                step.waits.append(by_end[at])
                break
            at -= 1
        else:
            gap = Step("gap", "gap", step.begin, step.key, step.lane, begin=ready, waits=list(step.waits))
            gap.source = step.source
            step.waits.append(gap)
            gaps.append(gap)
    return gaps


def _synchronise(threads: dict[int, Thread], streams: Streams, kernels: Sequence[Step]) -> None:
    """Let blocking calls wait for their own copy, or the last kernel of every stream they can have waited for."""
    copies = {step.source.correlation: step for step in kernels if isinstance(step.source, DeviceOp)}
    ends = {lane: [step.end for step in run] for lane, run in streams.steps.items()}
    for thread in threads.values():
        for step in thread.steps:
            if step.kind != "call" or step.item is None:
                continue
            if copy := copies.get(step.item.call):
                step.waits.append(copy)
                continue
            called = step.item.start
            before = {lane: found for lane in streams.steps if (found := streams.before(lane, called))}
            last = list(before.values())
            waited = [found for found in last if called < found.end <= step.end]
            for lane, found in before.items():
                if found.end > step.end:  # it waited for something before the last one
                    at = bisect_right(ends[lane], step.end) - 1
                    if at >= 0 and ends[lane][at] > called:
                        waited.append(streams.steps[lane][at])
            if "DeviceSynchronize" in step.name:
                waited += last
            if not waited and last:  # it returned at once; what was launched last is what it was for
                waited = [max(last, key=lambda found: found.key)]
            step.waits += waited
