"""Device streams: kernels in order, after their launch and after events of other streams; CPU calls that wait."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import NamedTuple

from armillary.convert.pytorch.communication import Communication, of_kernel
from armillary.convert.pytorch.communication_kernels import kernel_kind
from armillary.convert.pytorch.device import DeviceOp, RuntimeCall, StreamWait
from armillary.convert.pytorch.device_only import said
from armillary.convert.pytorch.launches import LATENCY, Launches
from armillary.convert.pytorch.segments import Item
from armillary.convert.pytorch.steps import ROUNDING, Step, Thread

Lane = tuple[int, int]
"""Device and stream as the trace numbers them."""

EARLY = 20_000
"""A kernel can begin so much (ns) before the one ahead of it on its stream ends, and still follow it.

Starts are rounded (1 ns on H100), and programmatic launches begin while the one before drains. What overlaps for
longer, or ends first, ran beside it: parts of a graph, or streams that ROCm's tracer writes as one.
"""
DRAIN, TAIL = 10, 500_000
"""A kernel found the device full if it waited DRAIN times as long as another one still ran when it began, TAIL ns at most.

In traces of V100 and A100, kernels of a second stream begin 70 to 220 us before the end of one that held the device for
5 to 20 ms, in the time in which its last blocks leave room.
"""


def blocks(call: RuntimeCall, kernel: DeviceOp | None) -> bool:
    """Whether a runtime call returned only when something on the device had ended."""
    if "ynchronize" in call.name:
        return True
    return kernel is not None and "emcpy" in call.name and call.start < kernel.end <= call.end


def is_communication(name: str) -> bool:
    """Whether a kernel communicates."""
    return kernel_kind(name) is not None


class Track:
    """Kernels of one stream that ran one after the other, in that order."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.steps: list[Step] = []
        self.ends: list[int] = []
        self._keys: list[int] = []

    def add(self, step: Step) -> None:
        """Append the next kernel; none ends before the one ahead of it."""
        self.steps.append(step)
        self.ends.append(step.end)

    def close(self) -> None:
        """Get ready for `before`: what is launched later is behind, whatever the clock of another thread says."""
        keys, least = [], None
        for step in reversed(self.steps):
            least = step.key if least is None else min(least, step.key)
            keys.append(least)
        self._keys = keys[::-1]

    def before(self, launched: int) -> Step | None:
        """Return the last kernel that was launched before a time."""
        at = bisect_left(self._keys, launched)
        return self.steps[at - 1] if at else None

    def running(self, time: int) -> Step | None:
        """Return the kernel that was at work at a time."""
        at = bisect_right(self.ends, time)
        found = self.steps[at] if at < len(self.steps) else None
        return found if found and found.begin < time else None

    def ended(self, time: int) -> Step | None:
        """Return the last kernel that had ended by a time."""
        at = bisect_right(self.ends, time)
        return self.steps[at - 1] if at else None


class Streams:
    """All streams of a rank: each one track, or several where kernels ran beside each other."""

    def __init__(self) -> None:
        self.of: dict[Lane, list[Track]] = defaultdict(list)
        self._taken: set[int] = set()

    def add(self, step: Step, kernel: DeviceOp) -> None:
        """Put a kernel behind those of its stream that had ended, or nearly, when it began; call in order of start."""
        tracks = self.of[kernel.device, kernel.stream]
        behind = [
            track
            for track in tracks
            if track.ends[-1] <= kernel.end and track.ends[-1] - kernel.start <= EARLY
        ]
        step.waits += [track.steps[-1] for track in behind]
        if behind:
            mine = max(behind, key=lambda track: (track.ends[-1], -track.number))
        else:
            mine = Track(self._number(kernel.stream))
            tracks.append(mine)
        step.lane = mine.number
        mine.add(step)

    def tracks(self, device: int | None = None) -> Iterable[Track]:
        """Return all tracks, or those of a device."""
        for lane, tracks in self.of.items():
            if device is None or lane[0] == device:
                yield from tracks

    def before(self, lane: Lane, launched: int) -> list[Step]:
        """Return the last kernels of a stream that were launched before a time."""
        found = (track.before(launched) for track in self.of.get(lane, ()))
        return [step for step in found if step]

    def _number(self, stream: int) -> int:
        """Return the number of a new track: its stream's, unless another device or track has that."""
        if stream < 0 or stream in self._taken:
            stream = max(self._taken, default=0) + 1
        self._taken.add(stream)
        return stream


