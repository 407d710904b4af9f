"""Trees of switches that add up and multicast the data of a group of NPUs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import fsum
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.platform.network import Dimension, InNetwork
from armillary.platform.topology.graph import Floats, Ints, Topology
from armillary.platform.topology.reach import distances

if TYPE_CHECKING:
    from armillary.platform.topology.network import Network

# A large Clos network has a root per core switch: this bounds the trees that one collective is split over.
MOST_TREES = 16
# Keeps the fractions short.
_PARTS = 64
"""Shares of trees that are not equal are whole parts of this many."""


@dataclass(frozen=True)
class AggregationTree:
    """A tree whose leaves are the NPUs of a group and whose inner nodes are switches that can reduce.

    `up` and `down` are the links between a node and its parent in `parent`, by node: several where switches in
    between only pass on. The root has no parent. `share` is the part of the data that goes through this tree.
    """

    parent: dict[int, int]
    up: dict[int, tuple[int, ...]]
    down: dict[int, tuple[int, ...]]
    share: Fraction


class Aggregation:
    """Finds trees in one graph."""

    def __init__(self, topology: Topology, capable: Sequence[int]) -> None:
        """Take the switches `capable` for those that can reduce."""
        # Sorted: the index into `capable` is the tie rule among roots.
        self.capable = np.array(sorted(capable), np.int64)
        # Other NPUs pass nothing on, even where they do so for messages.
        self.topology = dataclasses.replace(topology, forwards=np.arange(topology.nodes) >= topology.npus)

    @cached_property
    def _far(self) -> Ints:
        """(capable switches, nodes) links from each node to each switch, -1 where it is unreachable."""
        found = [distances(self.topology, root) for root in self.capable.tolist()]
        return np.array(found, np.int64).reshape(len(self.capable), self.topology.nodes)

    def depth(self, members: Sequence[int]) -> int | None:
        """Return the links from the farthest of some NPUs to the nearest switch that all of them reach, or None."""
        # Rows: capable switches; columns: the members.
        far = self._far[:, list(members)]
        # 0 would be the switch itself, -1 an NPU that cannot reach it.
        reached = (far > 0).all(axis=1)
        return int(far[reached].max(axis=1).min()) if reached.any() else None

    def trees(self, members: Sequence[int]) -> list[AggregationTree]:
        """Return aggregation trees over some NPUs that together use the available bandwidth; empty if there are none.

        Roots are the nearest capable switches that all members reach. A tree gets the share of the data that
        its thinnest link has of the bandwidth of all trees; links are given to the widest tree first.
        """
        depth = self.depth(members)
        if depth is None:
            return []
        far = self._far[:, list(members)]
        # All roots at minimal depth: in a fat tree every core switch, each of which gives another tree.
        roots = np.flatnonzero((far > 0).all(axis=1) & (far.max(axis=1) == depth))
        made = [tree for tree in (self._tree(int(i), members) for i in roots) if tree]
        if not made:
            return []
        # The fewest inner nodes: a tree with more of them has extra hops that add nothing.
        fewest = min(len(tree.parent) for tree in made)
        made = [tree for tree in made if len(tree.parent) == fewest]
        left = self.topology.bandwidth.copy()
        chosen: list[tuple[AggregationTree, float]] = []
        # Greedy packing: the widest tree takes its rate from all its links, and the next ones see what is
        # left.
        while made and len(chosen) < MOST_TREES:
            rates = [_rate(tree, left) for tree in made]
            best = int(np.argmax(rates))
            # 1e-6 of the first rate is rounding noise from the subtractions; a tree of that width would carry
            # nothing.
            if rates[best] <= (1e-6 * chosen[0][1] if chosen else 0.0):
                break
            tree = made.pop(best)
            chosen.append((tree, rates[best]))
            left[_links(tree)] -= rates[best]
        return _shared(chosen)

    def _tree(self, root: int, members: Sequence[int]) -> AggregationTree | None:
        """Return the tree of shortest paths to the `root`-th capable switch; None if a link has no way back."""
        graph, far = self.topology, self._far[root]
        hop: dict[int, int] = {}
        waiting: dict[int, list[int]] = {}
        for member in members:
            waiting.setdefault(int(far[member]), []).append(int(member))
        # From the farthest inwards: when a level is handled, all nodes that hang below it are already known.
        for step in range(max(waiting), 0, -1):
            for node in waiting.get(step, []):
                links = np.arange(graph.first_link[node], graph.first_link[node + 1])
                heads = graph.head[links]
                # One link nearer to the root, through switches only, over links that are up.
                fits = (far[heads] == step - 1) & (heads >= graph.npus) & (graph.bandwidth[links] > 0)
                # Prefer a head that is already in the tree (False < True), then low numbers: paths merge as
                # early as they can.
                ways = [(head not in hop, head, link) for head, link in
                        zip(heads[fits].tolist(), links[fits].tolist(), strict=True)]  # fmt: skip
                new, head, link = min(ways)
                hop[node] = link
                # A head may already wait: as a member, or put there by another node of this level.
                if new and step > 1 and head not in waiting.get(step - 1, []):
                    waiting.setdefault(step - 1, []).append(head)
        return self._compressed(hop, int(self.capable[root]), members)

    def _compressed(self, hop: dict[int, int], root: int, members: Sequence[int]) -> AggregationTree | None:
        """Leave out switches that cannot reduce, and those with nothing to add."""
        graph = self.topology
        below = np.bincount([graph.head[link] for link in hop.values()], minlength=graph.nodes)
        # A switch with one child has nothing to add, and one that cannot reduce passes on: both become part
        # of a longer edge.
        works = {s for s in self.capable.tolist() if below[s] > 1} | {root}
        parent: dict[int, int] = {}
        up: dict[int, tuple[int, ...]] = {}
        down: dict[int, tuple[int, ...]] = {}
        # Members first, then inner nodes in order; the root has no parent and is left out.
        for node in [*map(int, members), *sorted(works - {root})]:
            if node not in hop:
                continue
            at, way = node, [node]
            links = []
            # The first step is unconditional: `node` itself may be one of the working switches.
            while at == node or at not in works:
                links.append(hop[at])
                at = int(graph.head[hop[at]])
                way.append(at)
            # The way back, head to tail: way is [node, …, parent], so both slices walk it in reverse.
            back = graph.between(way[:0:-1], way[-2::-1])
            # A one-way link, or one that is down: results could not be multicast over this tree.
            if (back < 0).any() or (graph.bandwidth[back] == 0).any():
                return None
            parent[node], up[node], down[node] = at, tuple(links), tuple(back.tolist())
        return AggregationTree(parent, up, down, Fraction(1))


def _links(tree: AggregationTree) -> list[int]:
    return sorted({link for ways in (tree.up, tree.down) for way in ways.values() for link in way})


def _rate(tree: AggregationTree, left: Floats) -> float:
    """Return what the narrowest link of a tree has left, divided among the tree's edges that cross it."""
    links = [link for ways in (tree.up, tree.down) for way in ways.values() for link in way]
    # A link may carry two edges of the tree where switches in between only pass on.
    used = np.bincount(links, minlength=len(left))
    at = np.flatnonzero(used)
    return float((left[at] / used[at]).min())


