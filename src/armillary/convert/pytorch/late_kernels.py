"""Finds reasons why kernels started later than their launch and their stream account for."""

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
"""A kernel waited for a draining one only if it waited at least this many times what that one has left.

The chance of a start in so short a time by accident is then one in ten. The choice matters little: with 2 to 40, and
with 2 to 8 `WAVES`, halving all kernels makes HTA's trace_diff/test 40.1 to 40.6 % faster.
"""
_HANDOVERS = 16
"""A device runs one program at a time if this many followed one of another stream and none overlapped."""
_BESIDE = ("Memcpy", "Memset", "dma_", "event_")
"""Copies, fills and events of CUDA, ROCm and MTIA, for which devices have engines of their own."""


def explain(
    made: Sequence[Step],
    kernels: Sequence[DeviceOp],
    launches: Launches,
    streams: Streams,
    threads: Mapping[int, Thread],
) -> list[Step]:
    """Let kernels that started late wait for another stream's kernel or, if their launch is unknown, for the CPU.

    Returns steps for unrecorded work of graphs.

    A stream that stood still until another stream's kernel ended either waited for it by ``cudaStreamWaitEvent``
    (most traces do not record the event), or found the device occupied until that kernel ended or drained.
    """
    by_end = sorted(made, key=lambda step: step.end)
    ends = [step.end for step in by_end]
    ahead = _one_at_a_time(made)
    unseen: list[Step] = []
    late: list[tuple[Step, DeviceOp]] = []
    # A launch before the recording began has left its kernels only: those of a graph share a correlation.
    graphs = Counter(kernel.correlation for kernel in kernels if kernel.correlation > 0)
    for step, kernel, call in zip(made, kernels, launches, strict=True):
        # Without any known wait the kernel counts as late, so that a reason is looked for.
        ready = max((wait.end for wait in step.waits), default=kernel.start - 2 * LATENCY)
        if kernel.start - ready < LATENCY:
            continue
        # The reasons are tried from certain to guessed: the device's only program, an end just before the
        # start, a draining kernel, a graph, and at last the CPU.
        before = ahead.get(id(step))
        if before is not None and before.end > ready:
            step.waits.append(before)
            continue
        at = bisect_right(ends, kernel.start) - 1
        # Only an end within LATENCY before the start can be its cause. A kernel that was launched later
        # cannot: it would come later still on another machine.
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
                # Whether a graph's unrecorded work held it up shows once all of that is known.
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
    """Return the preceding program by the id of a step, on devices that run one program at a time across streams.

    Accelerators such as MTIA do: their recorded programs never overlap. A program that begins later than twice the
    median handover had another reason.
    """
    found: dict[int, Step] = {}
    for device in {_device(step) for step in made}:
        run = [step for step in made if _device(step) == device and not step.name.startswith(_BESIDE)]
        run.sort(key=lambda step: (step.begin, step.end))
        handed = [(one, two) for one, two in pairwise(run) if one.track != two.track]
        if len(handed) < _HANDOVERS or any(two.begin < one.end for one, two in pairwise(run)):
            continue
        # The pause between programs differs by device, so it is measured on the trace itself.
        usual = 2 * median(two.begin - one.end for one, two in handed)
        found |= {id(two): one for one, two in handed if two.begin - one.end <= usual}
    return found


def _drained(step: Step, kernel: DeviceOp, ready: int, streams: Streams) -> Step | None:
    """Return the kernel of another stream that kept the device full until `step` began, or None.

    A kernel with more blocks than the device holds leaves room only once its last blocks have begun; a kernel that
    meets a full device begins while these drain. A kernel that was launched later is not waited for: with other times
    it would come later.
    """
    drained = None
    for track in streams.tracks(kernel.device):
        other = track.running(kernel.start)
        if other is None or other is step or other.key > step.key or not isinstance(other.source, DeviceOp):
            continue
        left = other.end - kernel.start
        # Of several that drain, the one that ends first made the room.
        if left <= min(tail(other.source), (kernel.start - ready) // DRAIN) and (
            drained is None or other.end < drained.end
        ):
            drained = other
    return drained


def _split(unseen: list[Step], step: Step, kernel: DeviceOp) -> None:
    """Let a kernel that began during unrecorded work of a graph wait for the part of it before that time."""
    at = bisect_left(unseen, kernel.start, key=lambda made: made.begin) - 1
    whole = unseen[at] if at >= 0 else None
    if whole and kernel.start < whole.end and whole.track != step.track and _device(whole) == kernel.device:
        # One step cannot both hold up the kernel and go on beside it, so it is cut in two at the kernel's start.
        part = copy(whole)
        part.end = whole.begin = kernel.start
        whole.waits = [part]
        unseen.insert(at, part)
        step.waits.append(part)


def _unseen(step: Step, kernel: DeviceOp, call: RuntimeCall | None, ready: int) -> Step:
    """Return a step for the unrecorded work of a graph on a stream before one of its kernels.

    Profilers miss some kernels of graphs, or all but a graph's copies and fills (CUPTI before 12, ROCm's tracers).
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
"""A kernel that fills the device has at most this many waves of blocks left when others find room beside it.

Blocks take different times, and the last ones drain. In the V100 traces of HTA's trace_diff, 83 and 92 % of the kernels
that waited for 300 us or more begin within 3 waves of the end of such a kernel; by chance 19 and 8 % would.
"""
UNKNOWN = 10
"""A kernel of unknown size, such as a copy within the device, leaves room in its last tenth at most."""


def waves(args: dict[str, Any]) -> float:
    """Return how many times the blocks of a kernel fill the device, by Kineto's attributes; 0 without these."""
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
    """Return how long before its end (ns) a kernel begins to leave room; 0 if it never fills the device.

    It leaves room once its last blocks have begun.
    """
    length = kernel.end - kernel.start
    if "blocks per SM" not in kernel.args:
        return length // UNKNOWN
    full = waves(kernel.args)
    return int(WAVES * length / full) + 2 * ROUNDING if full >= 1 else 0
