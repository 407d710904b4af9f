"""Collectives in switches on a graph: a tree for every line, and how many segments go through it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from armillary.collective.rounds import ABSENT, SwitchTree
from armillary.engine.physical.jobs import PhysicalPhase
from armillary.errors import InputError
from armillary.platform.bandwidth import ports
from armillary.platform.model import InNetwork, Platform
from armillary.platform.topology import Topology
from armillary.platform.topology.aggregation import Aggregation, AggregationTree, capable_switches
from armillary.platform.topology.description import Network

Ints = NDArray[np.int64]
FILL = 1000
"""Segments of all chunks together per level of a tree, at most: to fill and empty it takes one part in so many then."""
SMALLEST = 4096
"""Bytes of a segment, at least."""
AT_ONCE = 32
"""Chunks under way at a time that hide the latency of each other's segments, at most."""


@dataclass(frozen=True)
class SwitchLine:
    """The trees of one line of NPUs."""

    trees: tuple[SwitchTree, ...]
    nodes: Ints
    """(members and switches) nodes of the graph, as the trees number them."""


@dataclass
class SwitchLines:
    """The trees of all lines of a program; `ways` are the links between their nodes, by (source, target)."""

    network: Network
    topology: Topology
    """The graph as it is at first."""
    ways: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
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
                    self.ways.setdefault((node, parent), tree.up[node])
                    self.ways.setdefault((parent, node), tree.down[node])
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


def segments_of(chunks: int, phase: PhysicalPhase, size: int, platform: Platform, depth: int) -> int:
    """Return in how many segments each chunk of `size` bytes goes through trees of `depth` rounds, bottom to bottom.

    Segments fill the levels of a tree, but each costs a latency: alone, a chunk takes
    t(s) = (s + depth) · (moving / s + latency), least at s = √(depth · moving / latency). Chunks that are under way at
    the same time share the latency.
    """
    moving, latency = moving_of(phase, size, platform), phase.latency
    ability = platform.dimensions[phase.dim].in_network
    limits = (platform.physical.active_chunks, ability.operations if ability else 0, AT_ONCE)
    under_way = min(chunks, *(limit for limit in limits if limit))
    most = min(ceil(FILL * depth / chunks), int(phase.sent * size) // SMALLEST)
    best = sqrt(depth * moving * under_way / latency) if latency > 0 else most
    return max(1, min(most, int(best)))


def moving_of(phase: PhysicalPhase, size: int, platform: Platform) -> float:
    """Return how long the bytes of a chunk are on the wire, ns."""
    port = ports(platform)[phase.dim]
    return float(phase.volume * size) / min(port.out, port.into)
