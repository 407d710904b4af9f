"""Why kernels started later than their launch and their stream explain."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace

from armillary.convert.pytorch.device import DeviceOp, RuntimeCall
from armillary.convert.pytorch.launches import LATENCY, Launches
from armillary.convert.pytorch.steps import Step, Thread
from armillary.convert.pytorch.tracks import Streams

FULL, DRAIN, TAIL = 300_000, 10, 500_000
"""A kernel found the device full if it waited FULL ns, and DRAIN times what another one still ran, at most TAIL ns.

In traces of V100 and A100, kernels of a second stream begin 10 to 220 us before the end of one that held the device for
0.4 to 41 ms, in the time in which its last blocks leave room.
"""


def explain(
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
            waited = kernel.start - ready
            if drained and waited >= FULL and drained.end - kernel.start <= min(waited // DRAIN, TAIL):
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
    if whole and kernel.start < whole.end and whole.lane != step.lane and _device(whole) == kernel.device:
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


def _device(step: Step) -> int:
    return step.source.device if isinstance(step.source, DeviceOp) else -1
