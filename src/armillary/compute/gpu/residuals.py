"""What measured GEMMs take beside what the model says, by their size.

A library has some kernels, and rules that choose one by m, n and k. Which sizes get a slow one follows from no data
sheet. So a device keeps the logarithm of measured over predicted time on a lattice of sizes, a few hundred numbers for
thousands of measured GEMMs; between its points it follows straight lines over the logarithms of the sizes.

It holds for kernels like the measured ones, each timed by itself. GEMMs of training steps are of other libraries and
layouts and run under a load that lasts, and those that were measured (SimuMax, 300 us and more) do not follow it: they
would be 3.8 % off with it and are 3.5 % off without on an A100, 5.9 and 5.1 % on a B200.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.base import portable
from armillary.compute.model import Floats

LARGEST = 0.3
"""Largest logarithm: a residual beyond it is a fault of the model, or of the measurement."""
FADING = 1.0
"""Powers of two beyond the ends of the lattice within which the residuals go to 0: nothing was measured there."""
SIBLING = 0.5
"""Share of its residuals that a device passes on to one with as many SMs.

With half of those of an H100 all tables of an H200 are predicted better (TensorRT-LLM 4.5 to 4.3 % from 20 us on and
5.0 to 4.5 % below, vLLM 6.5 to 6.3 and 6.0 to 5.7, SGLang 8.9 to 8.8 and 10.3 to 10.0); with all of them no more."""


@dataclass(frozen=True)
class Residuals:
    """Residuals of the GEMMs of one precision.

    Attributes:
        m: Sizes at which the lattice has points, increasing; `n` and `k` as well.
        n: See `m`.
        k: See `m`.
        logs: ln(measured / predicted) of the points, along k first, then along n.
        long: Standard deviation of what they leave of long GEMMs of unseen sizes, 0: not known. See `kernel_spread`.
        short: That of short ones.
    """

    m: tuple[int, ...]
    n: tuple[int, ...]
    k: tuple[int, ...]
    logs: tuple[float, ...]
    long: float = 0.0
    short: float = 0.0

    def factors(self, sizes: Floats) -> Floats:
        """Return (GEMMs) measured over predicted time of GEMMs of (GEMMs, 3 or more) m, n, k."""
        places, shares, fading = corners(sizes, (self.m, self.n, self.k))
        found = np.zeros(len(sizes))
        logs = np.array(self.logs)
        # Corner by corner, in a fixed order: sums are the same on every machine.
        for place, share in zip(places, shares, strict=True):
            found = found + share * logs[place]
        factors: Floats = portable.exp(fading * found)
        return factors

    def passed_on(self) -> Residuals:
        """Return those of a device with as many SMs that was not measured."""
        return dataclasses.replace(
            self, logs=tuple(SIBLING * each for each in self.logs), long=0.0, short=0.0
        )


def corners(
    sizes: Floats, knots: Sequence[tuple[int, ...]]
) -> tuple[list[NDArray[np.int64]], list[Floats], Floats]:
    """Return the eight points of a lattice around GEMMs.

    Returns:
        For each corner (GEMMs) its number, and (GEMMs) its share; (GEMMs) how much of it holds: 1 within the lattice.
    """
    axes = [_between(sizes[:, at], own) for at, own in enumerate(knots)]
    places, shares = [], []
    for corner in np.ndindex(2, 2, 2):
        place, share = np.zeros(len(sizes), np.int64), np.ones(len(sizes))
        for (first, beyond, _), step, own in zip(axes, corner, knots, strict=True):
            place = place * len(own) + first + step
            share = share * (beyond if step else 1 - beyond)
        places.append(place)
        shares.append(share)
    fading: Floats = axes[0][2] * axes[1][2] * axes[2][2]
    return places, shares, fading


def _between(sizes: Floats, knots: tuple[int, ...]) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return the knot before each size, how far it is on the way to the next, and how much of the lattice holds."""
    at = portable.log2(np.array(knots, np.float64))
    given = portable.log2(np.maximum(sizes.astype(np.float64), 1.0))
    place = np.clip(given, at[0], at[-1])
    first = np.clip(np.searchsorted(at, place, side="right") - 1, 0, len(at) - 2)
    holds: Floats = np.maximum(1 - np.abs(given - place) / FADING, 0.0)
    return first, (place - at[first]) / (at[first + 1] - at[first]), holds
