"""Times of all ranks of a class on several machines at once, as maxima of sums.

A time is an anchor plus work. The anchor has one value for each cell of a partition of the ranks: those that met last
have one time. Work is a chain of kernels since then, and its duration for each rank is computed once per chain, however
often it occurs. The maximum of work over a cell is known as well, so a chain between two meetings of the same groups
costs one addition per cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
MOST_BYTES = 256 << 20
"""Bytes of durations of chains that a class keeps."""


class Kernel(NamedTuple):
    """Ticks of a node, whether the speed of its rank changes them, and the least that it takes."""

    ticks: int
    timed: bool
    least: int


@dataclass(eq=False)
class Chain:
    """Kernels one after the other; chains that begin alike share their beginning."""

    before: Chain | None = None
    kernel: Kernel | None = None
    depth: int = 0
    _longer: dict[Kernel, Chain] = field(default_factory=dict)

    def then(self, kernel: Kernel) -> Chain:
        """Return this chain and one more kernel: the same object for the same kernel."""
        if kernel not in self._longer:
            self._longer[kernel] = Chain(self, kernel, self.depth + 1)
        return self._longer[kernel]

    def begins(self, other: Chain) -> bool:
        """Tell whether `other` is this chain, or goes on from it."""
        at: Chain | None = other
        while at is not None and at.depth > self.depth:
            at = at.before
        return at is self

    def kernels(self) -> Counter[Kernel]:
        """Return how often each kernel occurs."""
        found: Counter[Kernel] = Counter()
        at: Chain | None = self
        while at is not None and at.kernel is not None:
            found[at.kernel] += 1
            at = at.before
        return found


NOTHING = Chain()
"""A chain of no kernels."""


class Partition:
    """Cells of the ranks of a class."""

    def __init__(self, cell: Ints) -> None:
        """Take the cell of each rank, of which there are 0 … n - 1."""
        self.cell, self.n = cell, int(cell.max(initial=-1)) + 1
        self.single = self.n == len(cell) and bool((cell == np.arange(len(cell))).all())
        self._order = np.argsort(cell, kind="stable")
        self.first = np.searchsorted(cell[self._order], np.arange(self.n))
        """Where the ranks of each cell begin, in their order."""
        self.example = self._order[self.first] if self.n else self._order
        """One rank of each cell."""
        self._sides = self._regular()

    def _regular(self) -> tuple[int, int, int] | None:
        """Return (outer, members, inner) if the cell of rank [i, j, k] of an array of that shape is i * inner + k."""
        members, rest = divmod(len(self.cell), max(self.n, 1))
        if rest or members < 2:
            return None
        same = np.flatnonzero(self.cell != np.arange(len(self.cell)))
        inner = int(same[0]) if len(same) else self.n
        if not inner or self.n % inner:
            return None
        sides = self.n // inner, members, inner
        cell = np.arange(self.n).reshape(sides[0], 1, inner)
        return sides if bool((self.cell.reshape(sides) == cell).all()) else None

    def most(self, values: Ints) -> Ints:
        """Return the most of each cell, (machines, cells), of values of ranks."""
        if self.single or values.shape[1] == 1:
            return values
        if self._sides is None:
            found: Ints = np.maximum.reduceat(values.take(self._order, axis=1), self.first, axis=1)
            return found
        machines, (outer, members, inner) = len(values), self._sides
        each = values.reshape(machines, outer, members, inner)
        if inner > 1 or members > outer:
            found = each.max(axis=2)
        else:
            # Seven times as fast as the maximum over a last axis of 8.
            found = np.maximum(each[:, :, 0], each[:, :, 1])
            for at in range(2, members):
                np.maximum(found, each[:, :, at], out=found)
        return found.reshape(machines, self.n)

    def spread(self, values: Ints) -> Ints:
        """Return values of ranks, (machines, ranks), of values of cells."""
        if self.single or values.shape[1] == 1:
            return values
        if self._sides is None:
            return values.take(self.cell, axis=1)
        # A gather takes many times as long.
        outer, members, inner = self._sides
        each = values.reshape(len(values), outer, 1, inner)
        return np.repeat(each, members, axis=2).reshape(len(values), len(self.cell))

    def plus(self, values: Ints, work: Ints) -> Ints:
        """Return the sum of values of cells and of ranks, (machines, ranks)."""
        if work.shape[1] == 1:
            return self.spread(values + work)
        if self.single or self._sides is None or values.shape[1] == 1:
            return self.spread(values) + work
        outer, members, inner = self._sides
        found = values.reshape(len(values), outer, 1, inner) + work.reshape(len(work), outer, members, inner)
        return found.reshape(len(found), len(self.cell))


class Time(NamedTuple):
    """When something ends on each rank of a class: `anchor` (machines, cells) and the work after it."""

    anchor: Ints
    partition: Partition
    chain: Chain = NOTHING


class ClassTimes:
    """Operations on the times of one class of ranks."""

    def __init__(self, stretch: Floats, partitions: dict[int, Partition]) -> None:
        """Take how much longer kernels take, (machines, ranks), and the partitions by axis set."""
        self.stretch, self.partitions = stretch, partitions
        ranks = stretch.shape[1]
        self.alone, self.together = Partition(np.arange(ranks)), Partition(np.zeros(ranks, np.int64))
        self._ticks: dict[Kernel, Ints] = {}
        self._work: dict[Chain, Ints] = {}
        self._most: dict[tuple[Chain, Partition], Ints] = {}
        self._bytes = 0

    def ticks(self, kernel: Kernel) -> Ints:
        """Return the ticks of a kernel on each rank."""
        if kernel not in self._ticks:
            ticks = np.full((1, 1), kernel.ticks, np.int64)
            if kernel.timed:
                ticks = np.ceil(kernel.ticks * self.stretch).astype(np.int64)
            self._ticks[kernel] = np.maximum(ticks, kernel.least)
        return self._ticks[kernel]

    def work(self, chain: Chain) -> Ints:
        """Return the ticks of a chain on each rank."""
        if chain not in self._work:
            if self._bytes > MOST_BYTES:
                self._work.clear()
                self._bytes = 0
            found = np.zeros((1, 1), np.int64)
            for kernel, count in chain.kernels().items():
                found = found + count * self.ticks(kernel)
            self._work[chain] = found
            self._bytes += found.nbytes
        return self._work[chain]

    def of_ranks(self, time: Time) -> Ints:
        """Return a time for each rank."""
        if time.chain is NOTHING:
            return time.partition.spread(time.anchor)
        return time.partition.plus(time.anchor, self.work(time.chain))

    def most(self, time: Time, partition: Partition) -> Ints:
        """Return the latest of each cell of a partition, (machines, cells)."""
        if time.partition is partition or time.partition is self.together or time.anchor.shape[1] == 1:
            if time.chain is NOTHING:
                return time.anchor
            key = time.chain, partition
            if key not in self._most:
                self._most[key] = partition.most(self.work(time.chain))
            return time.anchor + self._most[key]
        return partition.most(self.of_ranks(time))

    def latest(self, times: Iterable[Time]) -> Time:
        """Return the latest of some times."""
        kept: list[Time] = []
        for time in times:
            for at, other in enumerate(kept):
                if other.anchor is time.anchor and other.partition is time.partition:
                    if time.chain.begins(other.chain):
                        break
                    if other.chain.begins(time.chain):
                        kept[at] = time
                        break
            else:
                kept.append(time)
        found = kept[0]
        for time in kept[1:]:
            found = self._later(found, time)
        return found

    def _later(self, one: Time, other: Time) -> Time:
        if one.chain is NOTHING and other.chain is NOTHING:
            for a, b in ((one, other), (other, one)):
                if a.partition is b.partition or a.anchor.shape[1] == 1:
                    return Time(np.maximum(a.anchor, b.anchor), b.partition)
        return Time(np.maximum(self.of_ranks(one), self.of_ranks(other)), self.alone)
