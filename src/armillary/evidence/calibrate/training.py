"""Fits the constants of training to measured steps: robust least squares of the logarithms of their ratios."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.predict import seconds
from armillary.explore.training.constants import Constants

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Range:
    """What a constant may be.

    Attributes:
        least: Least value.
        most: Largest.
        width: How far from where the search starts it is expected to be: one standard deviation. Rows decide where
            they say more than that; so a constant that they say nothing of stays where it is, and none runs to an end.
    """

    least: float
    most: float
    width: float


# A machine takes shares of communication up to 1.
RANGES: dict[str, Range] = {
    "sustained": Range(0.4, 1.0, 0.03),
    "gemm": Range(0.5, 4.0, 0.15),
    "attention": Range(0.4, 8.0, 0.3),
    "hopper": Range(0.5, 4.0, 0.5),
    "memory": Range(0.2, 6.0, 0.5),
    "launch": Range(0.0, 500.0, 20.0),
    "handshake": Range(0.0, 5000.0, 500.0),
    "issue": Range(0.0, 500.0, 50.0),
    "issue_each": Range(0.0, 100.0, 5.0),
    "gap": Range(0.0, 100.0, 3.0),
    "synchronise": Range(0.0, 5000.0, 100.0),
    "communication": Range(0.0, 1.0, 0.3),
    "communication_inside": Range(0.0, 1.0, 0.5),
    "communication_between": Range(0.0, 1.0, 0.5),
    "overlap_compute": Range(0.0, 1.0, 0.2),
    "overlap_communication": Range(0.0, 1.0, 0.2),
    "overlap_processors": Range(0.0, 60.0, 10.0),
    "overlap_traffic": Range(0.0, 20.0, 2.0),
    "straggler": Range(0.0, 0.3, 0.02),
    "step": Range(0.0, 500.0, 10.0),
}
LOUD = 0.1
"""Residual from which on a case counts less than its square."""
STEP = 0.1
"""Of the search, in widths, to see what a constant does."""
NOISE = 0.06
"""Standard deviation of ln(predicted / measured) that a model without faults would leave: of two runs of one plan in
different releases of Megatron-Bridge."""


def half(label: str) -> int:
    """Return the half of a split that a row belongs to, 0 or 1, by a hash."""
    # The first bit of SHA-256: the same halves on every machine and in every version of Python.
    return hashlib.sha256(label.encode()).digest()[0] & 1


def residuals(cases: Sequence[Case], constants: Callable[[Case], Constants]) -> Floats:
    """Return (cases) ln of predicted over measured."""
    return np.array([np.log(seconds(case, constants(case)) / case.seconds()) for case in cases])


@dataclass(frozen=True)
class Fit:
    """Constants that were fitted, and what they leave.

    Attributes:
        constants: By name.
        residuals: (cases) ln of predicted over measured.
        slopes: (cases, constants) what a width of a constant adds to a residual, there.
        away: (constants) how many widths each is from where the search began.
    """

    constants: Mapping[str, float]
    residuals: Floats
    slopes: Floats
    away: Floats

    @property
    def mean(self) -> float:
        """Mean absolute relative error."""
        return mean_error(self.residuals)

    def without(self, out: NDArray[np.bool_]) -> tuple[Mapping[str, float], Floats]:
        """Return the constants of a fit without some cases, and the residuals of these under them.

        To first order: residuals are taken as linear in the constants near the fit, so that nothing is simulated.
        """
        rows, slopes = self.residuals[~out], self.slopes[~out]
        moved = np.zeros(len(self.away))
        for _ in range(5):
            left = rows + slopes @ moved
            # Weights of the soft L1 loss; each constant is still drawn to where the search began.
            weight = 1 / np.sqrt(1 + (left / LOUD) ** 2)
            normal = slopes.T @ (weight[:, None] * slopes) + NOISE**2 * np.eye(len(moved))
            moved = moved - np.linalg.solve(
                normal, slopes.T @ (weight * left) + NOISE**2 * (self.away + moved)
            )
        values = {
            name: float(np.clip(value + step * RANGES[name].width, RANGES[name].least, RANGES[name].most))
            for (name, value), step in zip(self.constants.items(), moved, strict=True)
        }
        return values, self.residuals[out] + self.slopes[out] @ moved


def mean_error(values: Floats) -> float:
    """Return the mean absolute relative error of logarithms of ratios."""
    # expm1 turns the logarithm of a ratio into a relative error, exactly near 0.
    return float(np.mean(np.abs(np.expm1(values))))


def slopes_at(cases: Sequence[Case], start: Callable[[Case], Constants], names: Sequence[str]) -> Floats:
    """Return (cases, constants) what a width of each constant adds to a residual, where a search would start."""
    here = residuals(cases, start)
    columns = []
    for name in names:
        known = RANGES[name]

        def moved(case: Case, name: str = name, known: Range = known) -> Constants:
            return start(case).changed({name: getattr(start(case), name) + STEP * known.width})

        columns.append((residuals(cases, moved) - here) / STEP)
    return np.stack(columns, axis=1)


def fit(
    cases: Sequence[Case], start: Callable[[Case], Constants], names: Sequence[str], *, rounds: int = 8
) -> Fit:
    """Return the constants of these names that fit best, the others as in `start`.

    Residuals over 10 % count less (soft L1); each constant is drawn to where the search starts, see `Range`.
    """
    from scipy.optimize import least_squares

    ranges = [RANGES[name] for name in names]
    low, high, width = (
        np.array([getattr(each, part) for each in ranges]) for part in ("least", "most", "width")
    )

    # In units of the width of each constant, so that steps of the search are alike.
    def values(x: Floats) -> Mapping[str, float]:
        return dict(zip(names, (float(each) for each in np.clip(x * width, low, high)), strict=True))

    begin = np.clip([getattr(start(cases[0]), name) for name in names], low, high) / width

    def at(x: Floats) -> Floats:
        rows = residuals(cases, lambda case: start(case).changed(values(x)))
        return np.concatenate([rows, NOISE * (x - begin)])

    def slopes(x: Floats) -> Floats:
        # Steps of a tenth of a width: simulated times are whole ns and plans change in jumps, so that smaller ones see
        # noise. Downwards at the upper end.
        here, columns = at(x), []
        for k in range(len(x)):
            step = STEP if x[k] + STEP <= high[k] / width[k] else -STEP
            moved = x.copy()
            moved[k] += step
            columns.append((at(moved) - here) / step)
        return np.stack(columns, axis=1)

    # The first trust region is as large as where the search starts: from 0 alone it would not move.
    found = least_squares(
        at,
        begin if begin.any() else begin + STEP,
        jac=slopes,
        bounds=(low / width, high / width),
        loss="soft_l1",
        f_scale=LOUD,
        x_scale=1.0,
        max_nfev=rounds,
        xtol=1e-3,
        ftol=1e-3,
    )
    count = len(cases)
    return Fit(values(found.x), np.asarray(found.fun[:count]), slopes(found.x)[:count], found.x - begin)
