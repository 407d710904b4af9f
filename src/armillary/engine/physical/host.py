"""The path through the host of a node to NICs that are not near, which all groups of the node share.

It is a port of a node, as the stages of a memory are (`armillary.engine.physical.memory`): one that stands for several
groups of a node has a weight there, and classes are refined until nodes of a type hold as many groups of each kind.
Where a group lies unevenly in its nodes every rank is its own class.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.network import node_size
from armillary.engine.physical.memory import GroupPlaces, Groups, node_types
from armillary.platform.model import Platform

Ints = NDArray[np.int64]


def uneven(members: Ints, per_node: int) -> bool:
    """Tell whether a group has more members in one of its nodes than in another."""
    counts = np.unique(members // per_node, return_counts=True)[1]
    return bool(counts.min() < counts.max())


class HostPorts:
    """The host paths of nodes, numbered from `first` on; nodes of a type share one."""

    def __init__(self, platform: Platform, classes: Ints, first: int, groups: Groups) -> None:
        """Number the ports.

        Args:
            platform: The machine.
            classes: Of ranks.
            first: Number of the first port.
            groups: That cross hosts.
        """
        choice = platform.collectives.fit
        self.bandwidth = choice.host.bandwidth if choice and choice.host else 0.0
        self._first, self.count = first, 0
        if not groups:
            return
        self._per_node = node_size(platform)
        self._types = node_types(classes, self._per_node)
        self.count = int(self._types.max()) + 1
        self._groups = GroupPlaces(classes, self._per_node, groups)

    def used(self, members: Ints, slots: Ints) -> list[tuple[int, int, int]]:
        """Return (port, members in its node, groups that this one stands for there) of every type of node."""
        kind = self._groups.kind(members, slots)
        nodes, counts = np.unique(members // self._per_node, return_counts=True)
        found = {
            (self._first + int(self._types[node]), count, self._groups.in_node(kind, node))
            for node, count in zip(nodes.tolist(), counts.tolist(), strict=True)
            # A group with one member in a node has a NIC near it.
            if count > 1
        }
        return sorted(found)

    def rates(self, units: Callable[[float], int]) -> Ints:
        """Return the rates of all ports; `units` makes bytes per ns what the program counts in."""
        return np.full(self.count, units(self.bandwidth) if self.count else 0, np.int64)
