"""Device streams: kernels in order, after their launch and after events of other streams; CPU calls that wait."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence

from armillary.convert.pytorch.communication import Communication
from armillary.convert.pytorch.device import DeviceOp, RuntimeCall, StreamWait
from armillary.convert.pytorch.host import HostTrace
from armillary.convert.pytorch.steps import Step, Thread

Lane = tuple[int, int]


def blocks(call: RuntimeCall, kernel: DeviceOp | None) -> bool:
    """Whether a runtime call returned only when something on the device had ended."""
    if "ynchronize" in call.name:
        return True
    return kernel is not None and "emcpy" in call.name and call.start < kernel.end <= call.end


def is_communication(name: str) -> bool:
    """Whether a kernel is one of NCCL, RCCL or HCCL."""
    return name.lower().startswith(("nccl", "rccl", "hccl", "mscclkernel", "void nccl"))


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
    comms: Sequence[Communication],
    host: HostTrace,
) -> list[Step]:
    """Return a step for each kernel, and let blocking calls wait for those they waited for."""
    streams = Streams()
    comm_of = {comm.node: comm for comm in comms}
    waiting = _stream_waits(waits, calls)
    taken: set[int] = set()
    made = []
    for kernel in sorted(kernels, key=lambda kernel: (calls[kernel.correlation].end, kernel.start)):
        call = calls[kernel.correlation]
        lane = (kernel.device, kernel.stream)
        step = Step(kernel.name, "kernel", kernel.end, call.end, kernel.stream, source=kernel)
        step.begin = kernel.start
        if thread := threads.get(call.tid):
            launch = thread.launching(call.end)
            if launch and launch.end > kernel.start:
                launch = thread.before(call.end)
            if launch:
                step.waits.append(launch)
            if segment := thread.segment_at(call.start):
                step.item = segment.owner
        if previous := streams.before(lane, call.end + 1):
            step.waits.append(previous)
        communicates = is_communication(kernel.name)
        if communicates:
            _communicate(step, comm_of, host, taken)
            others = [other for other in streams.steps if other[0] == lane[0] and other != lane]
            step.waits += [
                s for other in others if (s := streams.before(other, call.end)) and s.kind == "kernel"
            ]
        for on, recorded in waiting.get(lane[1], ()):
            if recorded[1] <= call.start and (found := streams.before((lane[0], on), recorded[0])):
                step.waits.append(found)
        step.waits = [w for w in step.waits if w.end <= kernel.start]
        streams.add(lane, step)
        made.append(step)
    _synchronise(threads, streams)
    return made


def _stream_waits(
    waits: Sequence[StreamWait], calls: dict[int, RuntimeCall]
) -> dict[int, list[tuple[int, tuple[int, int]]]]:
    """Return for each stream the (stream, (time recorded, time of the wait)) it was told to wait for."""
    found: dict[int, list[tuple[int, tuple[int, int]]]] = defaultdict(list)
    for wait in waits:
        told, recorded = calls.get(wait.correlation), calls.get(wait.on_correlation)
        if "Stream Wait" in wait.kind and told and recorded and wait.on_stream >= 0:
            found[wait.stream].append((wait.on_stream, (recorded.start, told.start)))
    return found


def _communicate(step: Step, comm_of: dict[int, Communication], host: HostTrace, taken: set[int]) -> None:
    """Make the kernel the communication that its launcher, or an operator around it, is."""
    item = step.item
    while item is not None:
        comm = comm_of.get(item.host)
        if comm is not None and comm.node not in taken:
            taken.add(comm.node)
            step.kind, step.source, step.host = "comm", comm, comm.node
            return
        item = item.above


def _synchronise(threads: dict[int, Thread], streams: Streams) -> None:
    """Let blocking calls wait for the last kernel of every stream they can have waited for."""
    ends = {lane: [step.end for step in run] for lane, run in streams.steps.items()}
    for thread in threads.values():
        for step in thread.steps:
            if step.kind != "call" or step.item is None:
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
