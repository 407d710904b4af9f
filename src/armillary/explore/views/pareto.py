"""Pareto fronts, and the Pareto rank of every point: the number of fronts that dominate it."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def front(values: Floats) -> NDArray[np.bool_]:
    """Return which rows of `values` are on the Pareto front; see `pareto_ranks`."""
    return np.asarray(pareto_ranks(values) == 0)


def pareto_ranks(values: Floats) -> NDArray[np.int64]:
    """Return the Pareto rank of every row: 0 on the front, 1 on the front of the remaining rows, and so on.

    A row dominates another if it is nowhere more and somewhere less; equal rows have equal ranks. One or two columns
    take O(n log n) (Jensen, "Reducing the run-time complexity of multiobjective EAs", 2003); more take a binary search
    over fronts with one comparison of columns per front (Zhang et al., "An efficient approach to nondominated sorting",
    2015), O(n² m) at worst.

    Args:
        values: (n, m) numbers without NaN; less is better.
    """
    values = np.asarray(values, np.float64)
    if not len(values):
        return np.zeros(0, np.int64)
    distinct, which = np.unique(values, axis=0, return_inverse=True)  # in lexicographic order
    columns = distinct.shape[1]
    if columns == 1:
        ranks = np.arange(len(distinct))
    else:
        ranks = _ranks_of_pairs(distinct[:, 1]) if columns == 2 else _ranks_of_many(distinct)
    return np.asarray(ranks[which.reshape(-1)], np.int64)


def _ranks_of_pairs(second: Floats) -> NDArray[np.int64]:
    """Return the ranks of distinct pairs in lexicographic order, by their second numbers."""
    ranks = np.empty(len(second), np.int64)
    least: list[float] = []  # per front the least second number so far, ascending: that of its last point
    for i, y in enumerate(second.tolist()):
        # A point in front r dominates this one if the least second number of r is at most y; first
        # numbers are smaller or equal by the order. `least` ascends, so bisection finds the first front
        # that does not.
        rank = bisect_right(least, y)
        # Replaces the last point of the front, or opens a front at the end.
        least[rank : rank + 1] = [y]
        ranks[i] = rank
    return ranks


def _ranks_of_many(values: Floats) -> NDArray[np.int64]:
    """Return the ranks of distinct rows in lexicographic order: no row is dominated by a later one."""
    ranks = np.empty(len(values), np.int64)
    fronts: list[Floats] = []
    sizes: list[int] = []
    for i, row in enumerate(values):
        low, high = 0, len(fronts)
        # If a front dominates the row, so do all fronts before it: binary search is valid.
        while low < high:
            middle = (low + high) // 2
            if (fronts[middle][: sizes[middle]] <= row).all(axis=1).any():
                low = middle + 1
            else:
                high = middle
        if low == len(fronts):
            fronts.append(np.empty((4, values.shape[1])))
            sizes.append(0)
        # Doubling keeps appends amortised O(1) and the comparison one array operation.
        if sizes[low] == len(fronts[low]):
            fronts[low] = np.concatenate((fronts[low], np.empty_like(fronts[low])))
        fronts[low][sizes[low]] = row
        sizes[low] += 1
        ranks[i] = low
    return ranks
