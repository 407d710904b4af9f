"""Rows of training in, a file of constants out: fits of all rows, of halves, and with parts left out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.evidence.calibrate.recipes import Recipe
from armillary.evidence.calibrate.training import Fit, Floats, fit, half, mean_error, residuals
from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.machines import MACHINES
from armillary.explore.training.constants import Constants
from armillary.explore.training.fitted import ALL, constants_of

MOST = 112
"""Most rows that a fit uses; of more, those with the least hashes."""
LEAST = 5
"""Fewest rows for a fit."""
LEFT_OUT = ("halves", "multi-node")
"""What further fits leave out: each half in turn; steps on more GPUs than a node has."""


@dataclass(frozen=True)
class Calibrated:
    """Constants of a software on a device, with their errors.

    Attributes:
        constants: Fitted to all rows.
        rows: All.
        in_sample: Mean error on them.
        held_out: (rows) ln of predicted over measured, each by constants of the other half.
        folds: What was left out -> constants.
    """

    constants: Mapping[str, float]
    rows: int
    in_sample: float
    held_out: Floats
    folds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the entry of a file."""
        found: dict[str, Any] = {
            "constants": rounded(self.constants),
            "rows": self.rows,
            "in_sample": f"{100 * self.in_sample:.2f} %",
        }
        if len(self.held_out) >= LEAST:
            # exp(-residual) is measured over predicted.
            low, high = np.quantile(np.exp(-self.held_out), (0.1, 0.9))
            interval = {
                "low": round(float(low), 4),
                "high": round(float(high), 4),
                "rows": len(self.held_out),
            }
            found |= {"held_out": f"{100 * mean_error(self.held_out):.2f} %", "interval": interval}
        return found | {"folds": {name: rounded(values) for name, values in self.folds.items()}}


def rounded(values: Mapping[str, float]) -> dict[str, float]:
    """Return constants as a file has them."""
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def by_device(cases: Iterable[Case], recipe: Recipe) -> dict[str, list[Case]]:
    """Return the cases that can be predicted, by device.

    Under `ALL` are those of all devices, where they share the constants or one has too few rows for a fit of its own.
    """
    known = [case for case in cases if case.model is not None]
    found: dict[str, list[Case]] = {}
    for case in known:
        found.setdefault(MACHINES[case.machine].device, []).append(case)
    # Devices with enough rows of their own, unless the recipe shares constants.
    alone = {device: mine for device, mine in found.items() if len(mine) >= LEAST and not recipe.pooled}
    # Every device is fitted by itself; else one fit of all rows serves the rest.
    return alone if len(alone) == len(found) else alone | {ALL: known}


def calibrate(
    cases: Sequence[Case], recipe: Recipe, say: Callable[[str], None] = lambda text: None
) -> Calibrated:
    """Fit the constants of a recipe to cases of one device, or of several that share them.

    Raises:
        InputError: there are too few.
    """
    if len(cases) < LEAST:
        raise InputError(f"{len(cases)} rows: expected at least {LEAST} to fit {', '.join(recipe.names)}")

    def start(case: Case) -> Constants:
        if not recipe.base:
            return recipe.start
        base = constants_of(recipe.base, MACHINES[case.machine].device).constants
        # The base has constants of the device; only those of this recipe start afresh.
        return base.changed({name: getattr(recipe.start, name) for name in recipe.names})

    def fitted(some: Sequence[Case], begin: Callable[[Case], Constants], rounds: int) -> Fit:
        return fit(sample(some), begin, recipe.names, rounds=rounds)

    whole = fitted(cases, start, 10)
    say(f"all {len(cases)} rows: {rounded(whole.constants)}, error {100 * whole.mean:.1f} %")

    # Folds start from the fit of all rows, from where a few rounds suffice.
    def near(case: Case) -> Constants:
        return start(case).changed(whole.constants)

    folds: dict[str, Mapping[str, float]] = {}
    held = np.full(len(cases), np.nan)
    for side in (0, 1):
        # Constants from one half, residuals on the other: each row is predicted by constants that have not
        # seen it.
        own = [case for case in cases if half(case.label) != side]
        other = [at for at, case in enumerate(cases) if half(case.label) == side]
        if len(own) < LEAST // 2 or not other:
            continue
        found = fitted(own, near, 4)
        folds[f"half {side}"] = found.constants
        held[other] = residuals([cases[at] for at in other], changed(near, found.constants))
        say(f"half {side} left out: error {100 * mean_error(held[other]):.1f} %")
    # One node: what NVLink joins. The fold asks whether constants of single nodes hold for many.
    single = [case for case in cases if case.npus <= MACHINES[case.machine].domain]
    if LEAST <= len(single) < len(cases):
        folds["multi-node"] = fitted(single, near, 4).constants
    in_sample = mean_error(residuals(cases, near))
    # NaN: rows of a half that could not be fitted.
    return Calibrated(whole.constants, len(cases), in_sample, held[~np.isnan(held)], folds)


def changed(start: Callable[[Case], Constants], values: Mapping[str, float]) -> Callable[[Case], Constants]:
    """Return a function from cases to the constants of `start`, with some of them replaced."""
    return lambda case: start(case).changed(values)


def sample(cases: Sequence[Case]) -> Sequence[Case]:
    """Return at most `MOST` of them, the same ones each time: a quarter on many nodes, if there are so many."""
    if len(cases) <= MOST:
        return cases
    # A hash, not chance: the same rows in each run.
    ordered = sorted(cases, key=lambda case: hashlib.sha256(f"fit {case.label}".encode()).digest())
    many = [case for case in ordered if case.npus > MACHINES[case.machine].domain][: MOST // 4]
    others = [case for case in ordered if case.npus <= MACHINES[case.machine].domain]
    return [*others[: MOST - len(many)], *many]
