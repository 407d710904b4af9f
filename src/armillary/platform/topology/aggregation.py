"""Trees of switches that add up and multicast the data of a group of NPUs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.platform.network import Dimension, InNetwork
from armillary.platform.topology.graph import Floats, Ints, Topology
from armillary.platform.topology.reach import distances

if TYPE_CHECKING:
    from armillary.platform.topology.network import Network

MOST_TREES = 16
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
        self.capable = np.array(sorted(capable), np.int64)
        # Other NPUs pass nothing on, even where they do so for messages.
        self.topology = dataclasses.replace(topology, forwards=np.arange(topology.nodes) >= topology.npus)

    @cached_property
    def _far(self) -> Ints:
        """(capable switches, nodes) links from each node to each switch, -1 where no way leads."""
        found = [distances(self.topology, root) for root in self.capable.tolist()]
        return np.array(found, np.int64).reshape(len(self.capable), self.topology.nodes)

    def depth(self, members: Sequence[int]) -> int | None:
        """Return the links from the farthest of some NPUs to the nearest switch that all reach; None: there is none."""
        far = self._far[:, list(members)]
        reached = (far > 0).all(axis=1)
        return int(far[reached].max(axis=1).min()) if reached.any() else None

    def trees(self, members: Sequence[int]) -> list[AggregationTree]:
        """Return the trees over some NPUs: as many as together have the bandwidth that is there; none if there is none.

        Roots are the nearest capable switches that all members reach. A tree gets the share of the data that
        its thinnest link has of the bandwidth of all trees; links are given to the widest tree first.
        """
        depth = self.depth(members)
        if depth is None:
            return []
        far = self._far[:, list(members)]
        roots = np.flatnonzero((far > 0).all(axis=1) & (far.max(axis=1) == depth))
        made = [tree for tree in (self._tree(int(i), members) for i in roots) if tree]
        if not made:
            return []
        fewest = min(len(tree.parent) for tree in made)
        made = [tree for tree in made if len(tree.parent) == fewest]
        left = self.topology.bandwidth.copy()
        chosen: list[tuple[AggregationTree, float]] = []
        while made and len(chosen) < MOST_TREES:
            rates = [_rate(tree, left) for tree in made]
            best = int(np.argmax(rates))
            if rates[best] <= (1e-6 * chosen[0][1] if chosen else 0.0):
                break
            tree = made.pop(best)
            chosen.append((tree, rates[best]))
            left[_links(tree)] -= rates[best]
        return _shared(chosen)

    def _tree(self, root: int, members: Sequence[int]) -> AggregationTree | None:
        """Return the tree of shortest ways to the `root`-th capable switch; None where no links lead back."""
        graph, far = self.topology, self._far[root]
        hop: dict[int, int] = {}
        waiting: dict[int, list[int]] = {}
        for member in members:
            waiting.setdefault(int(far[member]), []).append(int(member))
        for step in range(max(waiting), 0, -1):
            for node in waiting.get(step, []):
                links = np.arange(graph.first_link[node], graph.first_link[node + 1])
                heads = graph.head[links]
                fits = (far[heads] == step - 1) & (heads >= graph.npus) & (graph.bandwidth[links] > 0)
                ways = [(head not in hop, head, link) for head, link in
                        zip(heads[fits].tolist(), links[fits].tolist(), strict=True)]  # fmt: skip
                new, head, link = min(ways)
                hop[node] = link
                if new and step > 1 and head not in waiting.get(step - 1, []):
                    waiting.setdefault(step - 1, []).append(head)
        return self._compressed(hop, int(self.capable[root]), members)

    def _compressed(self, hop: dict[int, int], root: int, members: Sequence[int]) -> AggregationTree | None:
        """Leave out switches that cannot reduce, and those with nothing to add."""
        graph = self.topology
        below = np.bincount([graph.head[link] for link in hop.values()], minlength=graph.nodes)
        works = {s for s in self.capable.tolist() if below[s] > 1} | {root}
        parent: dict[int, int] = {}
        up: dict[int, tuple[int, ...]] = {}
        down: dict[int, tuple[int, ...]] = {}
        for node in [*map(int, members), *sorted(works - {root})]:
            if node not in hop:
                continue
            at, way = node, [node]
            links = []
            while at == node or at not in works:
                links.append(hop[at])
                at = int(graph.head[hop[at]])
                way.append(at)
            back = graph.between(way[:0:-1], way[-2::-1])
            if (back < 0).any() or (graph.bandwidth[back] == 0).any():
                return None
            parent[node], up[node], down[node] = at, tuple(links), tuple(back.tolist())
        return AggregationTree(parent, up, down, Fraction(1))


def _links(tree: AggregationTree) -> list[int]:
    return sorted({link for ways in (tree.up, tree.down) for way in ways.values() for link in way})


def _rate(tree: AggregationTree, left: Floats) -> float:
    """Return what the thinnest link of a tree has left, shared where several ways go over it."""
    links = [link for ways in (tree.up, tree.down) for way in ways.values() for link in way]
    used = np.bincount(links, minlength=len(left))
    at = np.flatnonzero(used)
    return float((left[at] / used[at]).min())


def _shared(chosen: list[tuple[AggregationTree, float]]) -> list[AggregationTree]:
    """Give every tree its share of the data."""
    total = sum(rate for _, rate in chosen)
    if all(abs(rate - chosen[0][1]) <= 1e-6 * rate for _, rate in chosen):
        return [dataclasses.replace(tree, share=Fraction(1, len(chosen))) for tree, _ in chosen]
    parts = [round(_PARTS * rate / total) for _, rate in chosen]
    parts[0] += _PARTS - sum(parts)
    return [
        dataclasses.replace(tree, share=Fraction(part, _PARTS))
        for (tree, _), part in zip(chosen, parts, strict=True)
        if part
    ]


def named_switches(topology: Topology, names: Sequence[str] | None) -> tuple[int, ...]:
    """Return the switches that names of sorts or of single ones mean; None: all.

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
    able = {f"{d.name} switch": d.in_network for d in network.topology.dimensions if d.in_network}
    return {
        node: able[tier.name]
        for tier in network.topology.tiers
        if tier.name in able
        for node in range(tier.first, tier.first + tier.count)
    }


def with_in_network(levels: tuple[Dimension, ...], network: Network) -> tuple[Dimension, ...]:
    """Return the levels of a graph, with what switches can do at those at which the nearest switches can do it."""
    if network.in_network is None:
        return levels
    graph = network.topology
    able = Aggregation(graph, network.switches)
    every = able if len(network.switches) == graph.nodes - graph.npus else None
    every = every or Aggregation(graph, range(graph.npus, graph.nodes))
    result, stride = [], 1
    for level in levels:
        line = range(0, stride * level.size, stride)
        depth = able.depth(line)
        works = depth is not None and depth == every.depth(line)
        result.append(dataclasses.replace(level, in_network=network.in_network if works else None))
        stride *= level.size
    return tuple(result)
