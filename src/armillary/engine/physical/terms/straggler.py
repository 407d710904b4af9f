"""The delay of the slowest of many ranks over the mean: a step without slack waits for it."""

from __future__ import annotations

from functools import cache
from statistics import NormalDist


@cache
def slowest(sigma: float, ranks: int) -> float:
    """Return the factor by which the slowest of so many ranks computes longer than the mean: 1 + sigma * E.

    E is the expected largest of `ranks` standard normal numbers, by Blom's approximation: the quantile of
    (n - 3/8) / (n + 1/4) (Statistical Estimates and Transformed Beta-Variables, 1958).
    """
    if not sigma or ranks < 2:
        return 1.0
    return 1 + sigma * NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
