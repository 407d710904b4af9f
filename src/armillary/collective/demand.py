"""What a collective needs of a machine whatever its algorithm: bytes over every cut, and latency.

The members are cut into blocks, by their places in some of the dimensions. What must leave a block, and what must come
into it, follows from the operation alone:

=================  =====================  =====================  ==================================================
of n members,      out of s of them       into s of them         because
=================  =====================  =====================  ==================================================
all-gather         s D                    (n - s) D              each part must come to all others once
reduce-scatter     D (n - s) / n          D s / n                parts may be added up before they leave
all-reduce         D                      D                      the rest needs their sum, they need that of the rest
all-to-all         D s (n - s) / n        D s (n - s) / n        each pair has its own bytes
broadcast          D of the root's        D of the others
reduce             D of the others        D of the root's
scatter, gather    D (n - s) / n of the root's block, D s / n of the others
=================  =====================  =====================  ==================================================

An all-reduce needs more of b blocks together if no switch between them adds up or multiplies what passes: each byte
takes b - 1 additions, which are made where the blocks are, and b - 1 copies, so 2 (b - 1) D leave them (Patarasuk &
Yuan, 2009, section 3). Capacities are those of all links and ports in these dimensions between the blocks. Messages of
two members never leave the dimensions in which they differ: in these they would have to come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import fsum, prod

import numpy as np
from numpy.typing import NDArray

from armillary.platform.collectives import PHYSICAL_COLLECTIVES
from armillary.platform.network import TOPOLOGIES, Dimension, port

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Dims = tuple[int, ...]
_LINES = ("Ring", "Torus", "Mesh")
"""Topologies of which each half is a cut that is known."""
MOST_SUBSETS = 4
"""Dimensions of which every choice is a cut; of more, each of them alone and all together."""
SHORT = 1000
"""Latencies that are shorter than what moves by this factor are left out: then a port binds, and reports name it."""
OPERATIONS = tuple(name for name in PHYSICAL_COLLECTIVES if name != "all-to-all-v")
EVEN = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")
"""Operations in which every member needs the same."""


def plain(operation: str) -> str:
    """Return the operation that moves the same bytes as an operation."""
    return "reduce-scatter" if operation == "reduce-scatter-block" else operation


@dataclass(frozen=True)
class Cut:
    """Blocks of members, and what can go between them.

    Attributes:
        dims: Dimensions in which members of different blocks differ.
        members: (b) members of each block.
        out: Bytes per ns out of each block, (b).
        into: The same into it.
        latency: ns from one block to another, at least.
        npus: NPUs in the blocks, members or not.
        adds: Whether switches between the blocks may add up.
    """

    dims: Dims
    members: Floats
    out: Floats
    into: Floats
    latency: float
    npus: int
    adds: bool

    @property
    def alone(self) -> bool:
        """Whether each block is one NPU."""
        return len(self.members) == self.npus


class Group:
    """Members of collectives on a machine.

    Args:
        coordinates: (dimensions, members) place of each member in each dimension.
        dimensions: Dimensions of the machine.
        delay: ns that every message takes besides.
        anywhere: Messages may take any route, also through dimensions in which their ends do not differ.
    """

    def __init__(
        self, coordinates: Ints, dimensions: Sequence[Dimension], delay: float = 0.0, anywhere: bool = False
    ) -> None:
        self.coordinates, self.dimensions, self.delay, self.anywhere = (
            coordinates,
            dimensions,
            delay,
            anywhere,
        )
        self.adds = [d.in_network is not None for d in dimensions]
        self.n = coordinates.shape[1]
        # With counts NumPy sorts; without it hashes, which takes 16 s for as many million places.
        self.places = [np.unique(row, return_counts=True)[0] for row in coordinates]
        self.spanned: Dims = tuple(d for d, places in enumerate(self.places) if len(places) > 1)
        self.box = prod(len(places) for places in self.places)

    @property
    def grid(self) -> bool:
        """Whether the members fill their places in all dimensions."""
        return bool(self.box == self.n)

    @cached_property
    def cuts(self) -> dict[Dims, Cut]:
        """By the dimensions between the blocks."""
        if self.n < 2:
            return {}
        # Messages that may take any way: only the cut around single members is certain.
        if self.anywhere:
            return {self.spanned: self._cut(self.spanned)}
        return {dims: self._cut(dims) for dims in subsets(self.spanned)}

    @cached_property
    def halves(self) -> list[Cut]:
        """The cut of each ring or line into its two halves."""
        # Halves are known cuts only if members fill a grid and messages stay in their dimension.
        if not self.grid or self.anywhere:
            return []
        return [
            self._half(d)
            for d in self.spanned
            if self.dimensions[d].topology in _LINES and len(self.places[d]) > 2
        ]

    @cached_property
    def farthest(self) -> tuple[float, float]:
        """Latency between the two members that are farthest apart, and from the most central one to its farthest."""
        if self.n < 2:
            return 0.0, 0.0
        most = centre = self.delay
        for d in self.spanned:
            # The centre minimises the distance to its farthest member, dimension by dimension.
            dimension = self.dimensions[d]
            far = TOPOLOGIES[dimension.topology].farthest(self.places[d], dimension.size)
            most += int(far.max()) * dimension.latency
            centre += int(far.min()) * dimension.latency
        if not self.grid:
            # No two members need differ as much as possible in all dimensions.
            least = min((self._latency(d) for d in self.spanned), default=0.0) + self.delay
            return least, least
        return most, centre

    def _latency(self, d: int) -> float:
        return self.dimensions[d].latency * TOPOLOGIES[self.dimensions[d].topology].apart

    def _cut(self, dims: Dims) -> Cut:
        if self.grid:
            count = prod(len(self.places[d]) for d in dims)
            members = np.full(count, self.n / count)
            out, into = (
                # Rates of dimensions add up: an NPU can send in all of them at once.
                sum(np.meshgrid(*(self._rates(d)[way] for d in dims), indexing="ij")).ravel()  # type: ignore[union-attr]
                for way in range(2)
            )
        else:
            blocks, counts = np.unique(self.coordinates[list(dims)], axis=1, return_counts=True)
            members = counts.astype(np.float64)
            out, into = (
                sum(
                    self._rates(d)[way][np.searchsorted(self.places[d], row)]
                    for d, row in zip(dims, blocks, strict=True)
                )
                for way in range(2)
            )
        # Every place in the other dimensions has ports of its own.
        each = prod(len(places) for d, places in enumerate(self.places) if d not in dims)
        latency = self.delay + (0.0 if self.anywhere else min(self._latency(d) for d in dims))
        able = any(self.adds[d] for d in (range(len(self.dimensions)) if self.anywhere else dims))
        return Cut(dims, members, each * out, each * into, latency, len(members) * each, able)

    def _rates(self, d: int) -> tuple[Floats, Floats]:
        """Return what an NPU at each place can send to other places of a dimension, and get from them."""
        dimension, places = self.dimensions[d], self.places[d]
        both, n = port(dimension), len(places)
        if self.anywhere:
            whole = [port(every) for every in self.dimensions]
            out, into = fsum(p.out for p in whole), fsum(p.into for p in whole)
            return np.full(n, out / len(self.spanned)), np.full(n, into / len(self.spanned))
        if dimension.topology == "Switch":
            return np.full(n, both.out), np.full(n, both.into)
        rate = both.slower
        if dimension.topology == "FullyConnected":
            # Links to places without a member carry nothing: n - 1 of size - 1 count.
            links = np.full(n, rate * (n - 1) / (dimension.size - 1))
        elif dimension.topology in _LINES and self._line(d):
            links = np.full(n, rate)
            # A line's end has one neighbour, hence half of the port.
            links[[0, -1]] = rate / 2
        else:
            links = np.full(n, rate)
        return links, links

    def _line(self, d: int) -> bool:
        """Tell whether messages between these places go along a line, whose ends have one neighbour."""
        dimension, places = self.dimensions[d], self.places[d]
        if dimension.topology == "Mesh":
            return True
        # All members within less than half of the ring: the shorter way never closes it.
        gap = np.diff(np.append(places, places[0] + dimension.size)).max()
        return bool(2 * (dimension.size - gap) < dimension.size)

    def _half(self, d: int) -> Cut:
        places = len(self.places[d])
        split = np.array([places // 2, places - places // 2])
        each = self.n // places
        # Half of a ring is cut at two links, half of a line at one.
        rate = each * port(self.dimensions[d]).slower / (2 if self._line(d) else 1)
        both = np.full(2, rate)
        members = (split * each).astype(np.float64)
        return Cut((d,), members, both, both, self.delay + self._latency(d), self.n, self.adds[d])


def subsets(dims: Dims) -> list[Dims]:
    """Return the choices of dimensions that make cuts."""
    if len(dims) > MOST_SUBSETS:
        return [*((d,) for d in dims), dims]
    return [chosen for count in range(1, len(dims) + 1) for chosen in combinations(dims, count)]


@dataclass(frozen=True)
class Demand:
    """What must go over a cut, in bytes.

    Attributes:
        out: Out of all blocks together.
        into: Into all blocks together.
        worst: ns of the block for which it takes longest.
        each: Out of and into every block, at least; (0, 0) where that differs.
        ends: ns of the block that is joined worst, out of it and into it; (0, 0) where not all blocks need the same.
    """

    out: float
    into: float
    worst: float
    each: tuple[float, float] = (0.0, 0.0)
    ends: tuple[float, float] = (0.0, 0.0)

    def ns(self, cut: Cut) -> tuple[float, float, float, float]:
        """Return four times that add up over the operations of a group.

        Those that the ports and links of all blocks together need, out of the blocks and into them, and `ends`.
        """
        return self.out / float(cut.out.sum()), self.into / float(cut.into.sum()), *self.ends


def demand(cut: Cut, operation: str, size: float) -> Demand:
    """Return what an operation needs of a cut.

    Args:
        cut: See `Cut`.
        operation: As `plain` names it.
        size: D, see `collective.rounds`.
    """
    s, n, b = cut.members, float(cut.members.sum()), len(cut.members)
    if operation in EVEN:
        out, into = {
            # Rows of the table in the module docstring.
            "all-gather": (s * size, (n - s) * size),
            "reduce-scatter": ((n - s) / n * size, s / n * size),
            "all-reduce": (np.full(b, size), np.full(b, size)),
            "all-to-all": (s * (n - s) / n * size,) * 2,
        }[operation]
        ends = float((out / cut.out).max()), float((into / cut.into).max())
        worst = max(ends)
        # With blocks of different sizes the worst ends of different operations cannot be added up.
        if s.min() < s.max():
            ends = (0.0, 0.0)
        total = float(out.sum()), float(into.sum())
        if operation == "all-reduce" and not cut.adds:
            # Each byte needs b - 1 additions and b - 1 copies between the blocks (module docstring).
            total = (2.0 * (b - 1) * size,) * 2
        return Demand(*total, worst, (float(out.min()), float(into.min())), ends)
    # Of a root that may be anywhere: the block with most capacity and, of two, the one with more members.
    outward = operation in ("broadcast", "scatter")
    ports, back = (cut.out, cut.into) if outward else (cut.into, cut.out)
    # The root may be in the best block, so the second best bounds the others.
    others = float(np.sort(back)[1])
    if operation in ("broadcast", "reduce"):
        worst, moved = max(size / float(ports.max()), size / others), (size, (b - 1) * size)
    elif operation in ("gather", "scatter"):
        rest = (n - float(s.max())) / n * size
        worst, moved = rest / float(ports.max()), (rest, rest)
    else:
        worst, moved = 0.0, (0.0, 0.0)
    return Demand(*(moved if outward else moved[::-1]), worst)


def demand_of_splits(cut: Cut, block: Ints, splits: Ints) -> Demand:
    """Return what an all-to-all with sizes of its own needs; `block` is that of each member."""
    between = np.zeros((len(cut.members),) * 2)
    np.add.at(between, (block[:, None], block[None, :]), splits)
    np.fill_diagonal(between, 0)
    out, into = between.sum(axis=1), between.sum(axis=0)
    worst = max(float((out / cut.out).max()), float((into / cut.into).max()))
    return Demand(float(out.sum()), float(into.sum()), worst)


def block_of(group: Group, dims: Dims) -> Ints:
    """Return the block of each member in the cut of some dimensions, in the order of `Cut.members`."""
    number: Ints = np.unique(group.coordinates[list(dims)], axis=1, return_inverse=True)[1].ravel()
    return number


def least_ns(group: Group, operation: str, size: float, splits: Ints | None = None) -> float:
    """Return the ns that an operation takes on an idle machine at least, whatever the algorithm."""
    if group.n < 2:
        return 0.0
    found = [0.0]
    if splits is None:
        apart, centre = group.farthest
        # A rooted operation may have the most central member as its root.
        found.append(apart if operation in EVEN or operation == "barrier" else centre)
    for cut in _all(group):
        if splits is None:
            need = demand(cut, operation, size)
        elif len(cut.members) == 2 and cut in group.halves:
            # `block_of` knows the blocks of dimensions, not the halves of one.
            continue
        else:
            need = demand_of_splits(cut, block_of(group, cut.dims), splits)
        moving = max(need.worst, *need.ns(cut))
        if moving:
            # See SHORT: a latency too small to matter must not hide which port binds.
            found.append(moving + (cut.latency if moving < SHORT * cut.latency else 0.0))
    return max(found)


def _all(group: Group) -> Iterable[Cut]:
    yield from group.cuts.values()
    yield from group.halves