def add_kernels(
    threads: dict[int, Thread],
    calls: dict[int, RuntimeCall],
    kernels: Sequence[DeviceOp],
    launches: Launches,
    full: Mapping[int, Lane],
    waits: Sequence[StreamWait],
    comms: list[Communication],
    heads: Mapping[int, Step],
) -> list[Step]:
    """Return a step for each kernel, and let blocking calls wait for those they waited for.

    Communication that only kernels tell of is added to `comms`; `heads` are the steps that issued the others, `full`
    the launches that waited for room in the queue of a stream.
    """
    streams = Streams()
    made = []
    for call, kernel in zip(launches, kernels, strict=True):
        launched = _launched(call, kernel)
        step = Step(kernel.name, "kernel", kernel.end, launched, kernel.stream, source=kernel)
        step.begin = kernel.start
        streams.add(step, kernel)
        _launch(step, threads, call, kernel)
        made.append(step)
    for track in streams.tracks():
        track.close()
    _communicate(made, kernels, launches, streams, comms, heads)
    _follow_events(made, kernels, streams, waits, calls)
    for step, kernel in zip(made, kernels, strict=True):
        mine = [wait for wait in step.waits if wait.source and wait.lane == step.lane]
        step.waits = [*mine, *(wait for wait in step.waits if wait.end <= kernel.start + ROUNDING)]
    unseen = _explain(made, kernels, launches, streams, threads)
    _synchronise(threads, streams, made, full, {wait.correlation: wait for wait in waits}, calls)
    return made + unseen


class _Told(NamedTuple):
    """A stream was told to wait for what another one had to do when an event was recorded."""

    told: int
    recorded: int
    on: int


def _follow_events(
    made: Sequence[Step],
    kernels: Sequence[DeviceOp],
    streams: Streams,
    waits: Sequence[StreamWait],
    calls: Mapping[int, RuntimeCall],
) -> None:
    """Let kernels wait for the events for which their streams were told to wait."""
    waiting = _stream_waits(waits, calls)
    for step, kernel in sorted(zip(made, kernels, strict=True), key=lambda pair: pair[0].key):
        # Each holds for the next kernel of the stream, and by the order of the stream for those after it.
        told = waiting.get(kernel.stream, [])
        while told and told[-1].told <= step.key:
            wait = told.pop()
            step.waits += streams.before((kernel.device, wait.on), wait.recorded)


def _stream_waits(
    waits: Sequence[StreamWait], calls: Mapping[int, RuntimeCall]
) -> dict[int, list[_Told]]:
    """Return for each stream what it was told to wait for, the last first."""
    found: dict[int, list[_Told]] = defaultdict(list)
    for wait in waits:
        told, recorded = calls.get(wait.correlation), calls.get(wait.on_correlation)
        if "Stream Wait" in wait.kind and told and recorded and wait.on_stream >= 0:
            found[wait.stream].append(_Told(told.start, recorded.start, wait.on_stream))
    return {stream: sorted(run, reverse=True) for stream, run in found.items()}


def _launched(call: RuntimeCall | None, kernel: DeviceOp) -> int:
    """Return when a kernel was launched: at the end of the call, unless that waited for the kernel."""
    if call is None:
        return kernel.start
    return call.start if blocks(call, kernel) else call.end


def _launch(step: Step, threads: dict[int, Thread], call: RuntimeCall | None, kernel: DeviceOp) -> None:
    """Let a kernel wait for the CPU step that launched it."""
    if call and (thread := threads.get(call.tid)):
        launched = min(step.key, kernel.start)  # a call can return late
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
    made: Sequence[Step],
    kernels: Sequence[DeviceOp],
    launches: Launches,
    streams: Streams,
    comms: list[Communication],
    heads: Mapping[int, Step],
) -> None:
    """Make kernels the communication that launched them, or the one they say they are; it follows earlier work."""
    issuing = Issuing(comms, heads)
    order = sorted(zip(made, kernels, launches, strict=True), key=lambda one: (one[0].key, one[1].start))
    for step, kernel, call in order:
        if not is_communication(kernel.name):
            continue
        step.communicates = True
        comm = issuing.around(step.item) or issuing.before(call)
        if comm is not None:
            issuing.taken.add(comm.node)
            step.kind, step.source, step.host = "comm", comm, comm.node
        else:
            comm = of_kernel(said(kernel.args), kernel.name)
            if comm is not None:
                comms.append(comm)
                step.kind, step.source = "comm", comm
        others = [track for track in streams.tracks(kernel.device) if track.number != step.lane]
        step.waits += [
            found for track in others if (found := track.before(step.key)) and found.kind == "kernel"
        ]


