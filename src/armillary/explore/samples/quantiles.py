"""Quantiles of samples, and between which samples the quantile of the distribution lies."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, lgamma, log

LEVELS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
CONFIDENCE = 0.9


def quantile(ordered: Sequence[int], share: float) -> int:
    """Return the least sample that at least this share of the samples does not exceed."""
    return int(ordered[max(ceil(share * len(ordered) - 1e-9) - 1, 0)])


def interval(ordered: Sequence[int], share: float) -> tuple[int | None, int | None]:
    """Return two samples between which the quantile lies with 90 % probability; None: there are too few samples.

    How many of n samples are below the quantile is binomial, whatever the distribution (David and Nagaraja, Order
    Statistics, 2003, section 7.1).
    """
    n, tail = len(ordered), (1 - CONFIDENCE) / 2
    chances = [
        exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(share) + (n - k) * log(1 - share))
        for k in range(n + 1)
    ]
    # `low` samples are below the quantile but for a chance of `tail`; likewise from above.
    low, below = 0, chances[0]
    while low < n and below <= tail:
        low += 1
        below += chances[low]
    high, above = n, chances[n]
    while high > 0 and above <= tail:
        high -= 1
        above += chances[high]
    return (
        int(ordered[low - 1]) if low else None,
        int(ordered[high]) if high < n else None,
    )
