"""One call for every search method, from a sweep file to its result; and the result as JSON and CSV."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from armillary.base.counts import MOST_TRIALS, check_count
from armillary.base.document import Source
from armillary.base.errors import InputError
from armillary.base.hints import key_text
from armillary.base.text import csv_text
from armillary.explore.search.found import EvaluateMany, Found
from armillary.explore.search.planner import Progress, plan, serially
from armillary.explore.sweep.load import load_sweep
from armillary.explore.sweep.measures import MEASURES
from armillary.explore.sweep.point import Point, Row
from armillary.explore.sweep.schema import Search
from armillary.explore.sweep.sweep import Sweep
from armillary.platform.fields import first_problem

if TYPE_CHECKING:
    from armillary.explore.sweep.schema import Method


def search(
    sweep: Source | Sweep,
    *,
    method: Method | None = None,
    trials: int | None = None,
    seed: int | None = None,
    store: str | Path | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Found:
    """Return the best points of a sweep.

    Args:
        sweep: A sweep file, its content, or a sweep that was read.
        method: ``planner``, ``tpe``, ``nsga2`` or ``random``; by default that of the section ``search``, or planner.
        trials: Points to visit; by default as in ``search``. The planner considers all points.
        seed: Random seed; by default as in ``search``.
        store: File of `armillary sweep` in which simulated points are stored and looked up.
        workers: Points that are simulated at a time; only the planner has several to choose from.
        progress: See `planner.Progress`.

    Raises:
        InputError: the sweep is malformed, or a method needs a package that is not installed.
    """
    found = sweep if isinstance(sweep, Sweep) else load_sweep(sweep)
    given = {"method": method, "trials": trials, "seed": seed}
    how = found.search or Search()
    try:
        # Validated again, since arguments replace what the file says.
        how = Search.model_validate(how.model_dump() | {k: v for k, v in given.items() if v is not None})
    except ValidationError as error:
        place, problem = first_problem(error)
        raise InputError(f"search: {key_text(place)}: {problem}") from None
    # Every method goes through all points: the others for the bound of those that they did not look at.
    found.space.check_size()
    if how.method != "planner":
        most = min(how.trials, found.space.size) if how.method == "random" else how.trials
        check_count(most, MOST_TRIALS, "search: trials", "fewer trials")
    with _evaluation(found, store, workers) as evaluate:
        if how.method == "planner":
            return plan(found, evaluate, at_once=workers, progress=progress)
        from armillary.explore.search.sampled import by_lot, by_optuna

        return (by_lot if how.method == "random" else by_optuna)(found, how, evaluate, progress)


@contextmanager
def _evaluation(sweep: Sweep, store: str | Path | None, workers: int) -> Iterator[EvaluateMany]:
    """Yield an evaluator of points: in this process, or with a store, limits or several workers the sweep runner."""
    if not store and workers == 1 and not (sweep.limits.time or sweep.limits.memory):
        yield serially(sweep)
        return
    from armillary.explore.runner import Store, run

    # Limits and workers need processes, and these report through a store, kept or not.
    with tempfile.TemporaryDirectory() as folder, Store(store or Path(folder) / "search.sqlite") as kept:

        def many(points: Sequence[Point]) -> list[Row]:
            run(sweep, points, kept, executor="processes", workers=min(workers, len(points)))
            wanted = {point.number for point in points}
            # A store may hold points of earlier runs, too.
            return [row for row in kept.rows() if row.number in wanted]

        yield many


def as_json(found: Found) -> str:
    """Return the result with all rows as JSON, in base units."""
    about: dict[str, Any] = {
        "method": found.method,
        "objectives": [f"{each.goal} {each.name}" for each in found.objectives],
        "points": found.points,
        "simulated": found.simulated,
        "exact": found.exact,
        "gap": found.gap,
        "best": [row.number for row in found.best],
        "rows": [
            {
                "number": row.number, "values": dict(row.values), "status": row.status, "reason": row.reason,
                "measures": dict(row.measures),
            }
            for row in found.rows
        ],
    }  # fmt: skip
    return json.dumps(about, indent=1) + "\n"


def as_csv(found: Found) -> str:
    """Return all rows as a table, measures in base units."""
    axes = list(dict.fromkeys(name for row in found.rows for name in row.values))
    measures = [name for name in MEASURES if any(name in row.measures for row in found.rows)]
    lines = []
    for row in found.rows:
        own = [row.values.get(name) for name in axes]
        lines.append(
            [row.number, *own, row.status, row.reason, *(row.measures.get(name, "") for name in measures)]
        )
    return csv_text(["number", *axes, "status", "reason", *measures], lines)
