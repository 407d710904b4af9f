"""The queues of protocol `rdma`: how much fits each, which depths mark packets; and how much tiers carry less."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.engine.transport import layout as lk
from armillary.engine.transport.switch import layout as pk
from armillary.engine.transport.transport import Ints
from armillary.platform.topology.graph import UNBOUNDED, Topology

DEEP_QUEUES = ("nscc", "rccc", "nscc+rccc")
"""Controls whose queues hold a bandwidth-delay product."""


def shares(topology: Topology) -> np.ndarray:
    """Return (links) rates in units of the fastest link of an NPU, at most 1.

    A slower queue drains in the same time if it holds so much less, as htsim sizes the queues of its slowed links.
    """
    first = topology.bandwidth[topology.tail < topology.npus]
    return np.minimum(topology.bandwidth / max(float(first.max(initial=0.0)), 1e-9), 1.0)


@dataclass(frozen=True)
class Queues:
    """The queues of a network.

    Attributes:
        control: The congestion control.
        full: What a full queue does.
        packet: Bytes of the largest packet.
        bdp: Bytes in flight on the longest route.
        buffer: Bytes that fit, where the topology does not say. None: see `armillary.engine.transport.rdma.Rdma`.
        kmin, kmax, pmax: Marks, see there.
    """

    control: str
    full: str
    packet: int
    bdp: int
    buffer: int | None
    kmin: int | None
    kmax: int | None
    pmax: float | None

    def rooms(self, topology: Topology) -> Ints:
        """Return (links) bytes that fit the queue of each."""
        usual: float | np.ndarray = 8 * self.packet if self.control == "ndp" else 256 << 10
        if self.control in DEEP_QUEUES:
            usual = np.rint((5 if self.full == "drop" else 1) * self.bdp * shares(topology))
        if self.full == "pause":
            usual = UNBOUNDED
        room = np.maximum(usual, self.packet) if self.buffer is None else self.buffer
        return np.where(topology.buffer < UNBOUNDED, topology.buffer, room).astype(np.int64)

    @property
    def marks(self) -> list[int]:
        """The lowest depth that marks, the highest, and the most that it marks."""
        low, high, most = self.kmin, self.kmax, self.pmax
        if low is None and self.control in DEEP_QUEUES:
            low, high, most = self.bdp // 5, self.bdp * 4 // 5, 1.0
        elif low is None and self.control == "dcqcn":
            low, high = 5000, 200_000
        if low is None:
            return [-1, -1, 0]
        return [low, low if high is None else high, round((0.01 if most is None else most) * pk.CERTAIN)]

    def table(self, topology: Topology) -> Ints:
        """Return (links, columns of ROOMS)."""
        owned = (topology.tail < topology.npus) & ~topology.forwards[topology.tail]
        last = (topology.head < topology.npus) & ~topology.forwards[topology.head]
        room = np.where(owned, lk.FOREVER, np.minimum(self.rooms(topology), lk.FOREVER >> 2))
        lowest, highest = (np.full(topology.links, depth) for depth in self.marks[:2])
        if self.kmin is None and self.control in DEEP_QUEUES:
            lowest, highest = (
                np.floor(depth * shares(topology)).astype(np.int64) for depth in (lowest, highest)
            )
            # Where the receiver paces, its own link says nothing of the network.
            if self.control != "nscc":
                lowest[last] = -1
        return np.stack([room, owned, lowest, highest, last], axis=1).astype(np.int64)


def oversubscription(topology: Topology) -> float:
    """Return by how much NPUs can send faster than the tiers of a tree carry: at least 1.

    Per tier, counted from the NPUs, the largest ratio of a switch's bandwidth to the tier below to that of its other
    links; over all tiers their product. A switch of the top tier has no others.
    """
    far = np.where(np.arange(topology.nodes) < topology.npus, 0, -1)
    edge, tier = np.flatnonzero(far == 0), 0
    while len(edge):
        tier += 1
        reached = np.unique(topology.head[np.isin(topology.tail, edge)])
        edge = reached[far[reached] < 0]
        far[edge] = tier
    whole = 1.0
    for tier in range(1, int(far.max(initial=0)) + 1):
        own = far[topology.tail] == tier
        up = own & (far[topology.head] >= tier)
        below, above = (
            np.bincount(topology.tail[some], topology.bandwidth[some], topology.nodes)
            for some in (own & ~up, up)
        )
        some = above > 0
        whole *= max(1.0, float((below[some] / above[some]).max(initial=1.0)))
    return whole