def _explain(
    made: Sequence[Step],
    kernels: Sequence[DeviceOp],
    launches: Launches,
    streams: Streams,
    threads: Mapping[int, Thread],
) -> list[Step]:
    """Find out why kernels started late: after a kernel of another stream or, of unknown launch, after the CPU.

    Returns steps for what graphs did that was not recorded.

    A stream that stood still until another stream's kernel ended had been told to wait for that (most traces do not
    say for what ``cudaStreamWaitEvent`` waits), or found the device full until that one drained.
    """
    by_end = sorted(made, key=lambda step: step.end)
    ends = [step.end for step in by_end]
    unseen: list[Step] = []
    late: list[tuple[Step, DeviceOp]] = []
    # A launch before the recording began has left its kernels only: those of a graph share a correlation.
    graphs = Counter(kernel.correlation for kernel in kernels if kernel.correlation > 0)
    for step, kernel, call in zip(made, kernels, launches, strict=True):
        ready = max((wait.end for wait in step.waits), default=kernel.start - 2 * LATENCY)
        if kernel.start - ready < LATENCY:
            continue
        at = bisect_right(ends, kernel.start) - 1
        while at >= 0 and ends[at] > max(ready, kernel.start - LATENCY):
            other = by_end[at]
            if other.lane != step.lane and other.key <= step.key:
                step.waits.append(other)
                break
            at -= 1
        else:
            full = [track.running(kernel.start) for track in streams.tracks(kernel.device)]
            drained = min(
                (other for other in full if other and other.lane != step.lane and other.key <= step.key),
                key=lambda other: other.end,
                default=None,
            )
            if drained and drained.end - kernel.start <= min((kernel.start - ready) // DRAIN, TAIL):
                step.waits.append(drained)
            elif "GraphLaunch" in call.name if call else graphs[kernel.correlation] > 1:
                unseen.append(_unseen(step, kernel, call, ready))
            elif call:
                late.append((step, kernel))
            else:
                before = [found for thread in threads.values() if (found := thread.before(kernel.start))]
                step.waits += [max(before, key=lambda found: found.end)] if before else []
    unseen.sort(key=lambda made: made.begin)
    for step, kernel in late:
        _split(unseen, step, kernel)
    return unseen


def _split(unseen: list[Step], step: Step, kernel: DeviceOp) -> None:
    """Let a kernel that began while a graph did something unrecorded wait for the part of that until then."""
    at = bisect_left(unseen, kernel.start, key=lambda made: made.begin) - 1
    whole = unseen[at] if at >= 0 else None
    if whole and kernel.start < whole.end and whole.lane != step.lane and whole.source.device == kernel.device:
        part = copy(whole)
        part.end = whole.begin = kernel.start
        whole.waits = [part]
        unseen.insert(at, part)
        step.waits.append(part)


def _unseen(step: Step, kernel: DeviceOp, call: RuntimeCall | None, ready: int) -> Step:
    """Return what a graph did on a stream before one of its kernels, while nothing was recorded.

    Profilers miss kernels of graphs, or all but a graph's copies and fills (CUPTI before 12, ROCm's tracers).
    """
    name = f"{call.name if call else 'graph'} (not recorded)"
    made = Step(name, "kernel", kernel.start, step.key, step.lane, waits=list(step.waits), begin=ready)
    made.item = step.item
    made.source = replace(kernel, name=name, start=ready, end=kernel.start, args={})
    step.waits.append(made)
    return made


def _synchronise(
    threads: Mapping[int, Thread],
    streams: Streams,
    kernels: Sequence[Step],
    full: Mapping[int, Lane],
    told: Mapping[int, StreamWait],
    calls: Mapping[int, RuntimeCall],
) -> None:
    """Let blocking calls wait for their own copy, or the last kernel of every stream they can have waited for."""
    copies = {step.source.correlation: step for step in kernels if isinstance(step.source, DeviceOp)}
    for thread in threads.values():
        for step in thread.steps:
            if step.kind != "call" or step.item is None:
                continue
            if step.item.call in full:
                done = (track.ended(step.end) for track in streams.of[full[step.item.call]])
                step.waits += [found for found in done if found and found.end > step.item.start]
            elif "ynchronize" not in step.item.name and (copy := copies.get(step.item.call)):
                step.waits.append(copy)
            else:
                step.waits += _waited(step, streams, told.get(step.item.call), calls)


def _waited(
    step: Step, streams: Streams, told: StreamWait | None, calls: Mapping[int, RuntimeCall]
) -> list[Step]:
    """Return the kernels for which a call waited: as Kineto says, or those that ended while it lasted."""
    assert step.item is not None
    called = step.item.start
    tracks = list(streams.tracks())
    if told and told.on_correlation in calls:
        recorded = calls[told.on_correlation].start
        tracks = [track for lane, run in streams.of.items() if lane[1] == told.on_stream for track in run]
        called = recorded
    elif told and "Stream" in told.kind and told.stream >= 0:
        tracks = [track for lane, run in streams.of.items() if lane[1] == told.stream for track in run]
    last = [found for track in tracks if (found := track.before(called))]
    whole = "DeviceSynchronize" in step.name or "CtxSynchronize" in step.name
    if whole or (told and len(tracks) == 1):
        return [found for found in last if found.end <= step.end + ROUNDING]
    waited = [found for found in last if step.item.start < found.end <= step.end + ROUNDING]
    for track in tracks:
        found = track.before(called)
        if found and found.end > step.end + ROUNDING:  # it waited for something before the last one
            earlier = track.ended(step.end)
            if earlier and earlier.end > step.item.start:
                waited.append(earlier)
    if not waited and last:  # it returned at once; what was launched last is what it was for
        waited = [found for found in [max(last, key=lambda found: found.key)] if found.end <= step.end]
    return waited
