"""A network as a directed graph of NPUs and switches, in arrays."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from armillary.base.errors import InputError, nearest
from armillary.base.units import whole
from armillary.platform.network import Dimension

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

UNBOUNDED = int(np.iinfo(np.int64).max)
"""Buffer of a link that never fills."""
# 50 million links take about 2 GB in five arrays of 8 bytes, and more while they are sorted.
MOST_LINKS = 50_000_000


@dataclass(frozen=True)
class Tier:
    """Nodes `first` to `first + count - 1` of one sort, called ``NAME 0``, ``NAME 1`` and so on."""

    name: str
    first: int
    count: int


# eq=False: comparing arrays gives arrays, and identity is what caches need.
@dataclass(frozen=True, eq=False)
class Topology:
    """A directed graph; immutable. Nodes 0 to `npus` - 1 are the NPUs, by rank; the others are switches.

    Links are sorted by the node they leave, so that those of node u are `first_link[u]` to
    `first_link[u + 1]`; a link keeps its number in every variant of a topology. There may be several
    between two nodes.

    Attributes:
        name: E.g. the sort, or the name of a file.
        npus: Number of NPUs.
        first_link: (nodes + 1) where the links of a node begin.
        head: (links) the node a link leads to.
        bandwidth: (links) bytes per ns; 0 is a link that is down.
        latency: (links) ns.
        buffer: (links) bytes that fit at its end, `UNBOUNDED` if no limit is modelled.
        kind: (links) index into `kinds`, which say what a link is, e.g. the name of its dimension.
        kinds: See `kind`.
        tiers: The sorts of nodes, in order; together all nodes.
        forwards: (nodes) whether messages may pass through on the way to others.
        labels: (nodes) names of their own, or empty.
        dimensions: What it was built from, innermost first, or empty.
        host: NPUs of one host, with consecutive ranks; 0: no hosts.
        block: (nodes) part of the machine a node belongs to (host, pod, die), -1 for none: for pictures.
        shape: Sides of the grid of NPUs, innermost first, or empty.
        source: The file, line and key that describe it, or empty.
        planes: Planes over which messages are spread, see `planes`.
        plane: (links) the plane of a link, -1 for none; empty where there is one plane.
    """

    name: str
    npus: int
    first_link: Ints
    head: Ints
    bandwidth: Floats
    latency: Floats
    buffer: Ints
    kind: Ints
    kinds: tuple[str, ...]
    tiers: tuple[Tier, ...]
    forwards: Bools
    labels: tuple[str, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    host: int = 0
    block: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    shape: tuple[int, ...] = ()
    source: str = ""
    planes: int = 1
    plane: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                # Shared between variants of a topology: a write would change all of them.
                value.setflags(write=False)

    @property
    def called(self) -> str:
        """What errors call it."""
        return f"{self.source}: {self.name}" if self.source else self.name

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.first_link) - 1

    @property
    def links(self) -> int:
        """Number of links, one way each."""
        return len(self.head)

    @functools.cached_property
    def tail(self) -> Ints:
        """(links) the node a link leaves."""
        return np.repeat(np.arange(self.nodes), np.diff(self.first_link))

    @functools.cached_property
    def _ends(self) -> Ints:
        # Links are sorted by tail, then head, so that this key is sorted, too: `between` bisects it. The last entry
        # is above every pair, so that what is found is an entry.
        return np.append(self.tail * self.nodes + self.head, self.nodes**2)

    @functools.cached_property
    def incoming(self) -> tuple[Ints, Ints]:
        """(nodes + 1) where the links into a node begin in the second array, (links) link numbers."""
        # Stable: links into a node stay in order of their numbers, which tie rules rely on.
        order = np.argsort(self.head, kind="stable")
        first = np.concatenate([[0], np.cumsum(np.bincount(self.head, minlength=self.nodes))])
        return first, order

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        # Of equal labels the first.
        return {label: node for node, label in reversed(list(enumerate(self.labels)))}

    def node_name(self, node: int) -> str:
        """Return what people call a node, e.g. ``npu 3`` or ``spine 0``."""
        if self.labels:
            return self.labels[node]
        # Tiers are in order of `first`; the last one that begins at or before the node holds it.
        tier = next(tier for tier in reversed(self.tiers) if tier.first <= node)
        return f"{tier.name} {node - tier.first}"

    def link_name(self, link: int) -> str:
        """Return what people call a link."""
        return f"{self.node_name(int(self.tail[link]))} → {self.node_name(int(self.head[link]))}"

    def node(self, name: str | int) -> int:
        """Return the number of a node, given as such or by name.

        Raises:
            InputError: There is no such node.
        """
        if isinstance(name, int):
            if not 0 <= name < self.nodes:
                raise InputError(f"{self.name}: no node {name}, expected 0 to {self.nodes - 1}")
            return name
        if self.labels:
            if (known := self._numbers.get(name)) is not None:
                return known
        else:
            sort, _, number = name.rpartition(" ")
            for tier in self.tiers:
                if tier.name == sort and (at := whole(number)) is not None and at < tier.count:
                    return tier.first + at
        # For the hint: the number that was asked for and the last one of each tier, not a million names.
        names = self.labels or [
            f"{tier.name} {i}"
            for tier in self.tiers
            for i in (number, tier.count - 1)
            if (at := whole(str(i))) is not None and at < tier.count
        ]
        raise InputError(
            f"{self.name}: no node '{name}'{nearest(name, names) or f', expected e.g. {names[0]}'}"
        )

    def between(self, tails: ArrayLike, heads: ArrayLike) -> Ints:
        """Return the first link from each of `tails` to each of `heads` (arrays of nodes), or -1."""
        key = self._ends
        wanted = np.asarray(tails, np.int64) * self.nodes + np.asarray(heads, np.int64)
        at = np.searchsorted(key, wanted)
        found: Ints = np.where(key[at] == wanted, at, -1)
        return found

    def sort_of(self, node: int) -> Literal["npu", "switch"]:
        """Return whether a node is an NPU or a switch."""
        return "npu" if node < self.npus else "switch"


def ranges(first: Ints, count: Ints) -> Ints:
    """Return ``first[i], …, first[i] + count[i] - 1`` for every i, one after the other."""
    ends = np.cumsum(count)
    # Add to a running index, per range, the difference between its first value and where the range begins.
    return np.repeat(first - ends + count, count) + np.arange(ends[-1] if len(ends) else 0)


def check_size(name: str, links: int) -> None:
    """Refuse a graph that would not fit.

    Raises:
        InputError: It has more than `MOST_LINKS` links.
    """
    if links > MOST_LINKS:
        raise InputError(f"{name}: has {links:,} links, expected at most {MOST_LINKS:,}")
