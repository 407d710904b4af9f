"""A fit: how long collectives and messages take on one kind of machine, by what was measured on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from armillary.collective.fitted.regimes import Curve, Terms, at_members, share
from armillary.collective.fitted.sheet import DataSheet

OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send")
"""What a fit can be asked for."""

STAND_INS = {
    "reduce-scatter": ("all-gather",),
    "all-gather": ("reduce-scatter",),
    "send": ("all-to-all",),
    "broadcast": ("all-gather", "reduce-scatter"),
    "reduce": ("reduce-scatter", "all-gather"),
    "gather": ("all-gather", "reduce-scatter"),
    "scatter": ("reduce-scatter", "all-gather"),
}
"""Where an operation was not measured: those whose terms it takes, with its own number of bytes."""


@dataclass(frozen=True)
class CollectiveTime:
    """How long a collective takes; the total is the sum of both parts.

    Attributes:
        latency_ns: Part that no bandwidth shortens.
        transfer_ns: Part for which links are busy.
        regime: Which part of the fit says so, for people.
    """

    latency_ns: float
    transfer_ns: float
    regime: str

    @property
    def total_ns(self) -> float:
        """Latency and transfer."""
        return self.latency_ns + self.transfer_ns


@dataclass(frozen=True)
class Network:
    """What is between the nodes.

    Attributes:
        nic: Bytes per ns that a GPU's own NIC carries each way, as measured.
        latency: ns of a step between two nodes.
        ramp: ns that a pipeline over more than one node takes to fill, on top.
    """

    nic: float
    latency: float
    ramp: float


@dataclass(frozen=True)
class CollectiveFit:
    """Times of collectives on one kind of machine.

    Attributes:
        name: Of its file.
        sheet: Of its device.
        inside: Operation -> members -> regimes, within a node.
        network: Between nodes; None: nothing is known.
        sources: What it was fitted to.
    """

    name: str
    sheet: DataSheet
    inside: Mapping[str, Mapping[int, Curve]]
    network: Network | None
    sources: tuple[str, ...] = ()

    def time(self, operation: str, per_node: int, nodes: int, size: float) -> CollectiveTime | None:
        """Return how long a collective takes alone, or None if the fit cannot tell.

        Args:
            operation: One of `OPERATIONS`, or reduce, gather, scatter.
            per_node: Members in each node; a message: 2 within a node, 1 between two nodes.
            nodes: How many nodes they are in.
            size: Bytes, as nccl-tests count them: of the larger buffer (all-gather: its output, reduce-scatter: its
                input); of a message: its own.
        """
        members = per_node * nodes
        if members <= 1 or size <= 0:
            return CollectiveTime(0.0, 0.0, "nothing to send")
        used = self._measured(operation)
        if used is None:
            return None
        note = "" if used == operation else f", as {used}"
        # A message is half of what one of two GPUs holds in an all-to-all.
        asked = size * share(operation, members) / share(used, members)
        if nodes == 1:
            latency, per_byte = at_members(self.inside[used], members, asked)
            sent = size * share(operation, members)
            return CollectiveTime(latency, per_byte * sent, f"{members} GPUs of a node{note}")
        if self.network is None:
            return None
        latency, per_byte = self._between(used, per_node, nodes, asked)
        sent = size * share(operation, members)
        return CollectiveTime(latency, per_byte * sent, f"{nodes} nodes of {per_node}{note}")

    def _measured(self, operation: str) -> str | None:
        for name in (operation, *STAND_INS.get(operation, ())):
            if self.inside.get(name):
                return name
        return None

    def _between(self, operation: str, per_node: int, nodes: int, size: float) -> Terms:
        assert self.network is not None
        net = self.network
        latency, inner = (0.0, 0.0) if per_node == 1 else at_members(self.inside[operation], per_node, size)
        rails = 1 if operation in ("all-to-all", "send") else per_node
        steps = 2 * math.log2(nodes) if operation == "all-reduce" else nodes - 1
        outer = 1 / (net.nic * rails)
        return latency + net.latency * steps + net.ramp, max(inner, outer)
