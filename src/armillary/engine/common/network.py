"""The analytical network: hops and delay of a message without contention; and the unit in which volumes are counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.platform.dimension_topologies import TOPOLOGIES
from armillary.platform.model import Platform
from armillary.platform.network import Dimension

Ranks = NDArray[np.int64]
LIMIT = 1 << 60
"""Ticks and bytes from here on are refused: sums must stay within int64."""


def strides(dimensions: tuple[Dimension, ...]) -> list[int]:
    """Return the rank distance between neighbours of each dimension (dimension 0 is innermost)."""
    result = [1]
    for dimension in dimensions[:-1]:
        result.append(result[-1] * dimension.size)
    return result


def first_difference(dimensions: tuple[Dimension, ...], source: Ranks, destination: Ranks) -> Ranks:
    """Return the first dimension in which two ranks differ: a message is charged for that one only.

    ASTRA-sim's congestion-unaware backend does so (spec: 1(d)); 0 where the ranks are equal.
    """
    result = np.zeros(np.broadcast(source, destination).shape, np.int64)
    # Backwards, so that the lowest dimension in which they differ is written last and wins.
    for d, stride in reversed(list(enumerate(strides(dimensions)))):
        size = dimensions[d].size
        result = np.where((source // stride) % size != (destination // stride) % size, d, result)
    return result


def hops(dimension: Dimension, here: Ranks, there: Ranks) -> Ranks:
    """Return the links that a message crosses from position `here` of one dimension to position `there`."""
    return TOPOLOGIES[dimension.topology].hops(here, there, dimension.size)


def route(dimensions: tuple[Dimension, ...], source: Ranks, destination: Ranks) -> tuple[Ranks, Ranks]:
    """Return (dimension, hops) of the messages from `source` to `destination` (arrays of ranks)."""
    source, destination = np.asarray(source, np.int64), np.asarray(destination, np.int64)
    dimension = first_difference(dimensions, source, destination)
    count = np.zeros(dimension.shape, np.int64)
    for d, stride in enumerate(strides(dimensions)):
        here = dimension == d
        size = dimensions[d].size
        crossed = hops(dimensions[d], source // stride % size, destination // stride % size)
        # Only the first dimension that differs is charged.
        count = np.where(here, crossed, count)
    return dimension, count


def path(dimensions: tuple[Dimension, ...], source: Ranks, destination: Ranks) -> list[Ranks]:
    """Return for every dimension how many of its links lie between two ranks: all that a message crosses."""
    crossed = []
    for dimension, stride in zip(dimensions, strides(dimensions), strict=True):
        here, there = source // stride % dimension.size, destination // stride % dimension.size
        crossed.append(np.where(here == there, 0, hops(dimension, here, there)))
    return crossed


def between(platform: Platform, dims: Iterable[int]) -> bool:
    """Tell whether what crosses these dimensions leaves a node.

    A node is what `collectives.node` says, else the first dimension.
    """
    inner = platform.collectives.fit.inner if platform.collectives.fit else 1
    return any(dim >= inner for dim in dims)


def node_size(platform: Platform) -> int:
    """Return the NPUs per node that the fit of a platform assumes."""
    assert platform.collectives.fit is not None
    return int(
        np.prod([dimension.size for dimension in platform.dimensions[: platform.collectives.fit.inner]])
    )


def delay(dimensions: tuple[Dimension, ...], dimension: Ranks, hop: Ranks, size: Ranks) -> Ranks:
    """Return ``trunc(hops * latency + bytes / bandwidth)`` in ns, one truncation per message."""
    latency = np.array([d.latency for d in dimensions])[dimension]
    bandwidth = np.array([d.bandwidth for d in dimensions])[dimension]
    # An overflow gives infinity, which `whole_ticks` refuses with a proper message.
    with np.errstate(over="ignore"):
        return whole_ticks(hop * latency + size / bandwidth, "a message")


def whole_ticks(ns: NDArray[np.floating[Any]], what: str) -> Ranks:
    """Cut times to whole ticks.

    Raises:
        InputError: one of them is too long to be counted.
    """
    # `not <` and not `>=`, so that NaN is refused, too.
    if ns.size and not ns.max() < LIMIT:
        raise InputError(f"{what} takes {ns.max():.3g} ns on this machine; expected less than {LIMIT:.3g} ns")
    return ns.astype(np.int64)


FRACTION_BITS = 20
MOST_BITS = 61
"""Volumes are counted in parts of a byte that keep them below 2 to this power."""


def bits(largest: int) -> int:
    """Return how many binary digits of a byte are counted if no volume is above `largest` bytes."""
    return max(0, min(FRACTION_BITS, MOST_BITS - largest.bit_length()))


@dataclass(frozen=True)
class Scale:
    """Units per byte: volumes are counted in parts of a byte, so that rates can be integers."""

    units: int

    def volume(self, size: int | Fraction) -> int:
        """Return bytes in units, rounded up."""
        return ceil(size * self.units)

    def rate(self, rate: float) -> int:
        """Return bytes per ns in units per tick, rounded down."""
        # Rates may be as good as infinite; clipped to what int64 holds.
        return int(min(rate * self.units, 1 << MOST_BITS))
