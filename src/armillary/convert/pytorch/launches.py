"""Which runtime call launched each kernel: by correlation, by the operator around it, or, for graphs, by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise

from armillary.convert.pytorch.device import CpuOp, DeviceOp, DeviceTrace, RuntimeCall

LATENCY = 20_000
"""Most time (ns) from a launch, an event or the kernel ahead to the start of a kernel that nothing else delays.

Idle streams in traces of V100, 2080 Ti, A100, H100 and MI250 take 0.3 to 8.2 us after the launch call (99 %), and 1 to
14 us between two kernels.
"""
SKEW = 10_000_000
"""A kernel that starts this much (ns) before its launch call has another launch; less is clock skew."""

PENDING, LONG = 800, 100_000
"""A launch longer than LONG ns on a stream with at least PENDING unfinished kernels waits until one of them ends.

On V100 and A100, streams of the shared traces with up to 800 unfinished kernels accept a launch within 40 us, those
with 900 to 1,200 take up to 7 ms.
"""

_ASCENDING = 0.9
"""Calls are numbered in time if this share begins after the call numbered before; threads can overtake."""
_NEVER = 1 << 62

Launches = list[RuntimeCall | None]
"""For every kernel the call that launched it; None if unknown."""


def launches(device: DeviceTrace, calls: Mapping[int, RuntimeCall], kernels: Sequence[DeviceOp]) -> Launches:
    """Return the launch of each of `kernels`, which are in order of start.

    The kernels of a graph share the correlation of the call that launched the graph. A kernel whose correlation no call
    has was launched inside the operator of its external id. The rest (RCCL's kernels in many ROCm traces, graphs in old
    ones) has only its time: if its stream was idle before, take the last earlier launch call that launched nothing
    else, such as a graph's; if not, the order of its stream says when it ran.
    """
    operators = _by_external(device.ops)
    used = {kernel.correlation for kernel in kernels}
    spare = [call for call in device.calls if _launches(call.name) and call.correlation not in used]
    starts = [call.start for call in spare]
    # Until when each stream was busy.
    reached: dict[tuple[int, int], int] = {}
    found: Launches = []
    for kernel in kernels:
        stream = (kernel.device, kernel.stream)
        call = calls.get(kernel.correlation)
        if call is not None and call.start - kernel.start > SKEW:
            call = None
        if call is None and (op := operators.get(kernel.external)) is not None and op.start < kernel.end:
            # Take the operator for the call. It launched the kernel before that began, whenever the operator ended.
            call = RuntimeCall(op.name, op.start, min(op.end, max(kernel.start, op.start)), op.tid, 0, 0)
        if call is None and kernel.start - reached.get(stream, -LATENCY) >= LATENCY:
            at = bisect_right(starts, kernel.start) - 1
            call = spare[at] if at >= 0 else None
        found.append(call)
        reached[stream] = max(reached.get(stream, kernel.end), kernel.end)
    return found


def unrecorded(device: DeviceTrace) -> list[str]:
    """Return what the file does not have of its kernels, a sentence each.

    In recordings of V100, A100, H100 and MI250 every launch has its kernel, apart from kernels and calls whose numbers
    do not meet (see `launches`), which here count as one.
    """
    found, calls = [], {call.correlation for call in device.calls}
    if device.untimed:
        found.append(
            f"{device.untimed:,} of {len(device.kernels):,} device activities have no dur and take no time"
        )
    used = {kernel.correlation for kernel in device.kernels}
    launched = [call for call in device.calls if _launches(call.name)]
    lost = sum(call.correlation not in used for call in launched)
    lost -= sum(kernel.correlation not in calls for kernel in device.kernels)
    # Without any kernel the file is of the host alone.
    if lost > 0 and device.kernels:
        found.append(
            f"{lost:,} of {len(launched):,} launches have no kernel in the file, which was cut or ended too early: "
            "their work takes no time"
        )
    return found


def full_queues(kernels: Sequence[DeviceOp], found: Launches) -> dict[int, tuple[int, int]]:
    """Return (device, stream) by correlation for the launch calls that waited for room in the queue of a stream."""
    runs: dict[tuple[int, int], list[tuple[DeviceOp, RuntimeCall | None]]] = {}
    for kernel, call in zip(kernels, found, strict=True):
        runs.setdefault((kernel.device, kernel.stream), []).append((kernel, call))
    full: dict[int, tuple[int, int]] = {}
    for stream, run in runs.items():
        ends = sorted(kernel.end for kernel, _ in run)
        for at, (_, call) in enumerate(run):
            # A graph of thousands of kernels takes milliseconds to launch, with any queue.
            if not call or not call.correlation or "Graph" in call.name or call.end - call.start <= LONG:
                continue
            # Launched before this one (streams are first in, first out) less those that had ended by then.
            if at - bisect_right(ends, call.start) >= PENDING:
                full[call.correlation] = stream
    return full


def launched_before(calls: Mapping[int, RuntimeCall]) -> Callable[[int], int]:
    """Return a function from a correlation without a recorded call to the latest launch time of its kernel, ns.

    CUPTI and roctracer number calls as they begin, so the launch was before any recorded call of a greater number. If
    numbers do not grow with time, there is no bound.
    """
    numbers = sorted(calls)
    starts = [calls[number].start for number in numbers]
    if sum(one <= two for one, two in pairwise(starts)) < _ASCENDING * (len(starts) - 1):
        return lambda _: _NEVER
    # Suffix minima: the earliest start of all calls from a number on.
    earliest = list(accumulate(reversed(starts), min))[::-1]

    def before(correlation: int) -> int:
        at = bisect_right(numbers, correlation)
        return earliest[at] if correlation > 0 and at < len(numbers) else _NEVER

    return before


def _launches(name: str) -> bool:
    return "Launch" in name and "Callback" not in name


def _by_external(ops: Sequence[CpuOp]) -> dict[int, CpuOp]:
    """Return the operators by external id, for the ids that only one operator has."""
    found: dict[int, CpuOp] = {}
    twice: set[int] = set()
    for op in ops:
        if op.external > 0 and not op.is_annotation and found.setdefault(op.external, op) is not op:
            twice.add(op.external)
    return {external: op for external, op in found.items() if external not in twice}
