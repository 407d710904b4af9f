"""All-gather where all NPUs are alike: one tree, and its translates.

Nested rings, fully connected groups and switches are Cayley graphs of the group of coordinates: adding r to all NPUs
maps links onto links of the same kind. A tree of NPU 0 in which no two sends use a class of links at once is then a
schedule for all, as `tree_kernel` says; the work is that of one root.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.base.jit import Mode, load
from armillary.base.tables import at_least
from armillary.collective.synthesis.edges import Edges
from armillary.collective.synthesis.event_kernel import (
    H_COLUMNS,
    S_END,
    S_HEAP,
    S_MISSING,
    S_RANDOM,
    S_SENDS,
    STATE,
)
from armillary.collective.synthesis.greedy import INTERPRETED_SENDS
from armillary.collective.synthesis.spread import Options, Spread, levels_of, regions_of
from armillary.platform.network import TOPOLOGIES
from armillary.platform.topology.graph import Ints, Topology
from armillary.platform.topology.grids import from_dimensions

AT_ONCE = 1 << 22
"""Sends that are translated at a time."""


@dataclass(frozen=True, eq=False)
class Fold:
    """The edges of NPU 0, its generators, and what they become at every other NPU."""

    edges: Edges
    shape: tuple[int, ...]
    edge: Ints
    """(generators, n) the edge that generator j is at NPU x."""
    kind: Ints
    """(links) class of a link: translation maps links of a class onto each other."""

    @property
    def add(self) -> Ints:
        """(generators, n) where generator j leads from NPU x."""
        return self.edges.target[self.edge]


def fold(edges: Edges) -> Fold | None:
    """Return how edges translate, or None if NPUs are not all alike."""
    topology = edges.topology
    if not _from_dimensions(topology):
        return None
    n, shape = edges.n, topology.shape
    # Edges of NPU 0 come first: they are the generators.
    count = int(np.searchsorted(edges.source, 1))
    if len(edges.source) != count * n:
        return None
    nodes = np.arange(n)
    keys = edges.source * n + edges.target
    rows = []
    for j in range(count):
        # Every other NPU must have the same edges, translated.
        wanted = nodes * n + translate(nodes, np.full(n, edges.target[j]), shape)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        if (keys[at] != wanted).any() or (edges.paths.hops[at] != edges.paths.hops[j]).any():
            return None
        rows.append(at)
    edge = np.stack(rows)
    kind = np.full(topology.links, -1)
    for j in range(count):
        direct = edges.paths.hops[j] == 1
        for i in range(int(edges.paths.hops[j])):
            links = edges.paths.link[edges.paths.first[edge[j]] + i]
            # A direct link is a class per generator; links to and from switches are one class per kind and
            # direction.
            mine = j if direct else count + 2 * int(topology.kind[links[0]]) + (i > 0)
            if ((kind[links] >= 0) & (kind[links] != mine)).any():
                return None
            kind[links] = mine
    return Fold(edges, shape, edge, kind)


def translate(node: Ints, by: Ints, shape: tuple[int, ...]) -> Ints:
    """Return ``node + by`` in the group of coordinates, element by element."""
    found, stride = np.zeros(np.broadcast_shapes(node.shape, by.shape), np.int64), 1
    for size in shape:
        found += (node // stride % size + by // stride % size) % size * stride
        stride *= size
    return found


def tree(folded: Fold, per_npu: int, options: Options, mode: Mode | None = None) -> tuple[Ints, Ints, int]:
    """Return the sends of the chunks of NPU 0 and when they start (ps), and when the last is there.

    A send is ``(source * per_npu + chunk) * generators + generator``.
    """
    edges, add = folded.edges, folded.add
    generators, n = add.shape
    total = (n - 1) * per_npu
    if mode is None:
        mode = "interpreted" if total <= INTERPRETED_SENDS // 8 else "compiled"
    level = levels_of(edges.cost)
    rows, _ = regions_of(edges, level)
    region = rows[level[folded.edge[:, 0]]]
    path_first = edges.paths.first[: generators + 1]
    link = edges.paths.link[: path_first[-1]]
    classes, class_of = np.unique(folded.kind[link], return_inverse=True)
    duration, latency = np.zeros(len(classes), np.int64), np.zeros(len(classes), np.int64)
    duration[class_of], latency[class_of] = edges.duration[link], edges.latency[link]
    port_link, port_of = np.unique(class_of[path_first[:-1]], return_inverse=True)
    # A port may hold every send of its generators at most once.
    room = np.bincount(port_of) * n * per_npu
    pool_first = np.concatenate([[0], np.cumsum(room)])
    covered = np.zeros((int(rows.max()) + 1, per_npu), np.int64)
    covered[rows[:, 0]] = 1
    st = np.zeros(STATE, np.int64)
    st[S_RANDOM], st[S_MISSING] = (options.seed * 7919 + 17) & 0x7FFFFFFF, total
    ports = len(port_link)
    heap = np.zeros(per_npu * H_COLUMNS, np.int64)
    events = load("armillary.collective.synthesis.event_kernel", "interpreted")
    for k in range(per_npu):
        events.push(st, heap, 0, k)
    pool = np.zeros(pool_first[-1], np.int64)
    pools = (pool, pool_first, np.zeros(ports, np.int64), np.zeros_like(pool), np.zeros(ports, np.int64))
    path = (path_first, class_of.astype(np.int64), duration, latency)
    sends = np.zeros(total, np.int64), np.zeros(total, np.int64)
    par = np.array([n, per_npu, generators, options.draws, options.loose, edges.after], np.int64)
    kernel = load("armillary.collective.synthesis.tree_kernel", mode)
    free, again = np.zeros(len(classes), np.int64), np.full(ports, -1)
    more = True
    while more:
        heap = at_least(heap, (int(st[S_HEAP]) + 2 * generators) * H_COLUMNS, "compiled")
        more = kernel.run(
            par, st, heap, port_of.astype(np.int64), port_link.astype(np.int64), rows.ravel(), region.ravel(),
            add.ravel(), covered.reshape(-1), pools, path, free, again, sends,
        )  # fmt: skip
    if st[S_MISSING]:  # regions are never left incomplete: faster edges join all of a region
        raise AssertionError("a tree ended early")
    assert st[S_SENDS] == total
    return *sends, int(st[S_END])


def spread(folded: Fold, per_npu: int, sends: Ints, start: Ints, end: int) -> Spread:
    """Return the sends of all roots: those of `tree`, translated."""
    generators, n = folded.edge.shape
    held, j = sends // generators, sends % generators
    source, k = held // per_npu, held % per_npu
    total = len(sends) * n
    edge, chunk = np.empty(total, np.int32), np.empty(total, np.int32)
    roots = np.arange(n)
    # Translated in portions, which bounds the temporary arrays.
    each = max(1, AT_ONCE // n)
    for first in range(0, len(sends), each):
        part = slice(first, first + each)
        at = translate(source[part, None], roots[None], folded.shape)
        span = slice(first * n, first * n + at.size)
        edge[span] = folded.edge[j[part, None], at].ravel()
        chunk[span] = (roots[None] * per_npu + k[part, None]).ravel()
    return Spread(folded.edges, per_npu, edge, chunk, np.repeat(start, n), end)


def _from_dimensions(topology: Topology) -> bool:
    """Tell whether a graph is that of its dimensions, which look alike from every NPU, with all links as they were."""
    if not topology.dimensions or not all(TOPOLOGIES[d.topology].turns for d in topology.dimensions):
        return False
    built = from_dimensions(topology.dimensions, name=topology.name)
    columns = ("head", "first_link", "bandwidth", "latency")
    return topology.shape == built.shape and all(
        np.array_equal(getattr(topology, column), getattr(built, column)) for column in columns
    )
