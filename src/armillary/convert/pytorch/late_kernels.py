"""Why kernels started later than their launch and their stream explain."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import pairwise
from math import prod
from statistics import median
from typing import Any

from armillary.convert.pytorch.device import DeviceOp, RuntimeCall
from armillary.convert.pytorch.launches import LATENCY, Launches
from armillary.convert.pytorch.steps import ROUNDING, Step, Thread
from armillary.convert.pytorch.tracks import Streams

DRAIN = 10
"""A kernel waited for one that drains only if it waited so many times what that one has left.

That it began in so short a time by chance is then one in ten. The choice matters little: with 2 to 40, and 2 to 8 waves
(see `occupancy`), kernels of half the time make HTA's trace_diff/test 40.1 to 40.6 % faster.
"""
_HANDOVERS = 16
"""A device on which so many programs followed one of another stream, and none ran beside one, runs one at a time."""
_BESIDE = ("Memcpy", "Memset", "dma_", "event_")
"""Copies, fills and events of CUDA, ROCm and MTIA, for which devices have engines of their own."""


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
    say for what ``cudaStreamWaitEvent`` waits), or found the device taken until that one was through or drained.
    """
    by_end = sorted(made, key=lambda step: step.end)
    ends = [step.end for step in by_end]
    ahead = _one_at_a_time(made)
    unseen: list[Step] = []
    late: list[tuple[Step, DeviceOp]] = []
    # A launch before the recording began has left its kernels only: those of a graph share a correlation.
    graphs = Counter(kernel.correlation for kernel in kernels if kernel.correlation > 0)
    for step, kernel, call in zip(made, kernels, launches, strict=True):
        ready = max((wait.end for wait in step.waits), default=kernel.start - 2 * LATENCY)
        if kernel.start - ready < LATENCY:
            continue
        before = ahead.get(id(step))
        if before is not None and before.end > ready:
            step.waits.append(before)
            continue
        at = bisect_right(ends, kernel.start) - 1
        while at >= 0 and ends[at] > max(ready, kernel.start - LATENCY):
            other = by_end[at]
            if other.track != step.track and other.key <= step.key:
                step.waits.append(other)
                break
            at -= 1
        else:
            drained = _drained(step, kernel, ready, streams)
            if drained:
                step.waits.append(drained)
            elif "GraphLaunch" in call.name if call else graphs[kernel.correlation] > 1:
                unseen.append(_unseen(step, kernel, call, ready))
            elif call:
                late.append((step, kernel))
            else:
                worked = [found for thread in threads.values() if (found := thread.before(kernel.start))]
                if not worked:  # no thread was recorded by then: whoever worked last on the device
                    worked = by_end[max(bisect_right(ends, kernel.start) - 1, 0) :][:1]
                last = max(worked, key=lambda found: found.end)
                if last is not step and last.end <= kernel.start:
                    step.waits.append(last)
    unseen.sort(key=lambda made: made.begin)
    for step, kernel in late:
        _split(unseen, step, kernel)
    return unseen


def _one_at_a_time(made: Sequence[Step]) -> dict[int, Step]:
    """Return for kernels of devices that run one program at a time, whatever its stream, the program before.

    Accelerators such as MTIA do; all their recorded programs of all streams follow each other. What begins more than
    twice the median handover later had another reason.
    """
    found: dict[int, Step] = {}
    for device in {_device(step) for step in made}:
        run = [step for step in made if _device(step) == device and not step.name.startswith(_BESIDE)]
        run.sort(key=lambda step: (step.begin, step.end))
        handed = [(one, two) for one, two in pairwise(run) if one.track != two.track]
        if len(handed) < _HANDOVERS or any(two.begin < one.end for one, two in pairwise(run)):
            continue
        usual = 2 * median(two.begin - one.end for one, two in handed)
        found |= {id(two): one for one, two in handed if two.begin - one.end <= usual}
    return found


def _drained(step: Step, kernel: DeviceOp, ready: int, streams: Streams) -> Step | None:
    """Return the kernel of another stream that kept the device full until `step` began; None without one.

    The blocks of a kernel that has more than the device holds at once leave room only when the last of them have
    begun; what comes to a full device begins while those drain. One that was launched later is none to wait for: with
    other times it would come later.
    """
    drained = None
    for track in streams.tracks(kernel.device):
        other = track.running(kernel.start)
        if other is None or other is step or other.key > step.key or not isinstance(other.source, DeviceOp):
            continue
        left = other.end - kernel.start
        if left <= min(tail(other.source), (kernel.start - ready) // DRAIN) and (
            drained is None or other.end < drained.end
        ):
            drained = other
    return drained


def _split(unseen: list[Step], step: Step, kernel: DeviceOp) -> None:
    """Let a kernel that began while a graph did something unrecorded wait for the part of that until then."""
    at = bisect_left(unseen, kernel.start, key=lambda made: made.begin) - 1
    whole = unseen[at] if at >= 0 else None
    if whole and kernel.start < whole.end and whole.track != step.track and _device(whole) == kernel.device:
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
    made = Step(name, "kernel", kernel.start, step.key, step.track, waits=list(step.waits), begin=ready)
    made.item = step.item
    made.source = replace(kernel, name=name, start=ready, end=kernel.start, args={})
    step.waits.append(made)
    return made


def _device(step: Step) -> int:
    return step.source.device if isinstance(step.source, DeviceOp) else -1


THREADS, REGISTERS = 2048, 65_536
"""What one multiprocessor holds at once (CUDA C++ Programming Guide, compute capabilities 5.0 to 10.0).

Some hold 1,024 or 1,536 threads only: there a kernel is taken to fill less of the device than it does.
"""
WAVES = 3
"""How many waves of blocks a kernel that fills the device has left at the most when others find room beside it.

Blocks take different times, and the last ones drain. In the V100 traces of HTA's trace_diff, 83 and 92 % of the kernels
that waited for 300 us or more begin within 3 waves of the end of such a kernel; by chance 19 and 8 % would.
"""
UNKNOWN = 10
"""A kernel of unknown size, such as a copy within the device, leaves room in its last tenth at the most."""


def waves(args: dict[str, Any]) -> float:
    """Return how often a kernel fills the device with blocks, from what Kineto says of it; 0 where it does not say."""
    blocks, block, registers = args.get("blocks per SM"), args.get("block"), args.get("registers per thread")
    if not isinstance(blocks, (int, float)) or not isinstance(block, list) or not block:
        return 0.0
    if not all(type(side) is int and side > 0 for side in block):
        return 0.0
    threads = prod(block)
    held = THREADS // threads
    if type(registers) is int and registers > 0:
        held = min(held, REGISTERS // (registers * threads))
    return float(blocks) / max(held, 1)


def tail(kernel: DeviceOp) -> int:
    """Return how long before its end (ns) a kernel begins to leave room; 0 for one that never fills the device.

    It has room for others once its last blocks have begun.
    """
    length = kernel.end - kernel.start
    if "blocks per SM" not in kernel.args:
        return length // UNKNOWN
    full = waves(kernel.args)
    return int(WAVES * length / full) + 2 * ROUNDING if full >= 1 else 0
