"""The per-rank part of a program while it grows: node rows, items, channels, counters."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common import layout_kernel as lk
from armillary.engine.common.nodes import Nodes

Ints = NDArray[np.int64]


@dataclass
class Tables:
    """Growing columns and running totals of the per-rank part of a program."""

    nodes: list[Ints] = field(default_factory=list)
    children: list[Ints] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    items: list[Ints] = field(default_factory=list)
    channels: list[int] = field(default_factory=list)
    comm_times: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    n_items: int = 0
    states: int = 0
    streams: int = 0
    rows: int = 0
    bases: int = 0
    ordinals: int = 0
    instances: int = 0
    instance_items: int = 0
    arrived: int = 0
    pairs: int = 0
    graph_at: dict[int, int] = field(default_factory=dict)
    n_nodes: int = 0
    n_children: int = 0
    comm_ordinals: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    ordinal_at: dict[tuple[int, int], int] = field(default_factory=dict)
    channel_at: dict[Any, int] = field(default_factory=dict)

    def graph(self, nodes: Nodes) -> int:
        """Add the node rows of a graph; returns the number of its first row."""
        if id(nodes) not in self.graph_at:
            self.graph_at[id(nodes)] = self.n_nodes
            rows = np.empty((len(nodes.kind), lk.N_COLUMNS), np.int64)
            rows[:, lk.N_KIND], rows[:, lk.N_SLOT], rows[:, lk.N_TICKS] = nodes.kind, nodes.slot, nodes.ticks
            rows[:, lk.N_ITEM], rows[:, lk.N_INDEGREE] = nodes.item, nodes.indegree
            rows[:, lk.N_CHILD] = nodes.child_ptr[:-1] + self.n_children
            rows[:, lk.N_CHILDREN] = np.diff(nodes.child_ptr)
            self.nodes.append(rows)
            self.children.append(nodes.children)
            self.n_nodes += len(rows)
            self.n_children += len(nodes.children)
        return self.graph_at[id(nodes)]

    def ordinal(self, cls: int, comm: int) -> int:
        """Return the counter of the collectives of a class in a communicator."""
        if (cls, comm) not in self.ordinal_at:
            self.ordinal_at[(cls, comm)] = self.ordinals
            self.comm_ordinals[comm][cls] = self.ordinals
            self.ordinals += 1
        return self.ordinal_at[(cls, comm)]

    def channel(self, key: tuple[Any, ...], sends: int, receives: int) -> int:
        """Return the number of a quotient channel."""
        if key not in self.channel_at:
            self.channel_at[key] = len(self.channel_at)
            self.channels += [self.pairs, key[1], key[2]]
            self.pairs += max(sends, receives)
        return self.channel_at[key]