def _shared(chosen: list[tuple[AggregationTree, float]]) -> list[AggregationTree]:
    """Give every tree its share of the data."""
    total = fsum(rate for _, rate in chosen)
    # Equal within rounding: exact equal fractions, so that symmetric networks stay symmetric.
    if all(abs(rate - chosen[0][1]) <= 1e-6 * rate for _, rate in chosen):
        return [dataclasses.replace(tree, share=Fraction(1, len(chosen))) for tree, _ in chosen]
    parts = [round(_PARTS * rate / total) for _, rate in chosen]
    # Rounding may miss the whole; the widest tree takes the difference, which is the least relative to it.
    parts[0] += _PARTS - sum(parts)
    return [
        dataclasses.replace(tree, share=Fraction(part, _PARTS))
        for (tree, _), part in zip(chosen, parts, strict=True)
        # A share that rounds to 0 has no data.
        if part
    ]


def named_switches(topology: Topology, names: Sequence[str] | None) -> tuple[int, ...]:
    """Return the switches that names of tiers or of single switches mean; None: all.

    Raises:
        InputError: there is no such switch, or the graph has none at all.
    """
    if topology.nodes == topology.npus:
        raise InputError(f"{topology.name} has no switches, expected in_network with switches only")
    if topology.dimensions:
        raise InputError("expected in_network at a dimension of topology.network, which has the switches")
    if names is None:
        return tuple(range(topology.npus, topology.nodes))
    found: set[int] = set()
    sorts = {tier.name: tier for tier in topology.tiers if tier.first >= topology.npus}
    for name in names:
        if name in sorts:
            found |= set(range(sorts[name].first, sorts[name].first + sorts[name].count))
            continue
        try:
            node = topology.node(name)
        except InputError as error:
            raise InputError(
                f"switches: got '{name}', expected {one_of(sorts)}, or one switch{nearest(name, sorts)}: {error}"
            ) from None
        if node < topology.npus:
            raise InputError(f"switches: got '{name}', an NPU; expected {one_of(sorts)}, or one switch")
        found.add(node)
    return tuple(sorted(found))


def capable_switches(network: Network) -> dict[int, InNetwork]:
    """Return what each switch of a graph can do, for those that can do anything."""
    if network.in_network:
        return dict.fromkeys(network.switches, network.in_network)
    # Tiers of switches are called as `from_dimensions` names them.
    able = {f"{d.name} switch": d.in_network for d in network.topology.dimensions if d.in_network}
    return {
        node: able[tier.name]
        for tier in network.topology.tiers
        if tier.name in able
        for node in range(tier.first, tier.first + tier.count)
    }


def with_in_network(levels: tuple[Dimension, ...], network: Network) -> tuple[Dimension, ...]:
    """Return the levels of a graph, with in-network computing where the nearest common switches are capable."""
    if network.in_network is None:
        return levels
    graph = network.topology
    able = Aggregation(graph, network.switches)
    # Where all switches can do it, both searches are one: the distances are the expensive part.
    every = able if len(network.switches) == graph.nodes - graph.npus else None
    every = every or Aggregation(graph, range(graph.npus, graph.nodes))
    result, stride = [], 1
    for level in levels:
        # NPUs of a level are the first ones of their inner levels: ranks 0, stride, 2 stride, …
        line = range(0, stride * level.size, stride)
        depth = able.depth(line)
        # A level works only if its nearest common switch is capable: otherwise data would climb past it,
        # which a level cannot say.
        works = depth is not None and depth == every.depth(line)
        result.append(dataclasses.replace(level, in_network=network.in_network if works else None))
        stride *= level.size
    return tuple(result)
