"""In which order the chunks of one collective visit the network dimensions, as ASTRA-sim's schedulers choose it.

`greedy_routes` is that program's "offline greedy" (Themis, Rashidi et al., ISCA 2022, section 4): a chunk goes first
through the dimension with the least work so far. What it does differently from the paper is kept, since ticks
are compared; the comments say where.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MIB = 1 << 20
_SMALL = 16
"""A chunk is reordered if what would level the loads is at least this part of it."""


@dataclass(frozen=True)
class Route:
    """The route of one chunk: the order of the dimensions, and its bytes."""

    order: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Collective:
    """What the greedy scheduler knows of a collective.

    Attributes:
        operation: Its name.
        size: Its bytes.
        chunk: Bytes of a chunk, 1 or more; the last one is as large as what is left.
        used: Whether each dimension takes part.
    """

    operation: str
    size: int
    chunk: int
    used: tuple[bool, ...]


def round_robin_orders(dimensions: int, operation: str) -> tuple[tuple[int, ...], ...]:
    """Return the orders that chunks take in turn: the usual one, rotated by 0, 1, … dimensions."""
    order = usual_order(dimensions, operation)
    return tuple(order[turn:] + order[:turn] for turn in range(dimensions))


def usual_order(dimensions: int, operation: str) -> tuple[int, ...]:
    """Return the order without a scheduler: innermost first, an all-gather outermost first."""
    ascending = tuple(range(dimensions))
    return ascending[::-1] if operation == "all-gather" else ascending


def greedy_routes(
    sizes: Sequence[int], bandwidths: Sequence[float], collectives: Sequence[Collective], *, flexible: bool
) -> list[Route]:
    """Return the route of every chunk of the last of some collectives; the work of one counts for those after it.

    Args:
        sizes: NPUs of each dimension.
        bandwidths: Bandwidth of each, in any unit.
        collectives: All-gathers, and such that begin with a reduce-scatter.
        flexible: A reordered chunk is as large as levels the loads (at least what chunks are else).

    Returns:
        Routes whose bytes add up to the size of the collective.
    """
    loads = _Loads(sizes, bandwidths)
    routes: list[Route] = []
    for collective in collectives:
        routes = list(_routes(loads, collective, flexible))
    return routes


def _routes(loads: _Loads, collective: Collective, flexible: bool) -> Iterator[Route]:
    size, chunk = collective.size, collective.chunk
    while size > 0:
        level = loads.sort(collective)
        reorder = level >= (chunk if flexible else chunk // _SMALL)
        moved = min(size, level if flexible and reorder else chunk)
        order = tuple(dim for dim, _ in loads.dims) if reorder else tuple(range(len(loads.dims)))
        # Only the flexible one that goes the usual way counts the last chunk as short as it is.
        counted = chunk if not flexible else level if reorder else moved
        loads.add(collective, counted, reorder)
        size -= moved
        yield Route(order, moved)


class _Loads:
    """The work of every dimension so far, in MiB that the first dimension would move in the same time."""

    def __init__(self, sizes: Sequence[int], bandwidths: Sequence[float]) -> None:
        self.sizes = sizes
        self.relative = [bandwidth / bandwidths[0] for bandwidth in bandwidths]
        self.dims = [(dim, 0.0) for dim in range(len(sizes))]
        """(dimension, load) as last sorted: equal loads keep this order."""

    def sort(self, collective: Collective) -> int:
        """Sort by load, for an all-gather the highest first; returns the bytes that would level the loads."""
        gather = collective.operation == "all-gather"
        self.dims.sort(key=lambda entry: entry[1])
        if gather:
            self.dims.reverse()
        used = [place for place, (dim, _) in enumerate(self.dims) if collective.used[dim]]
        if not used:
            return 0
        # A reduce-scatter compares with the last dimension, used or not.
        last = used[-1] if gather else len(self.dims) - 1
        difference = abs(self.dims[last][1] - self.dims[used[0]][1])
        dim = self.dims[last if gather else used[0]][0]
        # From a difference of loads back to the bytes of a chunk that would make it up on that dimension.
        level = int(difference * self.relative[dim] / self._share(dim, gather) * MIB)
        if gather:
            # As many bytes at the start of the chunk's way: it grows on that way.
            for place in reversed(used[:-1]):
                level //= self.sizes[self.dims[place][0]]
        return level

    def add(self, collective: Collective, size: int, reorder: bool) -> None:
        """Add the work of a chunk of `size` bytes that goes in the order of the sort, or else in the usual one."""
        gather = collective.operation == "all-gather"
        if not reorder:
            self.dims.sort(reverse=gather)
        for place, (dim, load) in enumerate(self.dims):
            # In the usual order that program takes places for dimensions, in an all-gather the wrong ones.
            of = dim if reorder else place
            if collective.used[of]:
                more = size / MIB * self._share(of, gather) / self.relative[of]
                self.dims[place] = (dim, load + more)
                # A reduce-scatter leaves a 1 / n part for the next dimension, an all-gather n times as much.
                size = size * self.sizes[of] if gather else size // self.sizes[of]

    def _share(self, dim: int, gather: bool) -> float:
        n = self.sizes[dim]
        return float(n - 1) if gather else (n - 1) / n
