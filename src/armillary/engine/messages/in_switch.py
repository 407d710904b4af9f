"""Collectives in switches on a graph: the trees of every line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.collective.rounds import ABSENT, SwitchTree
from armillary.platform.network import InNetwork
from armillary.platform.topology import Topology
from armillary.platform.topology.aggregation import Aggregation, AggregationTree, capable_switches
from armillary.platform.topology.network import Network

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SwitchLine:
    """The trees of one line of NPUs."""

    trees: tuple[SwitchTree, ...]
    nodes: Ints
    """(members and switches) nodes of the graph, as the trees number them."""


@dataclass
class SwitchLines:
    """The trees of all lines of a program; `links_of` are the links between their nodes, by (source, target)."""

    network: Network
    topology: Topology
    """The graph as it is at first."""
    links_of: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    switches: list[int] = field(default_factory=list)
    """For every line the switches with a limit, one line after the other, by their place in `limits`."""
    known: dict[tuple[int, ...], SwitchLine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.able = capable_switches(self.network)
        self.aggregation = Aggregation(self.topology, list(self.able))
        limited = [node for node, ability in self.able.items() if ability.operations]
        self.place = {node: i for i, node in enumerate(limited)}

    @property
    def limits(self) -> list[int]:
        """Chunks that each switch with a limit works on at a time."""
        return [self.able[node].operations for node in self.place]

    def ability(self, line: SwitchLine) -> InNetwork:
        """Return what the switches of a line can do."""
        return self.able[int(line.nodes[-1])]

    def of(self, members: Iterable[int], what: str) -> SwitchLine:
        """Return the trees of a line.

        Raises:
            InputError: no switch that can reduce joins all of it.
        """
        line = tuple(members)
        if line not in self.known:
            trees = self.aggregation.trees(line)
            if not trees:
                name = self.topology.node_name
                raise InputError(
                    f"{self.topology.called}: {what}: no switch with in_network joins {name(line[0])} to "
                    f"{name(line[-1])} and the others of their group ({len(line)}); expected one, or another algorithm"
                )
            for tree in trees:
                for node, parent in tree.parent.items():
                    # Messages within a tree take the links of the tree and not those of the routing.
                    self.links_of.setdefault((node, parent), tree.up[node])
                    self.links_of.setdefault((parent, node), tree.down[node])
            self.known[line] = _numbered(line, trees)
        return self.known[line]

    def limited(self, line: SwitchLine) -> tuple[int, int]:
        """Add the switches of a line with a limit to `switches`; returns where they begin there, and their number."""
        found = [self.place[node] for node in line.nodes.tolist() if node in self.place]
        self.switches += found
        return len(self.switches) - len(found), len(found)


def _numbered(line: tuple[int, ...], trees: list[AggregationTree]) -> SwitchLine:
    switches = sorted({parent for tree in trees for parent in tree.parent.values()})
    nodes = [*line, *switches]
    number = {node: i for i, node in enumerate(nodes)}
    made = []
    for tree in trees:
        inside = {*tree.parent, *tree.parent.values()}
        above = [number[tree.parent[n]] if n in tree.parent else -1 if n in inside else ABSENT for n in nodes]
        made.append(SwitchTree(tuple(above), tree.share))
    return SwitchLine(tuple(made), np.array(nodes, np.int64))
