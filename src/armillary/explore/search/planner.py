"""The exact search: every point is screened and bounded, and only those that might still win are simulated.

This is best-first branch and bound over points: the one with the best bound is simulated next, until no bound can beat
the best result. The answer is that of simulating all points; of equal points the first counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from armillary.explore.search.found import (
    CANNOT_WIN,
    EvaluateMany,
    Found,
    Vector,
    best_of,
    dominates,
    objectives_of,
    once,
)
from armillary.explore.search.optimistic import Optimist, values, vector
from armillary.explore.sweep.constraint import Objective
from armillary.explore.sweep.evaluate import Evaluator
from armillary.explore.sweep.point import Point, Row
from armillary.explore.sweep.sweep import Sweep

Progress = Callable[[str, int, int], None]
"""Called with the name of an activity, the amount done, and the total."""


@dataclass(frozen=True)
class _Candidate:
    bound: Vector
    number: int
    row: Row
    """The row to report if the point is never simulated."""


def plan(
    sweep: Sweep,
    evaluate: EvaluateMany | None = None,
    *,
    at_once: int = 1,
    progress: Progress | None = None,
) -> Found:
    """Return the best points of a sweep, and for each other point the reason why it is not among them.

    Args:
        sweep: The points, constraints and objectives.
        evaluate: Evaluates points; by default one after the other, here.
        at_once: Points passed to `evaluate` at a time.
        progress: See `Progress`.
    """
    objectives = objectives_of(sweep)
    many = once(evaluate or serially(sweep))
    tell = progress or (lambda what, done, of: None)
    rows, candidates = _screened(sweep, objectives, tell)
    waiting = _ordered(candidates)
    ok: list[tuple[Vector, Row]] = []
    simulated = 0
    while waiting:
        batch: list[_Candidate] = []
        while waiting and len(batch) < at_once:
            each = waiting.pop()
            # Checked when its turn comes: the best may have improved since.
            if not _beaten(each, ok):
                batch.append(each)
        for row in many([sweep.space.at(each.number) for each in batch]) if batch else ():
            rows[row.number] = row
            # A rejected row with a step time broke a constraint on what the simulation said.
            simulated += row.status != "rejected" or bool(row.measures.get("step_time"))
            own = values(objectives, row.measures)
            if row.status == "ok" and own is not None:
                ok.append((own, row))
                # Rows that the new one beats cannot rule out anything that it does not.
                ok = [one for one in ok if not _hopeless(one, own, row.number)]
        tell("simulated", simulated, simulated + len(waiting))
    for each in candidates:
        # Every candidate that was not simulated was beaten by a row that is still in `ok`.
        if each.number not in rows:
            rows[each.number] = replace(each.row, reason=_reason(each, ok, objectives))
    found = tuple(rows[number] for number in sorted(rows))
    return Found(
        "planner", found, objectives, best_of(found, objectives), simulated, len(found), (), exact=True
    )


def serially(sweep: Sweep) -> EvaluateMany:
    """Return an evaluator that runs points one after the other in this process."""
    evaluator = Evaluator(sweep)

    def many(points: Sequence[Point]) -> Iterator[Row]:
        return map(evaluator.evaluate, points)

    return many


def _screened(
    sweep: Sweep, objectives: tuple[Objective, ...], tell: Progress
) -> tuple[dict[int, Row], list[_Candidate]]:
    """Return the rows of points that screening rejects, and the other points with their bounds."""
    evaluator, optimist = Evaluator(sweep), Optimist(sweep)
    rows: dict[int, Row] = {}
    candidates = []
    for point in sweep.space.points():
        row = evaluator.screen(point)
        if row is None:
            best = optimist.measures(point)
            known = {
                name: value
                for name, value in best.items()
                # Measures that are exact or marked as a bound; an optimistic step time in a row would
                # look like a result.
                if name in ("npus", "memory", "headroom", "fits", "bound")
            }
            own = Row(point.number, point.values, point.key, "rejected", CANNOT_WIN, known)
            candidates.append(_Candidate(vector(objectives, best), point.number, own))
        else:
            rows[point.number] = row
        if point.number % 64 == 63:
            tell("screened", point.number + 1, sweep.space.size)
    return rows, candidates


def _ordered(candidates: list[_Candidate]) -> list[_Candidate]:
    """Return the candidates with the most promising last, by the sum of their ranks in all objectives."""
    if not candidates:
        return []
    ranks = dict.fromkeys((each.number for each in candidates), 0)
    for k in range(len(candidates[0].bound)):
        # Ranks, not values: objectives have different units.
        place = {value: i for i, value in enumerate(sorted({each.bound[k] for each in candidates}))}
        for each in candidates:
            ranks[each.number] += place[each.bound[k]]
    return sorted(candidates, key=lambda each: (ranks[each.number], each.number), reverse=True)


def _beaten(one: _Candidate, ok: Sequence[tuple[Vector, Row]]) -> bool:
    """Return whether a point can be neither best nor, with several objectives, on the Pareto front."""
    return any(_hopeless((one.bound, one.row), own, row.number) for own, row in ok)


def _hopeless(one: tuple[Vector, Row], other: Vector, number: int) -> bool:
    """Return whether a point with bound `one` loses to a point with result `other`."""
    if len(other) > 1:
        # Equal vectors stay: both are on the front.
        return dominates(other, one[0])
    # Of equal points the lower number wins; that decides, too, where a bound only equals the best.
    return (other[0], number) < (one[0][0], one[1].number)


def _reason(one: _Candidate, ok: Sequence[tuple[Vector, Row]], objectives: tuple[Objective, ...]) -> str:
    """Return why a point was not simulated: its bound, and the result that beats it."""
    winner = next(row for own, row in ok if _hopeless((one.bound, one.row), own, row.number))
    parts = []
    for each, bound in zip(objectives, one.bound, strict=True):
        least = "at least" if each.sign > 0 else "at most"
        show = each.measure.show
        parts.append((f"{least} {show(each.sign * bound)}", show(winner.measures[each.name])))
    own, theirs = (" and ".join(texts) for texts in zip(*parts, strict=True))
    who = "the best" if len(objectives) == 1 else f"point {winner.number}"
    verb = "takes" if objectives[0].name == "step_time" and len(objectives) == 1 else "has"
    return f"{CANNOT_WIN}: {own}, {who} {verb} {theirs}"
