"""The slow reference of `goodput`: a run played through second by second, event after event, with drawn failures.

It knows nothing of renewals or of Erlang: it keeps a clock, a list of checkpoints in flight and one of nodes in repair.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass

from armillary.explore.whole_run.goodput import Checkpoints, Goodput, Recovery


@dataclass(frozen=True)
class Played:
    """The result of several simulated runs.

    Attributes:
        mean: Shares of time, averaged over runs.
        error: Standard error of each share.
        failures: Number of failures in all runs.
    """

    mean: Goodput
    error: Goodput
    failures: int


def play(
    rate: float,
    interval: float,
    checkpoints: Checkpoints,
    recovery: Recovery,
    *,
    failures: int = 1000,
    runs: int = 30,
    seed: int = 0,
) -> Played:
    """Play `runs` runs of so many `failures` each."""
    shares, total = [], 0
    for run in range(runs):
        # A generator per run, so that the number of runs does not change the first ones.
        spent, count = _one(random.Random(f"{seed} {run}"), rate, interval, checkpoints, recovery, failures)
        whole = math.fsum(spent.values())
        shares.append([value / whole for value in spent.values()])
        total += count
    columns = list(zip(*shares, strict=True))
    means = [math.fsum(column) / runs for column in columns]
    errors = [
        # Standard error of the mean over independent runs, with the unbiased variance.
        math.sqrt(math.fsum((value - mean) * (value - mean) for value in column) / (runs - 1) / runs)
        for column, mean in zip(columns, means, strict=True)
    ]
    return Played(Goodput(*means), Goodput(*errors), total)


def _one(
    draw: random.Random,
    rate: float,
    interval: float,
    checkpoints: Checkpoints,
    recovery: Recovery,
    failures: int,
) -> tuple[dict[str, float], int]:
    spent = dict.fromkeys(("useful", "checkpoints", "lost", "restarts", "waiting"), 0.0)
    clock, count = 0.0, 0
    fails_at = draw.expovariate(rate)
    repairs: list[float] = []
    while count < failures:
        # Work from a checkpoint that is complete, until the next failure.
        safe = since = clock
        writing: list[tuple[float, float]] = []  # when it is complete, and when its segment ended
        kept = 0
        while True:
            end = since + interval + checkpoints.blocking
            # A checkpoint counts from the moment when it is complete, not when it was taken.
            while writing and writing[0][0] <= min(end, fails_at):
                safe, kept = writing.pop(0)[1], kept + 1
            if end > fails_at:
                break
            writing.append((end + checkpoints.writing, end))
            # Complete at once; otherwise it would wait for the next turn of the loop.
            if not checkpoints.writing:
                safe, kept = writing.pop(0)[1], kept + 1
            since = end
        spent["useful"] += kept * interval
        spent["checkpoints"] += kept * checkpoints.blocking
        spent["lost"] += fails_at - safe
        clock = fails_at
        # Restarts, until one completes.
        while True:
            count += 1
            broken = draw.random() < recovery.hardware
            if broken and recovery.spares is not None:
                while repairs and repairs[0] <= clock:
                    heapq.heappop(repairs)
                heapq.heappush(repairs, clock + draw.expovariate(1 / recovery.repair))
                # No spare is left: the job waits until the first repair ends.
                if len(repairs) > recovery.spares:
                    free = heapq.heappop(repairs)
                    spent["waiting"] += free - clock
                    clock = free
            # Memoryless: drawing anew after a wait changes nothing about the distribution.
            fails_at = clock + draw.expovariate(rate)
            if fails_at >= clock + recovery.restart:
                spent["restarts"] += recovery.restart
                clock += recovery.restart
                break
            spent["restarts"] += fails_at - clock
            clock = fails_at
    return spent, count
