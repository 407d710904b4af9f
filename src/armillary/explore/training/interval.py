"""Between which times 9 of 10 measured steps are expected."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, isnan, log
from typing import TYPE_CHECKING

from armillary.explore.training.software import Software
from armillary.explore.training.step import Step

if TYPE_CHECKING:
    from armillary.explore.training.train import Prediction

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


def tells_apart(one: Prediction, other: Prediction) -> bool:
    """Return whether two plans of a model on a machine differ by more than the model can tell.

    What a machine and a software do to all plans alike cancels; what remains is `Fitted.within` of each.
    """
    spread = max(each.software.fitted.within for each in (one, other))
    return abs(log(other.step_time_s / one.step_time_s)) > NORMAL * spread * 2**0.5
