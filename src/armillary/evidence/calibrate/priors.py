"""What few observations may decide: how many constants a fit moves, and how far errors are trusted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.compute.model import Floats, Ints

WEIGHT = 4.0
"""Observations that what was known before is worth, where the spread of errors is told."""
_SURELY = 1.645
"""Standard deviations of a normal distribution that hold 90 %."""
_LEAST_SPREAD = 0.01
"""A time is not repeated better than this."""


def told(slopes: Floats, points: int) -> Ints:
    """Return the constants that rows tell most, at most half as many as there are points, in their own order.

    Args:
        slopes: (rows, constants) what a deviation of a constant, as it was expected, moves a residual by.
        points: Different things that were measured; repeated rows are one.
    """
    moved = np.sqrt((slopes**2).sum(axis=0))
    # A constant that moves no row is told by none.
    ranked = [int(at) for at in np.argsort(-moved, kind="stable") if moved[at] > 0]
    return np.array(sorted(ranked[: points // 2]), np.int64)


def pooled(residuals: Sequence[float], points: int, prior: float) -> float:
    """Return the standard deviation of residuals, with `WEIGHT` rows of what was known before, wider where few are.

    It is that of a normal distribution as wide as Student's t, at 90 %, of so many rows.

    Args:
        residuals: ln of predicted over measured, of what a fit had not seen; repeated rows one by one.
        points: Different things that they are of.
        prior: Standard deviation before.
    """
    if not len(residuals):
        return prior
    rows, variance = WEIGHT + points, deviation_of(residuals) ** 2
    # First terms of the expansion of Student's 95th percentile (Fisher and Cornish, 1960), over that of a normal one.
    few = 1 + 0.926 / rows + 0.863 / rows**2
    return few * float(np.sqrt((WEIGHT * prior**2 + points * variance) / rows))


def folds(count: int, most: int = 5) -> list[Ints]:
    """Return which of `count` things, in some order, each fold leaves out: every fifth, or each alone if few."""
    parts = min(most, count)
    return [np.arange(at, count, parts) for at in range(parts)]


def deviation_of(offs: Sequence[float]) -> float:
    """Return the standard deviation of a normal distribution that holds as much within its 90 %, centred at 0."""
    ordered = sorted(map(abs, offs))
    # The 90th percentile of the sizes of errors: a few wild times must not widen all others.
    at = 0.9 * (len(ordered) - 1)
    low, part = int(at), at % 1
    high = ordered[min(low + 1, len(ordered) - 1)]
    return max((ordered[low] * (1 - part) + high * part) / _SURELY, _LEAST_SPREAD)
