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
RANGES: dict[str, tuple[float, float, float]] = {
    "sustained": (0.4, 1.0, 0.1),
    "gemm": (0.5, 4.0, 0.2),
    "attention": (0.4, 8.0, 0.5),
    "memory": (0.2, 6.0, 0.3),
    "launch": (0.0, 500.0, 10.0),
    "handshake": (0.0, 5000.0, 200.0),
    "communication": (0.0, 1.0, 0.1),
    "communication_inside": (0.0, 1.0, 0.1),
    "communication_between": (0.0, 2.0, 0.1),
    "overlap_compute": (0.0, 1.0, 0.1),
    "overlap_communication": (0.0, 1.0, 0.1),
    "overlap_processors": (0.0, 48.0, 4.0),
    "overlap_traffic": (0.0, 6.0, 0.5),
    "straggler": (0.0, 0.3, 0.02),
    "step": (0.0, 500.0, 2.0),
}
"""Least, most, and scale of each constant."""


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
    """

    constants: Mapping[str, float]
    residuals: Floats

    @property
    def mean(self) -> float:
        """Mean absolute relative error."""
        return mean_error(self.residuals)


def mean_error(values: Floats) -> float:
    """Return the mean absolute relative error of logarithms of ratios."""
    # expm1 turns the logarithm of a ratio into a relative error, exactly near 0.
    return float(np.mean(np.abs(np.expm1(values))))


def fit(
    cases: Sequence[Case], start: Callable[[Case], Constants], names: Sequence[str], *, rounds: int = 12
) -> Fit:
    """Return the constants of these names that fit best, the others as in `start`.

    Differences are found by steps of the scale of each constant; residuals over 10 % count less (soft L1).
    """
    from scipy.optimize import least_squares

    low, high, scale = (np.array([RANGES[name][i] for name in names]) for i in range(3))

    # In units of the scale of each constant, so that steps of the search are alike.
    def values(x: Floats) -> Mapping[str, float]:
        return dict(zip(names, (float(each) for each in np.clip(x * scale, low, high)), strict=True))

    def at(x: Floats) -> Floats:
        return residuals(cases, lambda case: start(case).changed(values(x)))

    first = np.clip([getattr(start(cases[0]), name) for name in names], low, high) / scale
    found = least_squares(
        # diff_step 0.02: simulated times are whole ns and plans change in jumps, so that smaller steps see
        # noise.
        at, first, bounds=(low / scale, high / scale), loss="soft_l1", f_scale=0.1, diff_step=0.02, x_scale=1.0,
        max_nfev=rounds, xtol=1e-3, ftol=1e-3,
    )  # fmt: skip
    return Fit(values(found.x), np.asarray(found.fun))
