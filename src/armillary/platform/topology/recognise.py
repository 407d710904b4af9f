"""Dimensions that a graph was made of, where it is such a graph."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from armillary.platform.network import Dimension, Port
from armillary.platform.topology.graph import Topology
from armillary.platform.topology.grids import from_dimensions

_MOST_DIMENSIONS = 3
_KINDS = ("Ring", "FullyConnected", "Switch")
# Sizes of 3 dimensions are at most some hundreds; each is a comparison of all links.
_MOST_LINKS = 1_000_000


def recognised(topology: Topology) -> tuple[Dimension, ...]:
    """Return up to three nested dimensions (Ring, FullyConnected, Switch) of which a graph is made, innermost first.

    NPUs are in order of rank. An empty tuple: it is no such graph, or links of one dimension differ.
    """
    if topology.dimensions:
        return topology.dimensions
    if topology.links > _MOST_LINKS:
        return ()
    direct, stars = _shape(topology)
    for sizes in _sizes(topology.npus):
        for kinds in itertools.product(_KINDS, repeat=len(sizes)):
            # A ring of 2 or 3 and a full connection are the same links: the first of the kinds is taken.
            if any(kind == "FullyConnected" and size <= 3 for kind, size in zip(kinds, sizes, strict=True)):
                continue
            if found := _fitted(topology, direct, stars, sizes, kinds):
                return found
    return ()


def _sizes(npus: int, most: int = _MOST_DIMENSIONS) -> Iterator[tuple[int, ...]]:
    yield (npus,)
    if most > 1:
        for first in range(2, npus // 2 + 1):
            if npus % first == 0:
                for rest in _sizes(npus // first, most - 1):
                    yield (first, *rest)


def _shape(topology: Topology) -> tuple[dict[tuple[int, int], list[int]], dict[frozenset[int], list[int]]]:
    """Return the links between NPUs, by both, and the links of each switch, by the NPUs around it."""
    direct: dict[tuple[int, int], list[int]] = defaultdict(list)
    ends: dict[int, set[int]] = defaultdict(set)
    of: dict[int, list[int]] = defaultdict(list)
    for link, (tail, head) in enumerate(zip(topology.tail.tolist(), topology.head.tolist(), strict=True)):
        if tail < topology.npus and head < topology.npus:
            direct[tail, head].append(link)
            continue
        for switch, other in ((tail, head), (head, tail)):
            if switch >= topology.npus:
                ends[switch].add(other)
                of[switch].append(link)
    stars: dict[frozenset[int], list[int]] = defaultdict(list)
    for switch, around in ends.items():
        stars[frozenset(around)] += of[switch]
    return direct, stars


def _fitted(
    topology: Topology,
    direct: dict[tuple[int, int], list[int]],
    stars: dict[frozenset[int], list[int]],
    sizes: tuple[int, ...],
    kinds: tuple[str, ...],
) -> tuple[Dimension, ...]:
    plain = [
        Dimension(f"dim{at}", kind, size, 1.0, 0.0)
        for at, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
    ]
    expected = sum(
        2 if kind == "Switch" else (size - 1 if kind != "Ring" else min(size - 1, 2))
        for kind, size in zip(kinds, sizes, strict=True)
    )
    if topology.links != topology.npus * expected:
        return ()
    built = from_dimensions(plain)
    wanted_direct, wanted_stars = _shape(built)
    if direct.keys() != wanted_direct.keys() or stars.keys() != wanted_stars.keys():
        return ()
    if any(len(links) != 1 for links in direct.values()):
        return ()
    links: dict[int, list[int]] = defaultdict(list)
    pairs = [(direct[ends], theirs) for ends, theirs in wanted_direct.items()]
    pairs += [(stars[around], theirs) for around, theirs in wanted_stars.items()]
    for mine, theirs in pairs:
        if len(mine) != len(theirs):
            return ()
        links[int(built.kind[theirs[0]])] += mine
    found = []
    for number, dimension in enumerate(plain):
        at = np.array(links[built.kinds.index(dimension.name)] if dimension.size > 1 else [], np.int64)
        up = at[topology.tail[at] < topology.npus]
        down = at[topology.tail[at] >= topology.npus]
        rates, delays = topology.bandwidth[at], topology.latency[at]
        if not len(at) or len(np.unique(delays)) > 1 or len(np.unique(topology.bandwidth[up])) > 1:
            return ()
        rate, latency = float(rates.min()), float(delays[0])
        if kinds[number] == "Switch":
            if len(np.unique(topology.bandwidth[down])) > 1:
                return ()
            out, into = float(topology.bandwidth[up[0]]), float(topology.bandwidth[down[0]])
            port = Port(out, into) if out != into else None
            found.append(Dimension(dimension.name, "Switch", dimension.size, rate, latency, port))
        else:
            # Both links of a ring of 2 are one of twice the rate in a graph.
            half = 2 if kinds[number] == "Ring" and dimension.size == 2 else 1
            found.append(Dimension(dimension.name, kinds[number], dimension.size, rate / half, latency))
    return tuple(found)
