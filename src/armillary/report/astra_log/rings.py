"""The lines with which ASTRA-sim announces the rings that it builds: of the whole machine, and of groups of ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from armillary.engine.common.timeline import Timeline
from armillary.platform.collectives import COLLECTIVES
from armillary.platform.model import Platform
from armillary.trace import CollectiveType, Graph, NodeType

BUILT = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
"""Collectives in the order in which the program builds their rings."""
_TYPE = {
    "all-reduce": CollectiveType.ALL_REDUCE,
    "reduce-scatter": CollectiveType.REDUCE_SCATTER,
    "all-gather": CollectiveType.ALL_GATHER,
    "all-to-all": CollectiveType.ALL_TO_ALL,
}
assert set(BUILT) == set(COLLECTIVES) == set(_TYPE)


def world_rings(platform: Platform) -> Iterator[str]:
    """Yield a line for each ring of all ranks, as rank 0 sees it: one of each collective in each dimension."""
    sizes = [dimension.size for dimension in platform.dimensions]
    for kind in BUILT:
        if kind in platform.astra_sim.custom:
            yield _world(sizes[0], 1)
            continue
        algorithms = platform.collectives.algorithms.get(kind, ())
        for d, name in enumerate(algorithms):
            if name.startswith("one"):
                yield _world(math.prod(sizes), 1)
                break
            if name != "doubleBinaryTree":
                yield _world(sizes[d], math.prod(sizes[:d]))


def _world(size: int, offset: int) -> str:
    return (
        f"ring of node 0, id: 0 dimension: local total nodes in ring: {size} index in ring: 0 offset: {offset} total "
        f"nodes in ring: {size}"
    )


def group_rings(timeline: Timeline, cls: int, graph: Graph, platform: Platform) -> list[tuple[int, int, int]]:
    """Return when ranks of a class build the ring of a group: tick, group, and which collective, in order.

    Groups of all ranks take the rings of the machine, and a group keeps the ring of a collective.
    """
    codes, names = graph.strings("pg_name")
    known = [int(name) if name.isdecimal() else 0 for name in names] + [0]
    group = np.array(known, np.int64)[codes]
    smaller = [number for number, ranks in platform.groups.items() if len(ranks) < platform.npus]
    node = np.flatnonzero((graph.types == NodeType.COMM_COLL_NODE) & np.isin(group, smaller))
    if not len(node):
        return []
    start, _ = timeline.spans(cls)
    kinds = graph.ints("comm_type", -1)
    found: dict[tuple[int, int], int] = {}
    for each in node[np.lexsort((graph.ids[node], start[node]))].tolist():
        if int(kinds[each]) in _TYPE.values():
            found.setdefault((int(group[each]), int(kinds[each])), int(start[each]))
    return [(tick, number, kind) for (number, kind), tick in found.items()]


def group_ring(platform: Platform, number: int, rank: int) -> str:
    """Return the line of one member of the ring of a group."""
    ranks = platform.groups[number]
    size = len(ranks)
    return (
        f"custom ring, id: {rank}, dimension: local total nodes in ring: {size} index in ring: {ranks.index(rank)} "
        f"total nodes in ring {size}"
    )
