"""Fit regimes to times over sizes: where to switch by dynamic programming, each line by relative least squares.

Curves that switch together (all-gather and reduce-scatter of a library; devices of one generation) are fitted as one
shape: within a regime each is the common line times a ratio of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.collective.fitted.regimes import Curve, Regime

PENALTY = 0.002
"""Squared relative error that a further regime must save: chosen by leaving sizes out."""
LEAST = 3
"""Sizes that a regime must have."""
PRIOR = 0.5
"""Weight of the prior that a ratio is 1, in measurements."""
COLD = 1.5
"""A time this many times that of a larger size is a cold start."""
_ROUNDS = 4
_CUTS = 64
"""Most candidate sizes for a switch between regimes."""

Points = Mapping[float, float]
"""Bytes sent -> ns."""


class _Line(NamedTuple):
    latency: float
    slope: float
    ratios: tuple[float, ...]
    cost: float


def steady(points: Points) -> dict[float, float]:
    """Return the points but those of a cold start: more than `COLD` times what some larger size takes."""
    kept: dict[float, float] = {}
    least = math.inf
    # From the largest size down: a smaller one must not take much longer than what is larger.
    for size in sorted(points, reverse=True):
        if points[size] <= COLD * least:
            kept[size] = points[size]
        least = min(least, points[size])
    return kept


def fit_curves(curves: Sequence[Points], penalty: float = PENALTY) -> list[list[tuple[float, float, float]]]:
    """Fit curves that switch together.

    Args:
        curves: Size -> time, each of at least one point.
        penalty: See `PENALTY`.

    Returns:
        For each curve its regimes: (last size, latency, time per unit of size).
    """
    # All curves share the candidates of switches; a curve may lack some sizes.
    sizes = sorted({size for curve in curves for size in curve})
    sums = _prefix_sums(curves, sizes)
    count = len(sizes)
    # Dynamic programming over the ends of regimes (segmented least squares, Bellman 1961).
    best, back = dict.fromkeys(range(count + 1), math.inf), dict.fromkeys(range(count + 1), 0)
    best[0] = 0.0
    lines: dict[int, _Line] = {}
    # With many sizes only 64 candidates, evenly in logarithms: costs grow with their square.
    cuts = sorted(
        {round(cut) for cut in np.geomspace(1, count + 1, _CUTS)} if count > _CUTS else range(1, count + 2)
    )
    for end in (cut - 1 for cut in cuts[1:]):
        for begin in (cut - 1 for cut in cuts if cut <= end):
            if end - begin < min(LEAST, count) and not (begin == 0 and end < LEAST):
                continue
            # Differences of prefix sums give a regime's sums in constant time.
            line = _line(sums[end] - sums[begin])
            # A ratio of its own costs half as much as a regime.
            cost = best[begin] + line.cost + penalty * (1 + 0.5 * (len(line.ratios) - line.ratios.count(1.0)))
            if cost < best[end]:
                best[end], back[end], lines[end] = cost, begin, line
    ends = [count]
    while back[ends[-1]] > 0:
        ends.append(back[ends[-1]])
    ends.reverse()
    return [_regimes(which, ends, lines, sizes) for which in range(len(curves))]


def _prefix_sums(curves: Sequence[Points], sizes: Sequence[float]) -> NDArray[np.float64]:
    """Return sums over sizes of n, 1/t, x/t, 1/t², x/t², x²/t²: (sizes + 1, curves, 6)."""
    terms = np.zeros((len(sizes) + 1, len(curves), 6))
    for column, curve in enumerate(curves):
        for row, size in enumerate(sizes, 1):
            if size in curve:
                # Weights 1/t make errors relative.
                one, by = 1 / curve[size], size / curve[size]
                terms[row, column] = (1, one, by, one * one, one * by, by * by)
    total: NDArray[np.float64] = terms.cumsum(axis=0)
    return total


def _line(sums: NDArray[np.float64]) -> _Line:
    """Return the line a + b·x, with a ratio for each curve, of least relative error."""
    rows = sums.tolist()
    ratios = [1.0] * len(rows)
    # Curves without a size in this regime keep the ratio 1.
    there = [number for number, row in enumerate(rows) if row[0]]
    latency, slope, cost = _solve(rows, ratios)
    # One curve alone needs no ratio, and two points fit any line.
    if len(there) > 1 and sum(row[0] for row in rows) > 2:
        # Alternating least squares: ratios given the line, then the line given the ratios; it settles in a
        # few rounds.
        for _ in range(_ROUNDS):
            for number in there:
                _, one, by, one2, oneby, by2 = rows[number]
                first = latency * one + slope * by
                second = latency * latency * one2 + 2 * latency * slope * oneby + slope * slope * by2
                # PRIOR pulls ratios of few measurements towards 1.
                ratios[number] = (first + PRIOR) / (second + PRIOR)
            # The geometric mean of the ratios is 1: the rest is in the line.
            mean = math.exp(sum(math.log(ratios[number]) for number in there) / len(there))
            ratios = [ratio / mean if number in there else 1.0 for number, ratio in enumerate(ratios)]
            latency, slope, cost = _solve(rows, ratios)
    return _Line(latency, slope, tuple(ratios), cost)


def _solve(rows: list[list[float]], ratios: list[float]) -> tuple[float, float, float]:
    count = one = by = one2 = oneby = by2 = 0.0
    for row, ratio in zip(rows, ratios, strict=True):
        count += row[0]
        one += ratio * row[1]
        by += ratio * row[2]
        one2 += ratio * ratio * row[3]
        oneby += ratio * ratio * row[4]
        by2 += ratio * ratio * row[5]
    # Normal equations of weighted least squares in two unknowns.
    determinant = one2 * by2 - oneby * oneby
    latency, slope = one / one2, 0.0
    # All sizes alike: the slope cannot be told, and the mean is left.
    if determinant > 1e-9 * one2 * by2:
        latency, slope = (one * by2 - by * oneby) / determinant, (by * one2 - one * oneby) / determinant
    # Times that fall with the size, or negative latencies, are noise: fix the one at 0 and solve for the
    # other.
    if slope < 0:
        latency, slope = one / one2, 0.0
    elif latency < 0:
        latency, slope = 0.0, by / by2
    cost = count - 2 * (latency * one + slope * by)
    cost += latency * latency * one2 + 2 * latency * slope * oneby + slope * slope * by2
    return latency, slope, max(cost, 0.0)


def _regimes(
    which: int, ends: Sequence[int], lines: Mapping[int, _Line], sizes: Sequence[float]
) -> list[tuple[float, float, float]]:
    found = []
    for number, end in enumerate(ends):
        line = lines[end]
        # The ratio of a curve scales latency and slope alike.
        latency, slope = (line.ratios[which] * part for part in (line.latency, line.slope))
        last = math.inf
        if end < len(sizes):
            following = lines[ends[number + 1]]
            after = [following.ratios[which] * part for part in (following.latency, following.slope)]
            last = _switch((latency, slope), (after[0], after[1]), sizes[end - 1], sizes[end])
        found.append((last, latency, slope))
    return found


def _switch(line: tuple[float, float], after: tuple[float, float], low: float, high: float) -> float:
    """Return where the lines meet, if that is between the sizes, else the geometric mean of these."""
    if line[1] != after[1]:
        # Where both lines give the same time, so that the curve has no jump.
        meet = (after[0] - line[0]) / (line[1] - after[1])
        if low <= meet < high:
            return meet
    return math.sqrt(low * high)


def curve_of(regimes: Sequence[tuple[float, float, float]], share: float) -> Curve:
    """Return a curve of times in ns over sizes in bytes, of which `share` are sent."""
    return tuple(
        # Slope 0: bandwidth does not matter in this regime.
        Regime(last, latency, share / slope if slope else math.inf)
        for last, latency, slope in regimes
    )
