"""Routes of dragonflies: minimal, by way of a random group (Valiant), and that only where it pays (UGAL).

Minimal is what takes the fewest global links, and of these the fewest links: two global links in a row may be shorter
than local, global, local, but take twice the capacity. The minimal routes between two groups share few global links. A
route by way of a random third group takes twice as many, but spreads every pattern evenly: half the capacity for any
traffic (Kim, Dally, Scott, Abts, "Technology-driven, highly-scalable dragonfly topology", ISCA 2008, section 4.1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from armillary.base.errors import InputError
from armillary.platform.topology.graph import Bools, Ints, Topology
from armillary.platform.topology.routing import Adaptive, Paths, mix

GLOBAL = 1 << 16
"""More links than any way has."""
TRIES = 16
"""How often another node is drawn because the one drawn is where the message comes from or goes to."""


class Minimal(Adaptive):
    """The fewest global links of a dragonfly, then the fewest links; among several as `Adaptive`.

    Other topologies have no global links: the shortest ways.
    """

    def far(self, destination: int) -> Ints:
        """See `Shortest.far`."""
        return np.where(self._costs(destination) < 0, -1, self._costs(destination) % GLOBAL)

    def _costs(self, destination: int) -> Ints:
        """Return (nodes) links to a destination, with GLOBAL added for each global one; -1: no way leads there."""
        topology = self.topology
        if topology.name != "dragonfly":
            return super().far(destination)
        cost = 1 + GLOBAL * (topology.kind == topology.kinds.index("global"))
        usable = (topology.bandwidth > 0) & (
            topology.forwards[topology.head] | (topology.head == destination)
        )
        tail, head, cost = topology.tail[usable], topology.head[usable], cost[usable]
        far = np.full(topology.nodes, GLOBAL**3)
        far[destination] = 0
        # Few rounds: as many as the longest way has links.
        while True:
            before = far.copy()
            np.minimum.at(far, tail, before[head] + cost)
            if (far == before).all():
                return np.where(far < GLOBAL**3, far, -1)

    def _allowed(self, destination: int) -> Bools:
        topology = self.topology
        if topology.name != "dragonfly":
            return super()._allowed(destination)
        far = self._costs(destination)
        cost = 1 + GLOBAL * (topology.kind == topology.kinds.index("global"))
        passes = topology.forwards | (np.arange(topology.nodes) == destination)
        nearer = (far[topology.head] >= 0) & (far[topology.tail] == far[topology.head] + cost)
        allowed: Bools = nearer & passes[topology.head] & (topology.bandwidth > 0)
        return allowed


class Valiant(Minimal):
    """First to a random node with NPUs, or on a dragonfly into a random other group, then on; minimal routes to both.

    Network model `packet` draws per packet. `paths` draws one node per pair and flow.

    Raises:
        InputError: There are fewer than three such places.
    """

    def __init__(self, topology: Topology, seed: int = 0) -> None:
        super().__init__(topology, seed)
        self.places = places_of(topology)
        self.between = between(topology)
        count = len(np.unique(self.places[self.between]))
        if count < 3:
            what = "groups" if topology.name == "dragonfly" else "nodes with NPUs"
            raise InputError(
                f"{topology.called}: routing 'valiant' and 'ugal' go by way of a third place, expected at least 3 "
                f"{what}, got {count}"
            )

    def paths(self, source: ArrayLike, destination: ArrayLike, flow: ArrayLike | None = None) -> Paths:
        """See `Routing.paths`."""
        source, destination = np.broadcast_arrays(np.atleast_1d(source), destination)
        number = np.zeros(source.shape, np.int64) if flow is None else np.broadcast_to(flow, source.shape)
        ends = self.places[source], self.places[destination]
        via = np.full(len(source), -1)
        for attempt in range(TRIES):
            drawn = mix(
                np.full(len(source), self.seed), source, destination, number, np.full(len(source), attempt)
            )
            node = self.between[(drawn % np.uint64(len(self.between))).astype(np.int64)]
            place = self.places[node]
            via = np.where((via < 0) & (place != ends[0]) & (place != ends[1]), node, via)
        # Where none was found the route is a shortest one, as is that of a message within a place.
        detour = (via >= 0) & (ends[0] != ends[1])
        direct = super().paths(source, destination, number)
        there = super().paths(source[detour], via[detour], number[detour])
        parts: list[Ints] = []
        after: list[int] = []
        for message, first in zip(np.flatnonzero(detour).tolist(), range(int(detour.sum())), strict=True):
            way = there[first]
            # The detour ends where the message enters the place.
            entered = int(np.argmax(self.places[self.topology.head[way]] == self.places[via[message]])) + 1
            parts.append(way[:entered])
            after.append(int(self.topology.head[way[entered - 1]]))
        back = super().paths(np.array(after, np.int64), destination[detour], number[detour])
        rest = iter(range(len(parts)))
        ways = [
            np.concatenate([parts[i], back[i]]) if (i := next(rest) if turn else -1) >= 0 else direct[message]
            for message, turn in enumerate(detour.tolist())
        ]
        first_of = np.concatenate([[0], np.cumsum([len(way) for way in ways])]).astype(np.int64)
        return Paths(first_of, np.concatenate([np.zeros(0, np.int64), *ways]))


class Ugal(Minimal):
    """Minimal, or as `Valiant` where the queues make that sooner; `paths` is what happens in an empty network.

    Raises:
        InputError: As `Valiant`.
    """

    def __init__(self, topology: Topology, seed: int = 0) -> None:
        super().__init__(topology, seed)
        other = Valiant(topology, seed)
        self.places, self.between = other.places, other.between


def places_of(topology: Topology) -> Ints:
    """Return (nodes) what counts as one place: the group of a dragonfly; else the switch of an NPU, or a node."""
    if topology.name == "dragonfly":
        return topology.block
    places = np.arange(topology.nodes)
    npus = np.flatnonzero(~topology.forwards[: topology.npus])
    places[npus] = topology.head[topology.first_link[npus]]
    return places


def between(topology: Topology) -> Ints:
    """Return the nodes that messages may go by way of: those that forward, and are or have NPUs."""
    near = np.zeros(topology.nodes, np.bool_)
    near[: topology.npus] = True
    near[topology.head[topology.tail < topology.npus]] = True
    found: Ints = np.flatnonzero(near & topology.forwards)
    return found
