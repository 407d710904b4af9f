"""Rows of training in, a file of constants out: fits of all rows, of halves, and with parts left out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.evidence.calibrate.recipes import Recipe
from armillary.evidence.calibrate.training import Floats, fit, half, mean_error, residuals
from armillary.evidence.calibrate.training_spread import spread_of
from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.machines import MACHINES
from armillary.explore.training.constants import Constants
from armillary.explore.training.fitted import constants_of

MOST = 128
"""Most plans that a fit uses; of more, those with the least hashes."""
MOST_ALONE = 3
"""Most plans on one node for each on several: a set may have hundreds of small steps, and a few of those that cost."""
LEAST = 5
"""Fewest rows for a fit."""


@dataclass(frozen=True)
class Calibrated:
    """Constants of a software, with their errors.

    Attributes:
        constants: Fitted to all rows.
        rows: All.
        in_sample: Mean error on them.
        held_out: (distinct plans) ln of predicted over measured, each by constants of the other half.
        folds: What was left out -> constants.
        spread: See `armillary.explore.training.fitted.Spread`.
        on: Devices that rows are of.
    """

    constants: Mapping[str, float]
    rows: int
    in_sample: float
    held_out: Floats
    folds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)
    on: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        """Return the entry of a file."""
        return {
            "constants": rounded(self.constants),
            "rows": self.rows,
            "in_sample": f"{100 * self.in_sample:.2f} %",
            "held_out": f"{100 * mean_error(self.held_out):.2f} %",
            "measured_on": " ".join(self.on),
            "spread": rounded(self.spread),
            "folds": {name: rounded(values) for name, values in self.folds.items()},
        }


def rounded(values: Mapping[str, float]) -> dict[str, float]:
    """Return constants as a file has them."""
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def calibrate(
    cases: Sequence[Case], recipe: Recipe, say: Callable[[str], None] = lambda text: None, *, rounds: int = 8
) -> Calibrated:
    """Fit the constants of a recipe to the rows of a software.

    Rows of one plan, of other releases or repeated, count once, by the one with the median time.

    Raises:
        InputError: there are too few.
    """

    def start(case: Case) -> Constants:
        if not recipe.base:
            return recipe.start
        base = constants_of(recipe.base, MACHINES[case.machine].device).constants
        # Only those of this recipe start afresh.
        return base.changed({name: getattr(recipe.start, name) for name in recipe.names})

    known = [case for case in cases if _possible(case, start)]
    plans = _plans(known)
    distinct = sample([_middle(rows) for rows in plans.values()])
    if len(distinct) < LEAST:
        raise InputError(f"{len(distinct)} plans: expected at least {LEAST} to fit {', '.join(recipe.names)}")
    whole = fit(distinct, start, recipe.names, rounds=rounds)
    say(f"{len(distinct)} plans: {rounded(whole.constants)}, error {100 * whole.mean:.1f} %")
    halves = np.array([half(case.label) for case in distinct])
    folds, held = {}, np.zeros(len(distinct))
    for side in (0, 1):
        out = halves == side
        # Constants from one half, residuals on the other: each row is predicted by constants that have not
        # seen it.
        folds[f"half {side}"], held[out] = whole.without(out)
    say(f"held out: error {100 * mean_error(held):.1f} %")
    near = changed(start, whole.constants)
    in_sample = mean_error(residuals(known, near))
    devices = sorted({MACHINES[case.machine].device for case in known})
    spread = spread_of(distinct, held, [plans[_plan(case)] for case in distinct], near)
    return Calibrated(whole.constants, len(known), in_sample, held, folds, spread, devices)


def changed(start: Callable[[Case], Constants], values: Mapping[str, float]) -> Callable[[Case], Constants]:
    """Return a function from cases to the constants of `start`, with some of them replaced."""
    return lambda case: start(case).changed(values)


def sample(cases: Sequence[Case]) -> Sequence[Case]:
    """Return the cases that a fit uses, the same ones each time, see `MOST` and `MOST_ALONE`."""
    # A hash, not chance: the same rows in each run.
    ordered = sorted(cases, key=lambda case: hashlib.sha256(f"fit {case.label}".encode()).digest())
    many = [case for case in ordered if case.npus > MACHINES[case.machine].domain]
    alone = [case for case in ordered if case.npus <= MACHINES[case.machine].domain]
    if len(many) >= LEAST:
        alone = alone[: MOST_ALONE * len(many)]
    return [*many, *alone][:MOST]


def _possible(case: Case, start: Callable[[Case], Constants]) -> bool:
    # Rows that are shown apart are not what a software's constants are for.
    if case.model is None or case.apart:
        return False
    try:
        residuals([case], start)
    except InputError:
        return False
    return True


def _plans(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Return the rows of each plan, by `_plan`."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(_plan(case), []).append(case)
    return found


def _plan(case: Case) -> str:
    assert case.model is not None
    return json.dumps([case.machine, case.npus, case.model.model_dump_json(), case.plan], sort_keys=True)


def _middle(rows: Sequence[Case]) -> Case:
    return sorted(rows, key=Case.seconds)[len(rows) // 2]
