"""Sets of half-open tick intervals [start, end), as pairs of int64 arrays."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

Ticks = NDArray[np.int64]


def union(start: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
    """Return the union of the intervals as disjoint ones in order; empty intervals vanish.

    Intervals that touch are joined. O(n log n).
    """
    real = end > start
    start, end = start[real], end[real]
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start = start[order]
    # The latest end so far; a new interval begins where the next start is beyond it.
    reach = np.maximum.accumulate(end[order])
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    return start[first], reach[np.concatenate((first[1:], [True]))]


def measure(start: Ticks, end: Ticks) -> int:
    """Return the length in ticks of disjoint intervals."""
    return int((end - start).sum())


def lanes(start: Ticks, end: Ticks) -> NDArray[np.int64]:
    """Give each interval the lowest lane that is free at its start, so that none overlap in a lane.

    A lane is free again at the end of its interval. Uses as few lanes as the deepest overlap.
    """
    lane = np.zeros(len(start), dtype=np.int64)
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    opened = 0
    # Greedy by start: a new lane only if all are busy, so no assignment needs fewer.
    order = np.lexsort((end, start))
    for i, begin, stop in zip(order.tolist(), start[order].tolist(), end[order].tolist(), strict=True):
        # Half-open intervals: one that ends where another begins frees its lane.
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            chosen = heapq.heappop(free)
        else:
            chosen, opened = opened, opened + 1
        lane[i] = chosen
        heapq.heappush(busy, (stop, chosen))
    return lane


def depth(start: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
    """Return the ticks at which the number of open intervals changes, and that number from there on."""
    ticks = np.concatenate((start, end))
    steps = np.concatenate((np.ones(len(start), np.int64), np.full(len(end), -1, np.int64)))
    at, group = np.unique(ticks, return_inverse=True)
    change = np.bincount(group, weights=steps, minlength=len(at)).astype(np.int64)
    # Ticks at which as many intervals end as begin change nothing.
    changed = change != 0
    return at[changed], np.cumsum(change[changed])
