"""The unit in which a program counts volumes: a part of a byte, so that rates can be integers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

FRACTION_BITS = 20
MOST_BITS = 61
"""Volumes are counted in parts of a byte that keep them below 2 to this power."""


def bits(largest: int) -> int:
    """Return how many binary digits of a byte are counted where no volume is above `largest` bytes."""
    return max(0, min(FRACTION_BITS, MOST_BITS - largest.bit_length()))


@dataclass(frozen=True)
class Scale:
    """Units per byte."""

    units: int

    def volume(self, size: int | Fraction) -> int:
        """Return bytes in units, rounded up."""
        return ceil(size * self.units)

    def rate(self, rate: float) -> int:
        """Return bytes per ns in units per tick, rounded down."""
        return int(min(rate * self.units, 1 << MOST_BITS))
