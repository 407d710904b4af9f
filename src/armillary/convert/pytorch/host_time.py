"""Time of a thread between what is recorded of it: its own code, or a wait for a reason that the trace does not hold.

A wait ends when what it is for ends. From the last end of anything else on, until the thread goes on, it waited for
nothing that was recorded: it ran Python, freed memory, or talked to the world. A replay needs that time on any device.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from armillary.convert.pytorch.device import DeviceTrace
from armillary.convert.pytorch.steps import ROUNDING, Step
from armillary.convert.pytorch.workers import WAKING

HELD = 0.05
"""A file with a smaller share of the operators between its first and its last number was cut.

Profilers number operators as they begin. Their files among the shared traces hold 35 to 100 % of the numbers, as other
events are numbered too; those that were cut by hand 0 to 1.4 %.
"""


def operators_held(device: DeviceTrace) -> tuple[int, int]:
    """Return how many operators a trace has, and how many there were from its first to its last, by their numbers.

    The numbers are ids of RecordFunction or Kineto's External ids, whichever leave fewer out; (0, 0) without any.
    """
    found = (0, 0)
    for numbers in ({op.rf_id for op in device.ops}, {op.external for op in device.ops}):
        known = [number for number in numbers if number > 0]
        if len(known) > 1:
            there = max(known) - min(known) + 1
            if not found[1] or len(known) * found[1] > found[0] * there:
                found = len(known), there
    return found


def was_cut(device: DeviceTrace) -> bool:
    """Whether most operators of a recording are missing from its file."""
    held, there = operators_held(device)
    return held < HELD * there


def own_time(steps: Sequence[Step]) -> list[Step]:
    """Return the steps, gaps of threads cut where the last wait can have ended: what follows is kind ``host``."""
    ends = sorted(step.end for step in steps if step.kind != "gap")
    result: list[Step] = []
    for step in steps:
        if step.kind == "gap":
            at = bisect_right(ends, step.end + ROUNDING) - 1
            last = max(ends[at], step.begin) if at >= 0 else step.begin
            if step.end - last > WAKING:
                if last > step.begin:
                    gap = Step("gap", "gap", last, step.key, step.lane, waits=step.waits, begin=step.begin)
                    step.waits, step.begin, step.key = [gap], last, last
                    result.append(gap)
                step.name = step.kind = "host"
        result.append(step)
    return result
