"""Unrecorded time of a thread: its own code, or a wait whose reason is not in the trace.

A wait ends when its cause ends. So from the last recorded end of anything else until the thread continues, it did not
wait for anything recorded: it ran Python, freed memory, or did I/O. A replay needs that time on any device.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from armillary.convert.pytorch.device import DeviceTrace
from armillary.convert.pytorch.steps import WAKING, Step

HELD = 0.05
"""A file was cut if it holds smaller shares of the numbers of operators, and of runtime calls, than this.

Profilers number both as they begin. The shared traces as profilers wrote them hold 35 to 100 % of the numbers between
the first and the last operator, as other events are numbered too, and 3 to 100 % of those of calls; traces that were
cut by hand hold 0 to 1.4 % and 0.5 %.
"""


def operators_held(device: DeviceTrace) -> tuple[int, int]:
    """Return how many operators a trace has, and how many ran from its first to its last, by their numbers.

    The numbers are ids of RecordFunction or Kineto's External ids, whichever leave fewer out; (0, 0) without any.
    """
    return max(
        (_held(op.rf_id for op in device.ops), _held(op.external for op in device.ops)),
        key=lambda found: found[0] / max(found[1], 1),
    )


def was_cut(device: DeviceTrace) -> bool:
    """Whether a file lacks most of its recording."""
    few = [
        held < HELD * there
        for held, there in (operators_held(device), _held(call.correlation for call in device.calls))
        if there
    ]
    # Both kinds must lack numbers: 3 % of the calls alone are what some profilers keep. A file of the host has one.
    return bool(few) and all(few)


def _held(numbers: Iterable[int]) -> tuple[int, int]:
    known = {number for number in numbers if number > 0}
    return (len(known), max(known) - min(known) + 1) if len(known) > 1 else (0, 0)


def own_time(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with each gap of a thread cut where its last wait can have ended: the rest has kind ``host``."""
    # What took no time of its own ended with what it waited for, or is what the thread goes on with.
    ends = sorted(step.end for step in steps if step.kind != "gap" and step.end > step.begin)
    result: list[Step] = []
    for step in steps:
        if step.kind == "gap":
            # The last end of anything before the thread went on: up to here it may have waited.
            at = bisect_right(ends, step.end) - 1
            last = max(ends[at], step.begin) if at >= 0 else step.begin
            if last == step.begin or step.end - last > WAKING:  # else it may have woken up after that end
                if last > step.begin:
                    gap = Step("gap", "gap", last, step.key, step.track, waits=step.waits, begin=step.begin)
                    step.waits, step.begin, step.key = [gap], last, last
                    result.append(gap)
                # Nothing recorded ended in this time, so the thread did not wait: it takes as long on any device.
                step.name = step.kind = "host"
        result.append(step)
    return result
