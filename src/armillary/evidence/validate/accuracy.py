"""How far predictions are from measurements, and whether that is near enough."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from armillary.evidence.validate.table import Row, Table

Verdict = Literal["met", "missed", "shown"]
# A table of mostly refused rows could have any mean.
MOST_REFUSED = 0.2
"""A table of which a larger share is refused meets no bar."""
NEAR = 0.1


@dataclass(frozen=True)
class Accuracy:
    """Relative errors ``predicted / measured - 1`` summed up; nan where there is nothing to sum up.

    Attributes:
        rows: Predicted rows, which are those that all else is of.
        refused: Rows without a prediction.
        mean: Of absolute errors.
        worst: Largest absolute error.
        median: Of absolute errors.
        rank: Spearman's correlation of predicted and measured.
        bias: ``exp(mean(log(predicted / measured))) - 1``: 0.1 is 10 % too high throughout.
        within: Share of rows with an absolute error of at most `NEAR`.
        held: Share of the rows with an interval whose measurement lies in it.
    """

    rows: int
    refused: int
    mean: float
    worst: float
    median: float
    rank: float
    bias: float
    within: float
    held: float


def is_refused(row: Row) -> bool:
    """Return whether `row` has no prediction above 0."""
    # NaN compares false.
    return not 0 < row.predicted < math.inf


def accuracy(rows: Sequence[Row]) -> Accuracy:
    """Return the errors of `rows`."""
    known = [row for row in rows if not is_refused(row)]
    refused = len(rows) - len(known)
    if not known:
        return Accuracy(0, refused, *[math.nan] * 7)
    measured = np.array([row.measured for row in known])
    predicted = np.array([row.predicted for row in known])
    errors = np.abs(predicted / measured - 1)
    # Rows without an interval have NaN ends, for which <= is false.
    stated = [row for row in known if row.low <= row.high]
    held = [row.low <= row.measured <= row.high for row in stated]
    return Accuracy(
        rows=len(known),
        refused=refused,
        mean=float(errors.mean()),
        worst=float(errors.max()),
        median=float(np.median(errors)),
        rank=spearman(measured, predicted),
        bias=math.exp(float(np.log(predicted / measured).mean())) - 1,
        within=float((errors <= NEAR).mean()),
        held=sum(held) / len(held) if held else math.nan,
    )


def spearman(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Return Spearman's rank correlation of two vectors; equal values share the mean of their ranks.

    It is Pearson's correlation of the ranks; nan for fewer than two values, or where all of one vector are equal.
    """
    # Centred ranks: their mean is (n + 1) / 2.
    a, b = (_ranks(values) - (len(values) + 1) / 2 for values in (one, two))
    spread = math.sqrt(float((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread else math.nan


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    # Equal values: the mean of the ranks that they would take.
    ranks: NDArray[np.float64] = (last - (count - 1) / 2)[place]
    return ranks


def by_group(rows: Iterable[Row]) -> dict[str, Accuracy]:
    """Return the errors of each group, in order of appearance."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.group, []).append(row)
    return {name: accuracy(mine) for name, mine in found.items()}


def reasons(rows: Iterable[Row]) -> Counter[str]:
    """Return why rows are refused, with how many are."""
    # Reasons are few: rows of one kind share one.
    return Counter(row.reason or "no reason given" for row in rows if is_refused(row))


def verdict(table: Table) -> Verdict:
    """Judge `table` against its bar; one without is only shown."""
    bar = table.bar
    if bar is None:
        return "shown"
    found = accuracy(table.rows)
    # Compared so that nan meets nothing.
    met = (
        found.refused <= MOST_REFUSED * len(table.rows)
        and found.mean <= bar.mean
        and (bar.worst is None or found.worst <= bar.worst)
        and (bar.rank is None or found.rank >= bar.rank)
    )
    return "met" if met else "missed"


def verdicts(tables: Iterable[Table]) -> Counter[Verdict]:
    """Return how many tables, their parts included, meet their bars."""
    return Counter(verdict(one) for table in tables for one in (table, *table.parts))
