"""Fit the residuals of a GPU's GEMMs: what thousands of measured ones take besides what the model says, by size.

Least squares of logarithms on a coarse lattice, in which outliers count less. Points that few GEMMs tell are drawn to
0, and neighbours to each other. They are kept only where they help shapes of which they have not seen the weights.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from armillary.compute.gpu.residuals import LARGEST, Residuals, corners
from armillary.compute.gpu.spread import SHORT_NS
from armillary.compute.model import Floats, Ints

TOKENS = (1, 16, 64, 256, 1024, 4096, 32768)
WIDTHS = (32, 256, 1024, 4096, 16384, 65536)
"""Sizes of the lattice, as far as they lie within the measured ones, whose ends take the place of the last.

252 points. With 441 held-out GEMMs of 20 us and more are 4.0 % off instead of 4.2 % (A100), 3.8 instead of 3.9 %
(H100), and as far as with 252 on a B200; with 1,053 3.8, 3.8 and 5.1 instead of 5.3 %."""
EACH = 8
"""GEMMs for each point of the lattice, without which there are no residuals."""
_APART = 1.4
# Ratio of sizes below which a point lies too close to the end of the lattice.
_ZERO, _ALIKE = 0.3, 0.03
# How firmly points are drawn to 0 (by as many GEMMs) and to their neighbours (for a factor of two in size).
_SOFT = 0.03
# Logarithm beyond which a GEMM has less weight (soft L1).
_ROUNDS = 6
# Rounds of reweighting; later ones change points by less than what rounds to 1 %.
_FOLDS = 4
_NINETY = 1.645
# Half of a normal interval of 90 %, in standard deviations.


def fit_residuals(sizes: Ints, off: Floats, ns: Floats) -> Residuals | None:
    """Return residuals, or None of too few GEMMs, or such that tell nothing of others.

    Args:
        sizes: (GEMMs, 3) m, n and k.
        off: (GEMMs) ln(measured / predicted).
        ns: (GEMMs) Predicted.
    """
    knots = _knots(sizes)
    if knots is None or len(sizes) < EACH * np.prod([len(each) for each in knots]):
        return None
    left = _left(sizes, off, knots)
    if np.abs(left).mean() >= np.abs(off).mean():
        return None
    short = ns < SHORT_NS
    # By a quantile: a few GEMMs are far off, and intervals of nine of ten are not for them.
    long_spread, short_spread = (
        float(np.quantile(np.abs(left[which]), 0.9)) / _NINETY if which.any() else 0.0
        for which in (~short, short)
    )
    found = _fit(sizes, off, knots)
    return dataclasses.replace(found, long=long_spread or short_spread, short=short_spread or long_spread)


def _knots(sizes: Ints) -> tuple[tuple[int, ...], ...] | None:
    found = []
    for at, own in enumerate((TOKENS, WIDTHS, WIDTHS)):
        low, high = int(sizes[:, at].min()), int(sizes[:, at].max())
        if high < 2 * low:
            return None
        inner = [each for each in own if low * _APART < each < high / _APART]
        found.append((low, *inner, high))
    return tuple(found)


def _left(sizes: Ints, off: Floats, knots: tuple[tuple[int, ...], ...]) -> Floats:
    """Return (GEMMs) what is left of each by residuals of GEMMs with other weights."""
    # All GEMMs of an n and k are left out together: else neighbours in m would tell each other.
    place = np.unique(sizes[:, 1] * 2**32 + sizes[:, 2], return_inverse=True)[1]
    # Knuth's multiplicative hash: weights of a fold come from all over the lattice.
    fold = (place * 2_654_435_761) % 2**32 * _FOLDS // 2**32
    left = off.copy()
    for out in (fold == each for each in range(_FOLDS)):
        if out.any() and not out.all():
            found = _fit(sizes[~out], off[~out], knots)
            left[out] = off[out] - np.log(found.factors(sizes[out].astype(float)))
    return left


def _fit(sizes: Ints, off: Floats, knots: tuple[tuple[int, ...], ...]) -> Residuals:
    shape = tuple(len(each) for each in knots)
    matrix = np.zeros((len(sizes), int(np.prod(shape))))
    places, shares, _ = corners(sizes.astype(float), knots)
    each = np.arange(len(sizes))
    for place, share in zip(places, shares, strict=True):
        matrix[each, place] += share
    firm = _firmness(knots)
    logs: Floats = np.zeros(len(firm))
    weight: Floats = np.ones(len(sizes))
    for _ in range(_ROUNDS):
        weighted = matrix * weight[:, None]
        logs = np.asarray(np.linalg.solve(matrix.T @ weighted + firm, weighted.T @ off), np.float64)
        weight = np.asarray(1 / np.sqrt(1 + ((matrix @ logs - off) / _SOFT) ** 2), np.float64)
    # Whole percent, as files have them.
    rounded = np.round(100 * np.clip(logs, -LARGEST, LARGEST)) / 100
    return Residuals(knots[0], knots[1], knots[2], tuple(rounded.tolist()))


def _firmness(knots: tuple[tuple[int, ...], ...]) -> NDArray[np.float64]:
    """Return the matrix of what holds points back."""
    sides = [len(each) for each in knots]
    found = _ZERO * np.eye(int(np.prod(sides)))
    for at, own in enumerate(knots):
        # Differences of neighbours; points far from each other may differ more.
        steps = np.sqrt(np.diff(np.log2(own)))[:, None]
        apart = (np.eye(len(own))[1:] - np.eye(len(own))[:-1]) / steps
        before, after = (np.eye(int(np.prod(part))) for part in (sides[:at], sides[at + 1 :]))
        found = found + _ALIKE * np.kron(np.kron(before, apart.T @ apart), after)
    return found
