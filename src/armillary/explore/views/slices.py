"""Slices through a space of points: the best over all other axes, and the effect of one axis alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.explore.views.columns import Columns
from armillary.explore.views.reasons import ReasonClass


@dataclass(frozen=True)
class Heat:
    """The best point for every pair of values of two axes.

    Attributes:
        x, y: The axes.
        best: (values of y, values of x): the row that is best there, -1 where none is ok.
        blocked: As `best`: the most frequent reason class where none is ok, -1 where there is no point at all.
    """

    x: int
    y: int
    best: NDArray[np.int64]
    blocked: NDArray[np.int64]


def heat(columns: Columns, x: int, y: int, reasons: Sequence[ReasonClass] = (), objective: int = 0) -> Heat:
    """Return the best rows over all other axes; of equal ones the first in the order of ranks."""
    shape = len(columns.axes[y].values), len(columns.axes[x].values)
    best, blocked = np.full(shape, -1, np.int64), np.full(shape, -1, np.int64)
    place = columns.codes[:, [y, x]]
    order = columns.order
    # Worst first, so that of several rows in a cell the assignment of the best stays.
    order = order[np.argsort(columns.cost[order, objective], kind="stable")][::-1]
    order = order[(place[order] >= 0).all(axis=1)]
    best[tuple(place[order].T)] = order  # of equal places the last assignment stays
    most = np.zeros(shape, np.int64)
    for number, reason in enumerate(reasons):
        at = place[list(reason.rows)]
        count = np.zeros(shape, np.int64)
        # `add.at`, since plain indexing would count a repeated cell once.
        np.add.at(count, tuple(at[(at >= 0).all(axis=1)].T), 1)
        # Reasons matter only where no row is ok; the first of equally frequent ones wins.
        more = (count > most) & (best < 0)
        blocked[more], most[more] = number, count[more]
    return Heat(x, y, best, blocked)


@dataclass(frozen=True)
class Swing:
    """The effect of one axis alone around a point.

    Attributes:
        axis: Index of the axis.
        rows: By value of the axis, the row there, -1 if there is none or none is ok.
        blocked: Number of values at which there are rows, but none is ok.
    """

    axis: int
    rows: tuple[int, ...]
    blocked: int

    def extremes(self, columns: Columns, objective: int = 0) -> tuple[int, int]:
        """Return the rows that are best and worst in the objective."""
        found = [row for row in self.rows if row >= 0]
        cost = columns.cost[found, objective]
        return found[int(np.argmin(cost))], found[int(np.argmax(cost))]


def swings(columns: Columns, base: int, objective: int = 0) -> list[Swing]:
    """Return the effect of each varied axis alone around row `base`, the largest first.

    Other axes keep their values; an axis that a condition disables at either point does not count as different. If
    several rows remain for a value, the best one counts.
    """
    codes = columns.codes
    # An axis that is not varied at one of the two points (-1) tells them not apart.
    same = (codes == codes[base]) | (codes < 0) | (codes[base] < 0)
    unlike = (~same).sum(axis=1)
    order = columns.order
    order = order[np.argsort(columns.cost[order, objective], kind="stable")][::-1]
    lost = np.flatnonzero(~columns.ok)
    found = []
    for axis in columns.varied:
        if codes[base, axis] < 0:
            continue
        # At most this axis differs: `unlike` counts none, or exactly this one.
        alone = (unlike == ~same[:, axis]) & (codes[:, axis] >= 0)
        near = order[alone[order]]
        rows = np.full(len(columns.axes[axis].values), -1, np.int64)
        rows[codes[near, axis]] = near
        rows[codes[base, axis]] = base
        blocked = np.unique(codes[lost[alone[lost]], axis])
        found.append(Swing(axis, tuple(rows.tolist()), int((rows[blocked] < 0).sum())))
    return sorted(found, key=lambda one: -_span(columns, one, objective))


def _span(columns: Columns, swing: Swing, objective: int) -> float:
    low, high = swing.extremes(columns, objective)
    return float(columns.cost[high, objective] - columns.cost[low, objective])


def telling_axes(columns: Columns) -> tuple[int, int] | None:
    """Return the two axes (more values first) that change the first objective most, None where fewer vary.

    An axis changes the objective by the range of the best results of its values over all other axes.
    """
    spans = []
    for axis in columns.varied:
        codes = columns.codes[columns.ok, axis]
        least = np.full(len(columns.axes[axis].values), np.inf)
        # The best over all other axes, for each value of this one.
        np.minimum.at(least, codes[codes >= 0], columns.cost[columns.ok, 0][codes >= 0])
        known = least[np.isfinite(least)]
        spans.append(float(known.max() - known.min()) if len(known) else 0.0)
    if len(spans) < 2:
        return None
    first = sorted(range(len(spans)), key=lambda i: -spans[i])[:2]
    x, y = sorted((columns.varied[i] for i in first), key=lambda axis: -len(columns.axes[axis].values))
    return x, y
