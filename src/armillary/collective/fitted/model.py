"""A fit: how long collectives and messages take on one kind of machine, by what was measured on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from armillary.base import portable
from armillary.collective.fitted.between import Spanning
from armillary.collective.fitted.mechanism import Mechanism, timed
from armillary.collective.fitted.regimes import Curve, at_members, share
from armillary.collective.fitted.sheet import DataSheet

INSIDE, BETWEEN = "inside", "between"
"""Places: within a node, between several."""
Spread = Mapping[str, Mapping[str, float]]
"""Place -> operation, `any` or `small` -> standard deviation of ln(measured / predicted), of held-out rows."""
SMALL = 64 * 2**10
"""Bytes below which a time is that of launches."""

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
        mechanism: Constants from which all times follow, instead of regimes.
        spread: How far measured times were from predictions that had not seen them.
        measured: (operation, place) that were.
        unseen: What of a device, a place or an operation that was not measured adds to its spread, by the words of
            ``unseen.yaml``.
    """

    name: str
    sheet: DataSheet
    inside: Mapping[str, Mapping[int, Curve]]
    between: Mapping[str, Spanning] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    mechanism: Mechanism | None = None
    spread: Spread = field(default_factory=dict)
    measured: frozenset[tuple[str, str]] = frozenset()
    unseen: Mapping[str, float] = field(default_factory=dict)

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
        # Of regimes within a node only, the network is that of a mechanism.
        if self.mechanism is not None and not (nodes == 1 and self.inside):
            if operation not in SUBSTITUTES:
                return None
            latency, transfer, runs = timed(self.mechanism, operation, per_node, nodes, size, self.sheet)
            where = f"{members} GPUs of a node" if nodes == 1 else f"{nodes} nodes of {per_node}"
            return CollectiveTime(latency, transfer, f"{where}: {runs}")
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

    def with_network(self, factor: float) -> CollectiveFit:
        """Return a fit of nodes whose network has so many times the bandwidth; latencies stay."""
        between = {
            operation: replace(part, nic={count: rate * factor for count, rate in part.nic.items()})
            for operation, part in self.between.items()
        }
        mechanism = self.mechanism
        if mechanism is not None:
            lines = mechanism.network.items()
            network = {name: line._replace(bandwidth=line.bandwidth * factor) for name, line in lines}
            mechanism = replace(mechanism, network=network)
        sheet = self.sheet.model_copy(update={"nic": self.sheet.nic * factor})
        return replace(self, sheet=sheet, between=between, mechanism=mechanism)

    def deviation(self, operation: str, per_node: int, nodes: int, size: float) -> float:
        """Return the standard deviation of ln(measured / predicted) of what `time` says.

        It is that of held-out rows. An operation, a place (within a node or between several) or a device that was not
        measured adds what was found where each of these was left out.
        """
        place = BETWEEN if nodes > 1 else INSIDE
        # Of a place without measurements the other one says how good a fit is at all.
        known = self.spread.get(place) or next(iter(self.spread.values()), {})
        whole = known.get("any", self.unseen.get("fit", 0.0))
        found = [known.get("small" if size < SMALL else operation, whole), self.unseen.get("device", 0.0)]
        if not any(where == place for _, where in self.measured):
            found.append(self.unseen.get("place", 0.0))
        elif (operation, place) not in self.measured:
            found.append(self.unseen.get("operation", 0.0))
        return portable.hypot(0.0, *found)
