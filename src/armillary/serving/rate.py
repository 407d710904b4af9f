"""The largest load within a service-level objective: the same requests, closer and closer together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from armillary.base.errors import InputError

DOUBLINGS = 24
"""Factors of 2 by which the load as given may be too small or too large: from a request a day to 100 a second."""
CLOSE = 0.01
"""How close the bounds of the largest load are."""


@dataclass(frozen=True)
class Found:
    """The largest load that was found.

    Attributes:
        speed: By which the time between requests is divided.
        beyond: The least speed that was found to be too much.
        tried: Speed -> share of the requests that meet the objective.
    """

    speed: float
    beyond: float
    tried: dict[float, float]


def largest(good: Callable[[float], float], share: float) -> Found:
    """Return the largest speed at which the share of good requests is at least `share`, to 1 %.

    Loads between are taken to be good if a larger one is: within the noise of a schedule they are.

    Args:
        good: Speed -> share of the requests that meet the objective.
        share: That must.

    Raises:
        InputError: even far apart too few requests are good, or any load is.
    """
    tried: dict[float, float] = {}

    def meets(speed: float) -> bool:
        if speed not in tried:
            tried[speed] = good(speed)
        return tried[speed] >= share

    low = high = 1.0
    if meets(1.0):
        while meets(high):
            low, high = high, 2 * high
            if high > 2.0**DOUBLINGS:
                raise InputError(
                    "find-rate: all requests at once still meet the objective, expected more of them"
                )
    else:
        while not meets(low):
            low, high = low / 2, low
            if low < 2.0**-DOUBLINGS or not _runs(meets, low):
                best = max(tried.values())
                raise InputError(
                    f"find-rate: of requests far apart {100 * best:.3g} % meet the objective, expected "
                    f"{100 * share:g} %: a looser one, or a faster replica"
                )
    while high / low > 1 + CLOSE:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if meets(middle) else (low, middle)
    return Found(low, high, tried)


def _runs(meets: Callable[[float], bool], speed: float) -> bool:
    """Return whether requests can be so far apart: loads are limited, and a faster one of the same ran."""
    try:
        meets(speed)
    except InputError:
        return False
    return True
