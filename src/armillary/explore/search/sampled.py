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
from armillary.explore.runner.stored import say
from armillary.explore.search.found import EvaluateMany, Found, best_of, objectives_of, once
from armillary.explore.search.optimistic import Optimist, values, vector
from armillary.explore.search.planner import Progress, serially
from armillary.explore.search.storage import NAME, ROW, damage, fits, is_base, mend, opened, row_of, written
from armillary.explore.sweep.constraint import Objective
from armillary.explore.sweep.evaluate import Evaluator
from armillary.explore.sweep.point import Point, Row, Value
from armillary.explore.sweep.schema import Search
from armillary.explore.sweep.sweep import Sweep

WORST = 1e300
"""Value of an objective for Optuna if a point has none; a constraint marks the trial as infeasible as well."""


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
    study = _study(optuna, sweep, how, objectives)
    with _stored(how, 0):
        old = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.COMPLETE]
        damaged = sum(not _remember(looks, trial, _identity(sweep)) for trial in old)
    if damaged:
        say(
            f"storage {how.storage}: {damaged} rows are damaged; their points are done again where they are proposed"
        )
    study.sampler = _sampler(optuna, how, len(old))
    for done in range(len(old), how.trials):
        with _stored(how, done):
            trial = study.ask()
            point = _suggested(sweep, trial)
        row = looks.look(point)
        with _stored(how, done):
            _tell(study, trial, row, objectives, _identity(sweep))
        if progress:
            progress("looked at", done + 1, how.trials)
    return looks.found(how.method)


def _tell(study: Any, trial: Any, row: Row, objectives: tuple[Objective, ...], identity: str) -> None:
    own = values(objectives, row.measures) if row.status == "ok" else None
    # Samplers treat a positive value as infeasible, so WORST does not distort their models.
    trial.set_constraint("possible", 0.0 if own else 1.0)
    trial.set_user_attr(ROW, written(row, identity))
    study.tell(trial, list(own or [WORST] * len(objectives)))


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


def _study(optuna: Any, sweep: Sweep, how: Search, objectives: tuple[Objective, ...]) -> Any:
    same = _identity(sweep)

    def begin(storage: Any) -> Any:
        # Signs make every objective one to minimize.
        directions = ["minimize"] * len(objectives)
        study = optuna.create_study(
            directions=directions, storage=storage, study_name=NAME, load_if_exists=True
        )
        if study.user_attrs.get("sweep", same) != same:
            raise InputError(f"storage {how.storage}: holds trials of another sweep, expected another file")
        study.set_user_attr("sweep", same)
        return study

    def again(study: Any, kept: dict[str, Any]) -> None:
        row = row_of(kept, sweep.space)
        own: dict[str, Value] = {}
        chosen = {}
        for axis in sweep.space.axes:
            if sweep.space.active(axis, own):
                chosen[axis.name] = axis.values.index(row.values[axis.name])
            own[axis.name] = row.values[axis.name]
        study.enqueue_trial(chosen)
        trial = study.ask()
        _suggested(sweep, trial)
        _tell(study, trial, row, objectives, same)

    if not how.storage:
        return begin(None)
    path = Path(how.storage) if sweep.path is None else sweep.path.parent / how.storage
    check_writable("storage", path, stream=False)
    make_folder(path.parent)
    try:
        if problem := damage(path):
            mend(optuna, path, problem, same, begin, again)
        return begin(opened(optuna, path, is_base(path)))
    except InputError:
        raise
    except Exception as error:  # what a storage raises is its backend's own
        raise InputError(
            f"storage {how.storage}: cannot be used: {(str(error).splitlines() or [''])[0]}"
        ) from error


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


def _remember(looks: _Looks, trial: Any, identity: str) -> bool:
    """Restore the row of an earlier trial, whose number gives its point; False if it is not as it was written."""
    if kept := trial.user_attrs.get(ROW):
        if not fits(kept, identity):
            return False
        row = row_of(kept, looks.sweep.space)
        looks.rows[row.number] = row
    return True


def objective_names(objectives: tuple[Objective, ...]) -> str:
    """Return the objectives in words."""
    return ", ".join(f"{each.goal} {each.name}" for each in objectives)
