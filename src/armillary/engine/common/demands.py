"""What collectives and messages need of the machine, whatever algorithm moves them: columns for lower bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import fsum, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.collective.demand import (
    OPERATIONS,
    Demand,
    Dims,
    Group,
    demand,
    demand_of_splits,
    least_ns,
    plain,
    subsets,
)  # fmt: skip
from armillary.collective.demand import block_of as block_of_members
from armillary.engine.common import network
from armillary.engine.common.network import CollectiveCall, Communicator
from armillary.platform.model import Platform, ports
from armillary.platform.network import TOPOLOGIES, Dimension, Port, links_per_npu, port

Floats = NDArray[np.float64]
SAFE = 1 - 1e-6
"""Network models count ps per byte in fractions of 20 bits, and sums here are floats."""


@dataclass
class Demands:
    """The needs of collectives on one machine; answers are cached."""

    platform: Platform
    _groups: dict[object, tuple[Communicator, Group]] = field(default_factory=dict)
    _grids: dict[object, Group] = field(default_factory=dict)
    _least: dict[tuple[int, str, int], int] = field(default_factory=dict)
    _messages: dict[tuple[int, int, int], int] = field(default_factory=dict)

    @cached_property
    def anywhere(self) -> bool:
        """Whether a routing table may send messages over any links."""
        graph = self.platform.topology
        return graph is not None and graph.routing == "static"

    @cached_property
    def _dimensions(self) -> tuple[Dimension, ...]:
        return fastest(self.platform)

    def group(self, call: CollectiveCall, comm: Communicator) -> Group:
        """Return the members that a call of a communicator joins, at their places."""
        # By identity: a communicator may have as many members as the machine.
        key = id(comm), call.involved, bool(call.splits)
        if key not in self._groups:
            self._groups[key] = comm, self._like(call, comm)
        return self._groups[key][1]

    def _like(self, call: CollectiveCall, comm: Communicator) -> Group:
        """Return the group of a call, the same for groups at the same places: they need the same."""
        places = comm.positions(self._dimensions)
        if prod(map(len, places)) != len(comm.members):
            return self._made(call, comm)
        at = tuple(
            # Behind a switch every place is like every other, but what each member sends to each follows their order.
            (d, len(place) if dimension.topology == "Switch" and not call.splits else place)
            for d, (dimension, place) in enumerate(zip(self._dimensions, places, strict=True))
            if len(place) > 1 and (call.involved is None or any(call.involved[d : d + 1]))
        )
        key = at, bool(call.splits)
        if key not in self._grids:
            self._grids[key] = self._made(call, comm)
        return self._grids[key]

    def _made(self, call: CollectiveCall, comm: Communicator) -> Group:
        platform, dimensions = self.platform, self._dimensions
        sizes = zip(network.strides(dimensions), dimensions, strict=True)
        coordinates = np.array([comm.members // stride % d.size for stride, d in sizes])
        delay = platform.npu.message_delay
        group = Group(coordinates, dimensions, delay, self.anywhere)
        if call.involved is None or not group.grid:
            return group
        # Members meet only along the dimensions that take part; one line stands for all.
        out = [d for d in range(len(dimensions)) if not (d < len(call.involved) and call.involved[d])]
        line = (coordinates[out] == coordinates[out, :1]).all(axis=0)
        return Group(coordinates[:, line], dimensions, delay, self.anywhere)

    def least(self, call: CollectiveCall, comm: Communicator) -> int:
        """Return the fewest ticks of a collective that has the machine for itself, whatever its algorithm."""
        if plain(call.operation) not in OPERATIONS:
            return 0
        found = self._of_links(call, comm)
        if (time := self._measured(call, comm)) is not None:
            # What was measured is what the links of this machine can do.
            found = min(found, int(fsum(time)))
        return found

    def _of_links(self, call: CollectiveCall, comm: Communicator) -> int:
        group = self.group(call, comm)
        if call.splits:
            matrix = np.array(call.splits, np.int64)
            return int(least_ns(group, call.operation, call.size, matrix) * SAFE)
        # Groups are kept in `_groups`, so their ids stay their own.
        key = id(group), plain(call.operation), call.size
        if key not in self._least:
            self._least[key] = int(least_ns(group, key[1], call.size) * SAFE)
        return self._least[key]

    def message(self, source: int, target: int, size: int) -> int:
        """Return the fewest ticks of a message between two NPUs that have the machine for themselves."""
        key = source, target, size
        if key not in self._messages:
            self._messages[key] = self._message(*key)
        return self._messages[key]

    def _message(self, source: int, target: int, size: int) -> int:
        latency = moving = 0.0
        hops = network.path_between(self._dimensions, source, target)
        for d, hop, both in zip(self._dimensions, hops, ports(self.platform), strict=True):
            if hop:
                # The two links that join a Ring of 2 are one.
                links = (
                    1 if d.size == 2 and TOPOLOGIES[d.topology].loop else links_per_npu(d.topology, d.size)
                )
                rate = min(both.out, both.into) / links
                latency += hop * d.latency
                moving = max(moving, size / rate)
        if self.anywhere:
            # A table may use every port at once and links in any order: only the total bandwidth is a bound.
            latency, moving = 0.0, size / fsum(max(each.out, each.into) for each in ports(self.platform))
        least = latency + self.platform.npu.message_delay + moving
        if self.platform.collectives.fit is not None:
            from armillary.engine.common.fits import fitted_message

            if found := fitted_message(self.platform, hops, size):
                rate = port(self.platform.dimensions[found.dim]).slower
                least = min(least, found.latency + float(found.volume) / rate)
        return int(least * SAFE)

    def columns(self, plans: Sequence[tuple[int, CollectiveCall, Communicator]]) -> dict[str, Any]:
        """Return what collectives move over cuts, one row per plan: (number of its communicator, call, members).

        Returns:
            ``cut_dims`` (cuts, dimensions), ``cut_latency`` (cuts), ``call_group`` (p), ``call_bytes`` (p, cuts, 2) out
            of and into an NPU on average, ``call_each`` the same of every NPU at least, ``call_ns`` (p, cuts, 4), see
            `Demand.ns`.
        """
        groups = [self.group(call, comm) for _, call, comm in plans]
        spans = dict.fromkeys(group.spanned for group in groups if group.spanned)
        every: Dims = tuple(sorted({d for dims in spans for d in dims}))
        cuts = list(
            dict.fromkeys([*(dims for span in spans for dims in subsets(span)), *([every] if every else [])])
        )
        through = np.zeros((len(cuts), len(self.platform.dimensions)), np.bool_)
        for c, dims in enumerate(cuts):
            through[c, list(dims)] = True
        bytes_, each, ns = (np.zeros((len(plans), len(cuts), width)) for width in (2, 2, 4))
        # A fit may be faster than the links of the platform, so no latency of theirs is a bound.
        measured = self.platform.collectives.fit is not None
        latencies = [
            0.0 if measured else min((group.cuts[own].latency for group in dict.fromkeys(groups)
                for own in [tuple(d for d in dims if d in group.spanned)] if own in group.cuts), default=0.0)
            for dims in cuts
        ]  # fmt: skip
        known: dict[tuple[int, str, int], tuple[Floats, Floats, Floats]] = {}
        for p, ((_, call, comm), group) in enumerate(zip(plans, groups, strict=True)):
            operation = plain(call.operation)
            if operation not in OPERATIONS or call.size <= 0 or not group.spanned:
                continue
            key = id(group), operation, call.size
            if (time := self._measured(call, comm)) is not None:
                rows = self._as_measured(group, call, cuts, time[1])
            elif call.splits:
                rows = self._needs(group, call, cuts)
            elif key in known:
                rows = known[key]
            else:
                rows = known[key] = self._needs(group, call, cuts)
            bytes_[p], each[p], ns[p] = rows
        return {
            "cut_dims": through, "cut_latency": np.array(latencies, np.float64),
            "call_group": np.array([number for number, _, _ in plans], np.int64),
            "call_bytes": bytes_, "call_each": each, "call_ns": ns,
        }  # fmt: skip

    def _measured(self, call: CollectiveCall, comm: Communicator) -> tuple[float, float] | None:
        """Return latency and transfer of a collective that a fit times, ns; None: none does."""
        if self.platform.collectives.fit is None:
            return None
        from armillary.engine.common.fits import timed

        time = timed(call, comm, self.platform)
        return None if time is None else (time.latency_ns, time.transfer_ns)

    def _as_measured(
        self, group: Group, call: CollectiveCall, cuts: Sequence[Dims], transfer: float
    ) -> tuple[Floats, Floats, Floats]:
        """Return the needs of a measured collective: only of the port that it keeps busy, and at most as measured."""
        bytes_, each, ns = self._needs(group, call, cuts)
        for c, dims in enumerate(cuts):
            if dims != group.spanned[-1:]:
                bytes_[c] = each[c] = ns[c] = 0
                continue
            rate = port(self.platform.dimensions[dims[0]]).slower
            bytes_[c] = each[c] = min(float(bytes_[c].max()), transfer * rate)
            ns[c] = min(float(ns[c].max()), transfer)
        return bytes_, each, ns

    def _needs(
        self, group: Group, call: CollectiveCall, cuts: Sequence[Dims]
    ) -> tuple[Floats, Floats, Floats]:
        bytes_, each, ns = (np.zeros((len(cuts), width)) for width in (2, 2, 4))
        asked: dict[Dims, Demand] = {}
        for c, dims in enumerate(cuts):
            own = group.spanned if self.anywhere else tuple(d for d in dims if d in group.spanned)
            if own not in group.cuts or (self.anywhere and set(dims) < set(own)):
                continue
            cut = group.cuts[own]
            if own not in asked:
                asked[own] = self._demand(group, call, own)
            need = asked[own]
            bytes_[c] = need.out / cut.npus, need.into / cut.npus
            each[c] = need.each if cut.alone else (0.0, 0.0)
            ns[c] = need.ns(cut)
        return bytes_, each, ns

    def _demand(self, group: Group, call: CollectiveCall, dims: Dims) -> Demand:
        if call.splits:
            return demand_of_splits(
                group.cuts[dims], block_of_members(group, dims), np.array(call.splits, np.int64)
            )
        return demand(group.cuts[dims], plain(call.operation), call.size)


def fastest(platform: Platform) -> tuple[Dimension, ...]:
    """Return the dimensions of a machine with the fastest links that its graph has: of a wafer, between dies or not."""
    graph = platform.topology.topology if platform.topology else None
    if graph is None or len(graph.kinds) < 2 or graph.name not in ("wafer-mesh", "optical-torus"):
        return platform.dimensions
    found = []
    for dimension in platform.dimensions:
        both = port(dimension)
        # A bound must hold on the fastest link of a dimension whose links differ.
        more = max(1.0, float(graph.bandwidth.max()) / dimension.bandwidth)
        latency = min(dimension.latency, float(graph.latency.min()))
        found.append(replace(dimension, latency=latency, port=Port(both.out * more, both.into * more)))
    return tuple(found)
