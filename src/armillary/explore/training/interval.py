"""Between which times 9 of 10 measured steps are expected."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, isnan

from armillary.explore.training.software import Software
from armillary.explore.training.step import Step

UNKNOWN = 0.25
"""Standard deviation of the logarithm where no step of a software on a device was measured."""
NORMAL = 1.645
"""Standard deviations on each side of 90 % of a normal distribution."""


def interval_of(step: Step, software: Software, parts: Mapping[str, float]) -> tuple[float, float]:
    """Return the 90 % interval of the time of a step, in s."""
    time, fitted = sum(parts.values()), software.fitted
    if isnan(fitted.low):
        return time * exp(-NORMAL * UNKNOWN), time * exp(NORMAL * UNKNOWN)
    return time * fitted.low, time * fitted.high
