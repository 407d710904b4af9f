"""A fit: how long collectives and messages take on one kind of machine, by what was measured on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from armillary.base import units
from armillary.collective.fitted.between import Spanning
from armillary.collective.fitted.regimes import Curve, at_members, share
from armillary.platform.fields import Bandwidth, Count, Part, Quantity

_Frequency = Annotated[float, Quantity(units.parse_frequency, "frequency", "1.98 GHz")]


class DataSheet(Part):
    """Data sheet of a GPU and of its usual node.

    Attributes:
        link: Bandwidth to the other GPUs of the node, each way, in bytes per ns.
        memory: Bandwidth of its memory, in bytes per ns.
        processors: Streaming multiprocessors or compute units.
        clock: The fastest of its processors, in Hz.
        reduces: Whether the switch of the node reduces and multicasts (NVLink SHARP).
        nic: Bandwidth of the network, each way and per GPU, in bytes per ns.
        gpus: GPUs in a node.
        mesh: Whether each other GPU has a link of its own, so that few members use few links.
        sibling: The fit from which that of this device is derived where there is none.
        source: Where the numbers stand.
    """

    link: Bandwidth
    memory: Bandwidth
    processors: Count
    clock: _Frequency
    reduces: bool
    nic: Bandwidth
    gpus: Count
    mesh: bool = False
    sibling: str
    source: str


OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send")
"""What is measured."""

_RING = ("all-gather", "reduce-scatter", "all-reduce")
SUBSTITUTES = {
    "all-reduce": (),
    "all-gather": ("reduce-scatter", "all-reduce"),
    "reduce-scatter": ("all-gather", "all-reduce"),
    "all-to-all": _RING,
    "send": ("all-to-all", *_RING),
    "broadcast": _RING,
    "reduce": ("broadcast", "reduce-scatter", "all-gather", "all-reduce"),
    "gather": _RING,
    "scatter": ("reduce-scatter", "all-gather", "all-reduce"),
}
"""For an operation that was not measured: whose latency and bandwidth it takes, the nearest first."""


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
class CollectiveFit:
    """Times of collectives on one kind of machine.

    Attributes:
        name: Name of its file.
        sheet: Data sheet of its device.
        inside: Operation -> members -> regimes, within a node.
        between: Operation -> regimes over several nodes.
        sources: What it was fitted to.
        notes: What is not measured but derived.
    """

    name: str
    sheet: DataSheet
    inside: Mapping[str, Mapping[int, Curve]]
    between: Mapping[str, Spanning] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def time(self, operation: str, per_node: int, nodes: int, size: float) -> CollectiveTime | None:
        """Return how long a collective takes alone, or None if the fit cannot tell.

        Args:
            operation: One of `SUBSTITUTES`.
            per_node: Members in each node; a message: 2 within a node, 1 between two nodes.
            nodes: How many nodes they are in.
            size: Bytes, as nccl-tests count them: of the larger buffer (all-gather: its output, reduce-scatter: its
                input); of a message: its own.
        """
        members = per_node * nodes
        if members <= 1 or size <= 0:
            return CollectiveTime(0.0, 0.0, "nothing to send")
        measured: Mapping[str, object] = self.inside if nodes == 1 else self.between
        used = next(
            (name for name in (operation, *SUBSTITUTES.get(operation, ())) if measured.get(name)), None
        )
        if used is None:
            return None
        # The one measured is taken at the size at which it sends as much.
        asked = size * share(operation, members) / share(used, members)
        # An all-reduce is a reduce-scatter and an all-gather: what it stands in for takes half of its
        # latency.
        halves = 0.5 if used == "all-reduce" != operation else 1.0
        where = f"{members} GPUs of a node" if nodes == 1 else f"{nodes} nodes of {per_node}"
        if nodes == 1:
            latency, per_byte = at_members(self.inside[used], used, members, asked)
            transfer = per_byte * size * share(operation, members)
        else:
            latency, transfer = self.between[used].time(operation, per_node, nodes, size)
        return CollectiveTime(
            halves * latency, transfer, where if used == operation else f"{where}, as {used}"
        )
