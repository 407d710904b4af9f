"""What collectives and messages of a program need of the machine, whatever moves them: columns for lower bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.collective.demand import Demand, Dims, Group, demand, demand_of_splits, least_ns, subsets
from armillary.collective.demand import block_of as block_of_members
from armillary.collective.physical import OPERATIONS, plain
from armillary.engine import network
from armillary.engine.communicators import Communicator
from armillary.engine.jobs import Job
from armillary.platform.bandwidth import links_per_npu, ports
from armillary.platform.model import Platform

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
SAFE = 1 - 1e-6
"""Network models count ps per byte in fractions of 20 bits, and sums here are floats."""


@dataclass
class Demands:
    """What is needed of one machine; what was asked is kept."""

    platform: Platform
    _groups: dict[tuple[bytes, tuple[bool, ...] | None], Group] = field(default_factory=dict)
    _grids: dict[tuple[tuple[int, bytes], ...], Group] = field(default_factory=dict)
    _least: dict[tuple[int, str, int], int] = field(default_factory=dict)

    @cached_property
    def anywhere(self) -> bool:
        """Whether a table may send messages any way."""
        graph = self.platform.topology
        return graph is not None and graph.routing == "static"

    @cached_property
    def _dimensions(self) -> tuple[Any, ...]:
        return fastest(self.platform)

    def group(self, job: Job, comm: Communicator) -> Group:
        """Return the members that a job of a communicator joins, at their places."""
        key = comm.members.tobytes(), job.involved
        if key not in self._groups:
            made = self._made(job, comm)
            if made.grid:
                # Groups at the same places need the same.
                at = tuple((d, made.places[d].tobytes()) for d in made.spanned)
                made = self._grids.setdefault(at, made)
            self._groups[key] = made
        return self._groups[key]

    def _made(self, job: Job, comm: Communicator) -> Group:
        platform, fit = self.platform, self.platform.physical.fit
        dimensions = self._dimensions
        sizes = zip(network.strides(dimensions), dimensions, strict=True)
        coordinates = np.array([comm.members // stride % d.size for stride, d in sizes])
        # What was measured may have added up in switches.
        adds = [d.in_network is not None or (fit is not None and d.topology == "Switch") for d in dimensions]
        delay = platform.physical.endpoint_delay
        group = Group(coordinates, dimensions, adds, delay, self.anywhere)
        if job.involved is None or not group.grid:
            return group
        out = [d for d in range(len(dimensions)) if not (d < len(job.involved) and job.involved[d])]
        line = (coordinates[out] == coordinates[out, :1]).all(axis=0)
        return Group(coordinates[:, line], dimensions, adds, delay, self.anywhere)

    def least(self, job: Job, comm: Communicator) -> int:
        """Return the fewest ticks of a collective that has the machine for itself, whatever its algorithm."""
        if plain(job.operation) not in OPERATIONS:
            return 0
        group = self.group(job, comm)
        if job.splits:
            matrix = np.array(job.splits, np.int64)
            return int(least_ns(group, job.operation, job.size, matrix) * SAFE)
        key = id(group), plain(job.operation), job.size
        if key not in self._least:
            self._least[key] = int(least_ns(group, key[1], job.size) * SAFE)
        return self._least[key]

    def message(self, source: int, target: int, size: int) -> int:
        """Return the fewest ticks of a message between two NPUs that have the machine for themselves."""
        latency = moving = 0.0
        hops = network.path(self._dimensions, np.array(source), np.array(target))
        for d, hop, both in zip(self._dimensions, hops, ports(self.platform), strict=True):
            if hop:
                # The two links that join a Ring of 2 are one.
                links = 1 if d.size == 2 and d.topology in ("Ring", "Torus") else links_per_npu(d.topology, d.size)
                rate = min(both.out, both.into) / links
                latency += int(hop) * d.latency
                moving = max(moving, size / rate)
        if self.anywhere:
            latency, moving = 0.0, size / sum(max(each.out, each.into) for each in ports(self.platform))
        return int((latency + self.platform.physical.endpoint_delay + moving) * SAFE)

    def columns(self, plans: Sequence[tuple[int, Job, Communicator]]) -> dict[str, Any]:
        """Return what collectives move over cuts, one row per plan: (number of its communicator, job, members).

        Returns:
            ``cuts`` (list of dimensions), ``call_group`` (p), ``call_bytes`` (p, cuts, 2) out of and into an NPU on
            average, ``call_each`` the same of every NPU at least, and ``call_ns`` (p, cuts, 2) the ns that those take
            which the communicator has.
        """
        groups = [self.group(job, comm) for _, job, comm in plans]
        spans = dict.fromkeys(group.spanned for group in groups if group.spanned)
        every: Dims = tuple(sorted({d for dims in spans for d in dims}))
        cuts = list(dict.fromkeys([*(dims for span in spans for dims in subsets(span)), *([every] if every else [])]))
        found = np.zeros((3, len(plans), len(cuts), 2))
        known: dict[tuple[int, str, int], Floats] = {}
        for p, ((_, job, _), group) in enumerate(zip(plans, groups, strict=True)):
            operation = plain(job.operation)
            if operation not in OPERATIONS or job.size <= 0 or not group.spanned:
                continue
            key = id(group), operation, job.size
            if job.splits:
                found[:, p] = self._needs(group, job, cuts)
                continue
            if key not in known:
                known[key] = self._needs(group, job, cuts)
            found[:, p] = known[key]
        return {
            "cuts": cuts, "call_group": np.array([number for number, _, _ in plans], np.int64),
            "call_bytes": found[0], "call_each": found[1], "call_ns": found[2],
        }  # fmt: skip

    def _needs(self, group: Group, job: Job, cuts: Sequence[Dims]) -> Floats:
        rows = np.zeros((3, len(cuts), 2))
        asked: dict[Dims, Demand] = {}
        for c, dims in enumerate(cuts):
            own = group.spanned if self.anywhere else tuple(d for d in dims if d in group.spanned)
            if own not in group.cuts or (self.anywhere and set(dims) < set(own)):
                continue
            cut = group.cuts[own]
            if own not in asked:
                asked[own] = self._demand(group, job, own)
            need = asked[own]
            rows[0, c] = need.out / cut.npus, need.into / cut.npus
            rows[1, c] = need.each if cut.alone else (0.0, 0.0)
            rows[2, c] = need.mean(cut)
        return rows

    def _demand(self, group: Group, job: Job, dims: Dims) -> Demand:
        if job.splits:
            return demand_of_splits(
                group.cuts[dims], block_of_members(group, dims), np.array(job.splits, np.int64)
            )
        return demand(group.cuts[dims], plain(job.operation), job.size)


def fastest(platform: Platform) -> tuple[Any, ...]:
    """Return the dimensions of a machine with the fastest links that its graph has: of a wafer, between dies or not."""
    from dataclasses import replace

    from armillary.platform.bandwidth import port
    from armillary.platform.model import Port

    graph = platform.topology.topology if platform.topology else None
    if graph is None or len(graph.kinds) < 2 or graph.name not in ("wafer-mesh", "optical-torus"):
        return platform.dimensions
    found = []
    for dimension in platform.dimensions:
        both = port(dimension)
        more = max(1.0, float(graph.bandwidth.max()) / dimension.bandwidth)
        latency = min(dimension.latency, float(graph.latency.min()))
        found.append(replace(dimension, latency=latency, port=Port(both.out * more, both.into * more)))
    return tuple(found)
