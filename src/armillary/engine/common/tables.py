"""The per-rank part of a program while it grows: node rows, items, channels, counters."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common import layout as lk
from armillary.engine.common.jobs import Job, JobChunks, JobPhase
from armillary.engine.common.nodes import Nodes
from armillary.engine.common.quotient import QuotientComm
from armillary.engine.common.timeline import OPERATIONS

Ints = NDArray[np.int64]


@dataclass(eq=False)
class JobPlan:
    """A job lowered: its row in `plans` and what its collectives need."""

    number: int
    comm: QuotientComm
    source: Job
    job: JobChunks
    first: int
    """Its first row in `phases`; those of one way of the chunks follow those of another."""
    lines: int = 0
    ticks: float = 0.0
    """Ticks of one chunk when nothing else goes on."""

    @property
    def phases(self) -> tuple[JobPhase, ...]:
        """The phases of a chunk on its first way."""
        return self.job.routes[0]

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return self.job.count

    @property
    def routed(self) -> bool:
        """Whether chunks go several ways."""
        return len(self.job.routes) > 1 or bool(self.job.after)

    def rows(self) -> list[tuple[int, int, int, int]]:
        """Return (dimension, operation, bytes sent per NPU, bytes through its port) of its rows in `phases`."""
        return [
            (phase.dim, OPERATIONS.index(phase.operation), _bytes_sent(phase), _bytes_sent(phase))
            for route in self.job.routes
            for phase in route
        ]


def _bytes_sent(phase: JobPhase) -> int:
    """Bytes that a member sends, the mean where members differ; 0 for a custom collective, whose trace says."""
    if not phase.schedules:
        return 0
    schedule = phase.schedules[0]
    members = range(schedule.n if schedule.relative == "absolute" else 1)
    return sum(schedule.bytes_sent(member, phase.size) for member in members) // len(members)


@dataclass
class Tables:
    """Growing columns and running totals of the per-rank part of a program."""

    nodes: list[Ints] = field(default_factory=list)
    children: list[Ints] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    items: list[Ints] = field(default_factory=list)
    channels: list[int] = field(default_factory=list)
    comm_plans: dict[int, list[JobPlan]] = field(default_factory=lambda: defaultdict(list))
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
