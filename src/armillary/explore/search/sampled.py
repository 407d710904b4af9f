"""Searches that visit only some points: random ones, or those that Optuna's samplers propose (extra ``search``)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.base.files import check_writable, make_folder
from armillary.explore.runner.executor import CutShortError
from armillary.explore.search.found import EvaluateMany, Found, best_of, objectives_of, once
from armillary.explore.search.optimistic import Optimist, values, vector
from armillary.explore.search.planner import Progress, serially
from armillary.explore.sweep.constraint import Objective
from armillary.explore.sweep.evaluate import Evaluator
from armillary.explore.sweep.point import Point, Row, Value
from armillary.explore.sweep.schema import Search
from armillary.explore.sweep.sweep import Sweep

WORST = 1e300
"""Value of an objective for Optuna if a point has none; a constraint marks the trial as infeasible as well."""
_ROW = "row"
"""User attribute of a trial that stores the row of its point."""


@dataclass
class _Looks:
    """The points that a search has visited; each is screened, bounded and simulated once."""

    sweep: Sweep
    evaluate: EvaluateMany
    rows: dict[int, Row] = field(default_factory=dict)
    simulated: int = 0

    def __post_init__(self) -> None:
        self.evaluator = Evaluator(self.sweep)

    def look(self, point: Point) -> Row:
        """Return the row of a point."""
        if point.number not in self.rows:
            # Screening is cheap and decides most bad points, so samplers may propose them freely.
            row = self.evaluator.screen(point)
            if row is None:
                (row,) = self.evaluate([point])
                self.simulated += 1
            self.rows[point.number] = row
        return self.rows[point.number]

    def found(self, method: str) -> Found:
        """Return the result, with a bound that no point can beat."""
        objectives, optimist, least = objectives_of(self.sweep), Optimist(self.sweep), []
        # Bounds of all points that were not looked at say how far the best may be from optimal.
        for point in self.sweep.space.points():
            if point.number not in self.rows and self.evaluator.screen(point) is None:
                least.append(vector(objectives, optimist.measures(point)))
        rows = tuple(self.rows[number] for number in sorted(self.rows))
        best = best_of(rows, objectives)
        # The best found is part of the bound: a point that was simulated cannot beat itself.
        ends = [own for row in best if (own := values(objectives, row.measures)) is not None]
        every = [*least, *ends]
        lowest = tuple(min(column) for column in zip(*every, strict=True)) if every else ()
        return Found(
            method, rows, objectives, best, self.simulated, self.sweep.space.size, lowest, exact=not least
        )


def by_lot(
    sweep: Sweep, how: Search, evaluate: EvaluateMany | None = None, progress: Progress | None = None
) -> Found:
    """Evaluate `how.trials` different points, drawn with `how.seed`."""
    size = sweep.space.size
    looks = _Looks(sweep, once(evaluate or serially(sweep)))
    chosen = random.Random(how.seed).sample(range(size), min(how.trials, size))
    for done, number in enumerate(chosen, 1):
        looks.look(sweep.space.at(number))
        if progress:
            progress("looked at", done, len(chosen))
    return looks.found("random")


def by_optuna(
    sweep: Sweep, how: Search, evaluate: EvaluateMany | None = None, progress: Progress | None = None
) -> Found:
    """Evaluate the points that a sampler of Optuna proposes: TPE (NeurIPS 2011) or NSGA-II (IEEE TEC 2002).

    With `how.storage` the search resumes from the stored trials of an earlier run, which are not simulated again.

    Raises:
        InputError: Optuna is not installed, or the storage is of another search.
        CutShortError: the storage cannot be written; the trials before are in it.
    """
    try:
        import optuna
    except ImportError:
        raise InputError(
            f"method {how.method} needs Optuna: expected `pip install armillary[search]`"
        ) from None
    # Optuna logs each trial at info level, through the progress display.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    objectives = objectives_of(sweep)
    looks = _Looks(sweep, once(evaluate or serially(sweep)))
    study = _study(optuna, sweep, how, len(objectives))
    with _stored(how, 0):
        old = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
        for trial in old:
            _remember(looks, trial)
    study.sampler = _sampler(optuna, how, len(old))
    for done in range(len(old), how.trials):
        with _stored(how, done):
            trial = study.ask()
            point = _suggested(sweep, trial)
        row = looks.look(point)
        own = values(objectives, row.measures) if row.status == "ok" else None
        with _stored(how, done):
            # Samplers treat a positive value as infeasible, so WORST does not distort their models.
            trial.set_constraint("possible", 0.0 if own else 1.0)
            trial.set_user_attr(_ROW, _written(row))
            study.tell(trial, list(own or [WORST] * len(objectives)))
        if progress:
            progress("looked at", done + 1, how.trials)
    return looks.found(how.method)


@contextmanager
def _stored(how: Search, done: int) -> Iterator[None]:
    """Tell in one line that a storage fails, whatever its backend raises."""
    try:
        yield
    except Exception as error:
        if not how.storage or isinstance(error, InputError):
            raise
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CutShortError(
            f"storage {how.storage}: cannot be used any more ({said}); {done} trials are done and kept in it, and the "
            "same command goes on from there"
        ) from error


def _suggested(sweep: Sweep, trial: Any) -> Point:
    """Return the point that a trial proposes; axes that are not varied there are not suggested."""
    own: dict[str, Value] = {}
    for axis in sweep.space.axes:
        if sweep.space.active(axis, own):
            # By position: values may be of several types, or equal as texts.
            at = trial.suggest_categorical(axis.name, list(range(len(axis.values))))
            own[axis.name] = axis.values[at]
        else:
            own[axis.name] = axis.standing
    return sweep.space.point(own)


def _study(optuna: Any, sweep: Sweep, how: Search, objectives: int) -> Any:
    storage = None
    if how.storage:
        path = Path(how.storage) if sweep.path is None else sweep.path.parent / how.storage
        check_writable("storage", path, stream=False)
        make_folder(path.parent)
        if path.suffix == ".db":
            storage = f"sqlite:///{path}"
        else:
            backend = optuna.storages.journal.JournalFileBackend(str(path))
            storage = optuna.storages.JournalStorage(backend)
    try:
        # Signs make every objective one to minimize.
        study = optuna.create_study(
            directions=["minimize"] * objectives, storage=storage, study_name="armillary", load_if_exists=True
        )
    except Exception as error:  # what a storage raises is its backend's own
        raise InputError(f"storage {how.storage}: cannot be used: {str(error).splitlines()[0]}") from error
    same = _identity(sweep)
    if study.user_attrs.get("sweep", same) != same:
        raise InputError(f"storage {how.storage}: holds trials of another sweep, expected another file")
    study.set_user_attr("sweep", same)
    return study


def _identity(sweep: Sweep) -> str:
    """Return as text everything on which the trials of a sweep depend."""
    parts = {name: value for name, value in sweep.document.data.items() if name not in ("search", "limits")}
    return json.dumps([parts, sweep.base.data], sort_keys=True, default=str)


def _sampler(optuna: Any, how: Search, before: int) -> Any:
    # A resumed search must not propose the first points of the same seed again.
    seed = (how.seed + before) % 2**32
    if how.method == "tpe":
        return optuna.samplers.TPESampler(seed=seed)
    return optuna.samplers.NSGAIISampler(seed=seed, population_size=how.population)


def _written(row: Row) -> dict[str, Any]:
    return {
        "number": row.number, "status": row.status, "reason": row.reason, "measures": dict(row.measures),
        "seconds": row.seconds,
    }  # fmt: skip


def _remember(looks: _Looks, trial: Any) -> None:
    """Restore the row of an earlier trial; its number gives its point."""
    if not (kept := trial.user_attrs.get(_ROW)):
        return
    point = looks.sweep.space.at(kept["number"])
    looks.rows[point.number] = Row(
        point.number,
        point.values,
        point.key,
        kept["status"],
        kept["reason"],
        kept["measures"],
        kept["seconds"],
    )


def objective_names(objectives: tuple[Objective, ...]) -> str:
    """Return the objectives in words."""
    return ", ".join(f"{each.goal} {each.name}" for each in objectives)
