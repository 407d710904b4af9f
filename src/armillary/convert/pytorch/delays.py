"""Time that nothing recorded accounts for, as steps of its own, so that a replay takes as long as the recording.

A CPU step lasts from the end of its last dependency on; a kernel lasts as long as it ran. Time can pass before the
kernel: a launch takes time to reach an idle stream, and a stream from kernel to kernel (*latency*), or the reason is
not in the trace (*gap*).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from armillary.convert.pytorch.launches import LATENCY
from armillary.convert.pytorch.steps import Step

EARLY = 5_000
"""A replay is early by at most this (ns), or by a thousandth of the recording if that is less.

Kernels follow each other after 1 to 3 us. A node for each of these pauses would double the graph.
"""


def add_delays(steps: Sequence[Step], start: int, end: int) -> list[Step]:
    """Return the steps, in issue order, with delay steps inserted; set `begin` of each.

    In a replay of the graph every step then ends at its recorded end, or at most `EARLY` ns before.

    Args:
        steps: those of one rank; a wait for a later one is left as it is.
        start: when the recording starts, ns.
        end: when it ends, ns.
    """
    tolerance = min(EARLY, (end - start) // 1000)
    # When each step ends in a replay, by its id: the recorded end, less what was tolerated so far.
    replayed: dict[int, int] = {}
    numbers: dict[int, int] = {}
    # Delays of a track stand on a track of their own: a stream would appear to be busy with them.
    free = max((step.track for step in steps), default=0) + 1
    by_end = sorted(steps, key=lambda step: step.end)
    ends = [step.end for step in by_end]
    result: list[Step] = []
    for step in steps:
        waits = [wait for wait in step.waits if id(wait) in replayed]
        if not waits and step.begin - start > LATENCY:  # who started it is not known: whoever worked last
            at = bisect_right(ends, step.begin) - 1
            # Only a step that stands in the result already: the nodes stay in topological order.
            while at >= 0 and id(by_end[at]) not in replayed:
                at -= 1
            waits = by_end[at : at + 1] if at >= 0 else []
            step.waits = [*step.waits, *waits]
        # The two differ by what earlier steps are early; a delay fills up from the replayed end.
        recorded = max((wait.end for wait in waits), default=start)
        ready = max((replayed[id(wait)] for wait in waits), default=start)
        if step.source:
            # Only the kernel ahead of it takes of its time; others that drained while it began do not.
            begin = max(
                [step.begin, *(wait.end for wait in waits if wait.source and wait.track == step.track)]
            )
        else:
            begin = recorded if waits else step.begin
        begin = min(begin, step.end)
        if begin - ready > tolerance:
            # Whether hardware can account for it is a matter of the recorded times, not of the replayed ones.
            kind = "gap" if begin - recorded > LATENCY else "latency"
            number = numbers.setdefault(step.track, free + len(numbers))
            delay = Step(kind, kind, begin, step.key, number, waits=waits, begin=ready)
            step.waits = [*step.waits, delay]
            result.append(delay)
            ready = replayed[id(delay)] = begin
        # A kernel lasts as long as it ran; a CPU step as long as it must to end on time.
        step.begin = begin if step.source else min(ready, step.end)
        replayed[id(step)] = ready + step.end - step.begin
        result.append(step)
    return result
