"""The result of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from armillary.explore.search.optimistic import values
from armillary.explore.sweep.constraint import Objective, objective
from armillary.explore.sweep.point import Point, Row
from armillary.explore.sweep.sweep import Sweep

EvaluateMany = Callable[[Sequence[Point]], Iterable[Row]]
"""Evaluates points, in any order; a runner with processes gives one."""
CANNOT_WIN = "cannot win"
Vector = tuple[float, ...]


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        method: Name of the search method.
        rows: Rows of all points that it visited, by number.
        objectives: The objectives.
        best: For one objective the best point, the first of equal ones; for several the Pareto front, by number.
        simulated: Number of simulated points.
        points: Number of points of the space.
        least: Lower bound over all points per objective (signed so that less is better).
        exact: Whether no better point exists.
    """

    method: str
    rows: tuple[Row, ...]
    objectives: tuple[Objective, ...]
    best: tuple[Row, ...]
    simulated: int
    points: int
    least: Vector
    exact: bool

    @property
    def gap(self) -> float | None:
        """Largest possible improvement over the best point, relative to it; None if unknown.

        With several objectives it is that of the first.
        """
        if self.exact and self.best:
            return 0.0
        if not self.best or not self.least or self.least[0] == float("-inf"):
            return None
        first = self.objectives[0]
        best = min(first.sign * row.measures[first.name] for row in self.best)
        return max(0.0, (best - self.least[0]) / abs(best)) if best else None


def objectives_of(sweep: Sweep) -> tuple[Objective, ...]:
    """Return the objectives of a sweep; by default the step time."""
    return sweep.objectives or (objective("minimize step_time"),)


def best_of(rows: Iterable[Row], objectives: tuple[Objective, ...]) -> tuple[Row, ...]:
    """Return the best row, the first of equal ones; for several objectives all that none dominates, by number."""
    known = [(values(objectives, row.measures), row) for row in rows if row.status == "ok"]
    # In lexicographic order no row dominates an earlier one: one pass over the front suffices.
    # Equal rows do not dominate each other, and all of them stay.
    there = sorted(((v, row.number, row) for v, row in known if v is not None), key=lambda each: each[:2])
    if len(objectives) == 1:
        return tuple(row for _, _, row in there[:1])
    front: list[tuple[Vector, Row]] = []
    for own, _, row in there:
        if not any(dominates(other, own) for other, _ in front):
            front.append((own, row))
    return tuple(sorted((row for _, row in front), key=lambda row: row.number))


def dominates(a: Vector, b: Vector) -> bool:
    """Return whether a is nowhere worse than b, and somewhere better."""
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def once(evaluate: EvaluateMany) -> EvaluateMany:
    """Return an evaluator that evaluates points with equal documents only once."""
    done: dict[str, Row] = {}

    def many(points: Sequence[Point]) -> Iterator[Row]:
        # Points that differ only in values without effect have one document.
        new = {point.key: point for point in points if point.key not in done}
        for row in evaluate(list(new.values())):
            done[row.key] = row
        for point in points:
            yield replace(done[point.key], number=point.number, values=point.values)

    return many
