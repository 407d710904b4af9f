"""Device streams: kernels in order, after their launch and events of other streams; blocking CPU calls."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from armillary.convert.pytorch.communication import RECV, SEND, Communication, of_kernel
from armillary.convert.pytorch.communication_kernels import UNSAID, kernel_kind
from armillary.convert.pytorch.device import DeviceOp, RuntimeCall, StreamWait
from armillary.convert.pytorch.device_only import said
from armillary.convert.pytorch.late_kernels import explain
from armillary.convert.pytorch.launches import Launches, launched_before
from armillary.convert.pytorch.segments import Item
from armillary.convert.pytorch.steps import ROUNDING, Step, Thread
from armillary.convert.pytorch.tracks import StreamKey, Streams


def blocks(call: RuntimeCall, kernel: DeviceOp | None) -> bool:
    """Whether a runtime call returned only when something on the device had ended."""
    if "ynchronize" in call.name:
        return True
    # A copy from or to pageable memory blocks its caller, which no name tells but the times do.
    return kernel is not None and "emcpy" in call.name and call.start < kernel.end <= call.end


def is_communication(name: str) -> bool:
    """Whether a kernel communicates."""
    return kernel_kind(name) is not None


def add_kernels(
    threads: dict[int, Thread],
    calls: dict[int, RuntimeCall],
    kernels: Sequence[DeviceOp],
    launches: Launches,
    full: Mapping[int, StreamKey],
    waits: Sequence[StreamWait],
    comms: list[Communication],
    heads: Mapping[int, Step],
) -> list[Step]:
    """Return a step for each kernel, and let blocking calls wait for their kernels.

    Communication that only kernels show is added to `comms`; `heads` are the steps that issued the others, `full` the
    launches that waited for room in the queue of a stream.
    """
    streams = Streams()
    made = []
    # In order of start, as `Streams.add` requires: every kernel after its launch and those ahead on its stream.
    for call, kernel in zip(launches, kernels, strict=True):
        launched = _launched(call, kernel)
        step = Step(kernel.name, "kernel", kernel.end, launched, kernel.stream, source=kernel)
        step.begin = kernel.start
        streams.add(step, kernel)
        _launch(step, threads, call, kernel)
        made.append(step)
    unlaunched = {id(step) for step, call in zip(made, launches, strict=True) if call is None}
    for track in streams.tracks():
        track.close()
        for step, latest in zip(track.steps, track.launched, strict=True):
            if id(step) in unlaunched:  # no later than what is behind it on its stream
                step.key = latest
    # Two upper bounds for an unknown launch: the kernel behind on the stream, and the numbers of calls.
    before = launched_before(calls)
    for step, kernel in zip(made, kernels, strict=True):
        if id(step) in unlaunched:
            step.key = min(step.key, before(kernel.correlation))
    _communicate(made, kernels, launches, streams, comms, heads)
    _follow_events(made, kernels, streams, waits, calls)
    for step, kernel in zip(made, kernels, strict=True):
        # What ended after the kernel began was not waited for; the kernel ahead on its stream may overlap
        # by `tracks.EARLY`.
        mine = [wait for wait in step.waits if wait.source and wait.track == step.track]
        step.waits = [*mine, *(wait for wait in step.waits if wait.end <= kernel.start + ROUNDING)]
    _end_waits(made, kernels, streams)
    # Last among the waits of kernels: only delays that the recorded reasons leave need another one.
    unseen = explain(made, kernels, launches, streams, threads)
    _synchronise(threads, streams, made, full, {wait.correlation: wait for wait in waits}, calls)
    return made + unseen


def _end_waits(made: Sequence[Step], kernels: Sequence[DeviceOp], streams: Streams) -> None:
    """Shorten waits that a device records as work of a stream (MTIA's ``event_wait``) to the time after their event."""
    for step, kernel in zip(made, kernels, strict=True):
        on = kernel.args.get("wait_on_stream")
        if type(on) is not int or on == kernel.stream:
            continue
        done = (track.ended(step.end) for track in streams.of.get((kernel.device, on), ()))
        awaited = [found for found in done if found]
        step.waits += awaited
        step.begin = max([step.begin, *(found.end for found in awaited)])


class _Told(NamedTuple):
    """A stream waits for the work that another one had been given when an event was recorded."""

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
    """Let kernels wait for the events that their streams wait for."""
    waiting = _stream_waits(waits, calls)
    for step, kernel in sorted(zip(made, kernels, strict=True), key=lambda pair: pair[0].key):
        # Each holds for the next kernel of the stream, and by the order of the stream for those after it.
        told = waiting.get(kernel.stream, [])
        while told and told[-1].told <= step.key:
            wait = told.pop()
            step.waits += streams.before((kernel.device, wait.on), wait.recorded)


def _stream_waits(waits: Sequence[StreamWait], calls: Mapping[int, RuntimeCall]) -> dict[int, list[_Told]]:
    """Return the event waits of each stream, the last first."""
    found: dict[int, list[_Told]] = defaultdict(list)
    for wait in waits:
        told, recorded = calls.get(wait.correlation), calls.get(wait.on_correlation)
        if "Stream Wait" in wait.kind and told and recorded and wait.on_stream >= 0:
            # Both are times of CPU calls: what counts is the order of issue, not when the device got there.
            found[wait.stream].append(_Told(told.start, recorded.start, wait.on_stream))
    return {stream: sorted(run, reverse=True) for stream, run in found.items()}


def _launched(call: RuntimeCall | None, kernel: DeviceOp) -> int:
    """Return when a kernel was launched: at the end of the call, or its start if the call waited for the kernel."""
    if call is None:
        return kernel.start
    return call.start if blocks(call, kernel) else call.end


def _launch(step: Step, threads: dict[int, Thread], call: RuntimeCall | None, kernel: DeviceOp) -> None:
    """Let a kernel wait for the CPU step that launched it."""
    if call and (thread := threads.get(call.tid)):
        launched = min(step.key, kernel.start)  # a call can return late
        launch = thread.launching(launched)
        # A kernel cannot wait for a step that ended after it began.
        if launch and launch.end > kernel.start:
            launch = thread.before(launched)
        if launch:
            step.waits.append(launch)
        if segment := thread.segment_at(call.start):
            step.item = segment.owner


_MESSAGES = ("ALL_TO_ALL", SEND, RECV)
"""What runs as NCCL's kernel of messages."""


class Issuing:
    """The communications that were issued and have no kernel yet."""

    def __init__(self, comms: Sequence[Communication], heads: Mapping[int, Step]) -> None:
        self.of = {comm.node: comm for comm in comms}
        self.taken: set[int] = set()
        self.grouped: set[int] = set()
        """Nodes of communications that one kernel, which another one has, carries, too."""
        self._waiting: dict[int, deque[tuple[int, Communication]]] = defaultdict(deque)
        self._by_kind: dict[str, deque[tuple[int, Communication]]] = defaultdict(deque)
        for comm in sorted(comms, key=lambda comm: heads[comm.node].end if comm.node in heads else 0):
            if head := heads.get(comm.node):
                # In order of issue, on the thread that also calls ``ncclGroupEnd``.
                self._waiting[head.track].append((head.end, comm))
                self._by_kind[comm.kind].append((head.end, comm))

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
        """Return the last of the communications without a kernel that the launching thread issued before this launch.

        ``ncclGroupEnd`` launches one kernel for all messages or coalesced collectives of a group.
        """
        last = None
        queue = self._waiting[call.tid] if call else deque()
        while call and queue and queue[0][0] <= call.start:
            _, comm = queue.popleft()
            if comm.node not in self.taken:
                self.grouped.add(comm.node)
                last = comm
        return last

    def in_order(self, kind: str, start: int) -> Communication | None:
        """Return the first communication of a kind without a kernel, if it was issued before this start.

        For kernels of which nothing says who launched them: a stream runs its communications in the order of issue.
        """
        queues = [self._by_kind[each] for each in (_MESSAGES if kind == UNSAID else (kind,))]
        for queue in queues:
            while queue and (queue[0][1].node in self.taken or queue[0][1].node in self.grouped):
                queue.popleft()
        first = min((queue for queue in queues if queue), key=lambda queue: queue[0][0], default=None)
        return first.popleft()[1] if first and first[0][0] <= start else None


def _communicate(
    made: Sequence[Step],
    kernels: Sequence[DeviceOp],
    launches: Launches,
    streams: Streams,
    comms: list[Communication],
    heads: Mapping[int, Step],
) -> None:
    """Make kernels the communication that launched them, or that their attributes give; let it follow earlier work."""
    issuing = Issuing(comms, heads)
    unlaunched: list[tuple[Step, DeviceOp]] = []
    # By launch: communications are issued in that order, whichever stream runs first.
    order = sorted(zip(made, kernels, launches, strict=True), key=lambda one: (one[0].key, one[1].start))
    for step, kernel, call in order:
        if not is_communication(kernel.name):
            continue
        step.communicates = "kernel"
        # The issuing operator is around the launch or, for a group, before it. A further kernel of the same
        # call stays compute; without any operator, the kernel is all that is known of its communication.
        comm = issuing.around(step.item) or issuing.before(call)
        if comm is not None:
            issuing.taken.add(comm.node)
            step.kind, step.source, step.host = "comm", comm, comm.node
        elif issuing.explains(step.item):
            step.communicates = "further kernel"
        else:
            unlaunched.append((step, kernel))
        # NCCL's stream waits for the caller's by an event that most traces lack. Which stream that was is
        # unknown, so it waits for all: times drop those that ended later.
        others = [track for track in streams.tracks(kernel.device) if track.number != step.track]
        step.waits += [
            found for track in others if (found := track.before(step.key)) and found.kind == "kernel"
        ]
    # Last, as the kernels with a launch have taken their communications.
    for step, kernel in sorted(unlaunched, key=lambda one: one[1].start):
        kind = kernel_kind(kernel.name)
        comm = issuing.in_order(kind, kernel.start) if kind else None
        if comm is not None:
            issuing.taken.add(comm.node)
            step.kind, step.source, step.host = "comm", comm, comm.node
            if (head := heads[comm.node]).end <= kernel.start:
                step.waits.append(head)
        elif (comm := of_kernel(said(kernel.args), kernel.name)) is not None:
            comms.append(comm)
            step.kind, step.source = "comm", comm


def _synchronise(
    threads: Mapping[int, Thread],
    streams: Streams,
    kernels: Sequence[Step],
    full: Mapping[int, StreamKey],
    told: Mapping[int, StreamWait],
    calls: Mapping[int, RuntimeCall],
) -> None:
    """Let blocking calls wait for their own copy, or for the last kernel of every stream they may have waited for."""
    copies = {step.source.correlation: step for step in kernels if isinstance(step.source, DeviceOp)}
    for thread in threads.values():
        for step in thread.steps:
            if step.kind != "call" or step.item is None:
                continue
            # Room in the queue appears whenever a kernel ends, so any end during the call may be the one.
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
    """Return the kernels that a call waited for: by Kineto's record, or those that ended during the call."""
    assert step.item is not None
    called = step.item.start
    tracks = list(streams.tracks())
    # An event wait covers work up to the record of the event; a stream wait all work of the stream up to the call.
    if told and told.on_correlation in calls:
        recorded = calls[told.on_correlation].start
        tracks = [track for stream, run in streams.of.items() if stream[1] == told.on_stream for track in run]
        called = recorded
    elif told and "Stream" in told.kind and told.stream >= 0:
        tracks = [track for stream, run in streams.of.items() if stream[1] == told.stream for track in run]
    last = [found for track in tracks if (found := track.before(called))]
    done = [
        found if found.end <= step.end else track.ended(step.end)  # a device's clock can be late
        for track in tracks
        if (found := track.before(called))
    ]
    if "DeviceSynchronize" in step.name or "CtxSynchronize" in step.name or (told and len(tracks) == 1):
        return [found for found in done if found]
    waited = [found for found in done if found and found.end > step.item.start]
    if not waited and last:  # it returned at once; what was launched last is what it was for
        waited = [found for found in [max(last, key=lambda found: found.key)] if found.end <= step.end]
    return waited
