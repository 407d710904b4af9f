"""In which order the chunks of one collective visit the network dimensions, as ASTRA-sim's schedulers choose it.

`greedy_routes` is that program's "offline greedy" (Themis, Rashidi et al., ISCA 2022, section 4): a chunk goes first
through the dimension with the least work so far. What it does differently from the paper is kept, since ticks
are compared; the comments say where.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MIB = 1 << 20
_SMALL = 16
"""A chunk is reordered if what would level the loads is at least this part of it."""


@dataclass(frozen=True)
class Route:
    """How one chunk goes: the order of the dimensions, and its bytes."""

    order: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Machine:
    """What the greedy scheduler knows of a network: NPUs and bandwidth (any unit) of each dimension, and which of
    them the collective uses."""

    sizes: tuple[int, ...]
    bandwidths: tuple[float, ...]
    used: tuple[bool, ...]

    def relative(self, dim: int) -> float:
        """Return the bandwidth of a dimension over that of the first one."""
        return self.bandwidths[dim] / self.bandwidths[0]


def round_robin_orders(dimensions: int, operation: str) -> tuple[tuple[int, ...], ...]:
    """Return the orders that chunks take in turn: the usual one, rotated by 0, 1, … dimensions."""
    order = usual_order(dimensions, operation)
    return tuple(order[turn:] + order[:turn] for turn in range(dimensions))


def usual_order(dimensions: int, operation: str) -> tuple[int, ...]:
    """Return the order without a scheduler: innermost first, an all-gather outermost first."""
    ascending = tuple(range(dimensions))
    return ascending[::-1] if operation == "all-gather" else ascending


def greedy_routes(machine: Machine, operation: str, size: int, chunk: int, *, flexible: bool) -> list[Route]:
    """Return the route of every chunk of a collective.

    Args:
        machine: The network.
        operation: "all-gather", or one that begins with a reduce-scatter.
        size: Bytes of the collective, 1 or more.
        chunk: Bytes of a chunk, 1 or more; the last one is as large as what is left.
        flexible: A reordered chunk is as large as levels the loads (at least `chunk`).

    Returns:
        Routes whose bytes add up to `size`.
    """
    loads = _Loads(machine, gather=operation == "all-gather")
    return list(_routes(loads, size, chunk, flexible))


def _routes(loads: _Loads, size: int, chunk: int, flexible: bool) -> Iterator[Route]:
    while size > 0:
        level = loads.sort()
        reorder = level >= (chunk if flexible else chunk // _SMALL)
        moved = min(size, level if flexible and reorder else chunk)
        order = loads.order() if reorder else tuple(range(len(loads.dims)))
        # Only the flexible one that goes the usual way counts the last chunk as short as it is.
        loads.add(moved if flexible and not reorder else level if flexible else chunk, reorder)
        size -= moved
        yield Route(order, moved)


class _Loads:
    """The work of every dimension so far, in MiB that the first dimension would move in the same time."""

    def __init__(self, machine: Machine, *, gather: bool) -> None:
        self.machine, self.gather = machine, gather
        self.dims = [(dim, 0.0) for dim in range(len(machine.sizes))]
        """(dimension, load) as last sorted: equal loads keep this order."""

    def order(self) -> tuple[int, ...]:
        return tuple(dim for dim, _ in self.dims)

    def sort(self) -> int:
        """Sort by load, an all-gather the highest first; returns the bytes that would level the loads."""
        self.dims.sort(key=lambda entry: entry[1])
        if self.gather:
            self.dims.reverse()
        used = [place for place, (dim, _) in enumerate(self.dims) if self.machine.used[dim]]
        if not used:
            return 0
        first = used[0]
        # A reduce-scatter compares with the last dimension, used or not.
        last = used[-1] if self.gather else len(self.dims) - 1
        difference = abs(self.dims[last][1] - self.dims[first][1])
        dim = self.dims[last if self.gather else first][0]
        n = self.machine.sizes[dim]
        share = float(n - 1) if self.gather else (n - 1) / n
        level = int(difference * self.machine.relative(dim) / share * MIB)
        if self.gather:
            # As many bytes at the start of the chunk's way: it grows on that way.
            for place in reversed(used[:-1]):
                level //= self.machine.sizes[self.dims[place][0]]
        return level

    def add(self, size: int, reorder: bool) -> None:
        """Add the work of a chunk of `size` bytes that goes in the order of the sort, or else in the usual one."""
        if not reorder:
            self.dims.sort()
            if self.gather:
                self.dims.reverse()
        for place, (dim, load) in enumerate(self.dims):
            # In the usual order that program takes places for dimensions, in an all-gather the wrong ones.
            of = dim if reorder else place
            if not self.machine.used[of]:
                continue
            n = self.machine.sizes[of]
            share = float(n - 1) if self.gather else (n - 1) / n
            self.dims[place] = (dim, load + size / MIB * share / self.machine.relative(of))
            size = size * n if self.gather else size // n

