"""Lower a topology over time, and the routes of messages on it, to the table that transports read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from armillary.base.errors import InputError
from armillary.base.tables import before_table
from armillary.base.units import format_time
from armillary.engine.transport import layout as lk
from armillary.platform.topology.graph import Floats, Topology
from armillary.platform.topology.planes import part_paths, side_by_side
from armillary.platform.topology.routing import Paths, Routing

Ints = NDArray[np.int64]
LARGEST = 1 << 20


@dataclass(frozen=True)
class Stage:
    """The network from `time` (ns) on: the topology as it then is, in its routing.

    `parts` are the routings of the parts of a message, one for each plane; empty where there is one plane.
    """

    time: float
    routing: Routing
    parts: tuple[Routing, ...] = ()

    @property
    def topology(self) -> Topology:
        """The topology as it is in this stage."""
        return self.routing.topology

    def paths(self, source: ArrayLike, target: ArrayLike, flow: ArrayLike | None = None) -> Paths:
        """Return the routes of messages; in several planes those of the parts of each side by side.

        Raises:
            InputError: a destination cannot be reached.
        """
        if self.topology.planes > 1:
            return side_by_side(part_paths(self.parts, source, target, flow))
        return self.routing.paths(source, target, flow)


@dataclass
class Routes:
    """The routes of all stages, one after the other; each has a number."""

    first: list[Ints] = field(default_factory=lambda: [np.zeros(1, np.int64)])
    link: list[Ints] = field(default_factory=list)
    count: int = 0

    def add(self, stage: Stage, source: ArrayLike, target: ArrayLike, flow: ArrayLike | None = None) -> int:
        """Add the routes of messages in a stage, in order; returns the number of the first.

        Raises:
            InputError: a destination cannot be reached.
        """
        return self.append(stage.paths(source, target, flow))

    def append(self, paths: Paths) -> int:
        """Add routes; returns the number of the first."""
        number, begin = self.count, int(self.first[-1][-1])
        self.first.append(paths.first[1:] + begin)
        self.link.append(paths.link)
        self.count += len(paths.first) - 1
        return number


def lower_network(
    stages: Sequence[Stage], routes: Routes, options: ArrayLike = (), own: Sequence[Ints] = (), parts: int = 1
) -> Ints:
    """Return the table of a network.

    Args:
        stages: The first at time 0.
        routes: All routes that messages take.
        options: Options of the transport, as numbers.
        own: Further tables of the transport, which it finds by ``table[T_OWN + i]``.
        parts: Of a message; the routes of parts stand side by side, see `parts_kernel`.
    """
    topology = stages[0].topology
    for stage in stages:
        _check_latency(stage.topology, routes)
    placed = {
        lk.T_LINK: np.concatenate([link_rows(stage.topology) for stage in stages]),
        lk.T_ROUTE_FIRST: np.concatenate(routes.first),
        lk.T_ROUTE_LINK: np.concatenate(routes.link) if routes.link else np.zeros(0, np.int64),
        lk.T_OPTIONS: np.asarray(options, np.int64),
    } | {lk.T_OWN + i: table for i, table in enumerate(own)}
    head = np.zeros(lk.TABLE_HEAD, np.int64)
    head[lk.T_LINKS], head[lk.T_NODES], head[lk.T_NPUS] = topology.links, topology.nodes, topology.npus
    head[lk.T_STAGES], head[lk.T_ROUTES], head[lk.T_PARTS] = len(stages), routes.count, parts
    flat, at = [head], lk.TABLE_HEAD
    for place, part in placed.items():
        # In checked mode a guard precedes each table; else this adds nothing.
        at += len(before_table())
        head[place] = at
        at += part.size
        flat += [before_table(part.size), np.ravel(part)]
    return np.concatenate([*flat, before_table()])


def _check_latency(topology: Topology, routes: Routes) -> None:
    """Refuse latencies with which a message could arrive later than can be counted; most of it is left to queues."""
    longest = max(1, int(np.diff(np.concatenate(routes.first)).max(initial=1)))
    most = lk.FOREVER / 4 / lk.PS / longest
    if topology.latency.max(initial=0) > most:
        raise InputError(
            f"{topology.called}: a latency of {format_time(topology.latency.max())}, expected at most "
            f"{format_time(most)} where messages are moved over {longest} links"
        )


def link_rows(topology: Topology) -> Ints:
    """Return (links, L_COLUMNS): see `layout`."""
    rows = np.zeros((topology.links, lk.L_COLUMNS), np.int64)
    rows[:, lk.L_SLOW], rows[:, lk.L_FAST] = paces(topology.bandwidth, topology.called)
    rows[:, lk.L_LATENCY] = np.rint(topology.latency * lk.PS)
    rows[:, lk.L_BUFFER] = topology.buffer
    rows[:, lk.L_TAIL], rows[:, lk.L_HEAD] = topology.tail, topology.head
    return rows


def times_to_end(topology: Topology, size: int) -> Ints:
    """Return (links) ps that `size` bytes need to the end of each."""
    rows = link_rows(topology)
    on_wire: Ints = -(-size * rows[:, lk.L_SLOW] // rows[:, lk.L_FAST])
    return on_wire + rows[:, lk.L_LATENCY]


def paces(bandwidth: Floats, name: str = "topology") -> tuple[Ints, Ints]:
    """Return ps per byte of links as fractions, numerators and denominators; 0 / 1 where the bandwidth is 0.

    Raises:
        InputError: a bandwidth is too small or too large to be counted with.
    """
    # Fractions are slow, and thousands of links share a few bandwidths.
    values, inverse = np.unique(bandwidth, return_inverse=True)
    pairs = []
    for value in values.tolist():
        pace = Fraction(lk.PS) / Fraction(value) if value > 0 else Fraction(0)
        if pace > LARGEST:
            raise InputError(
                f"{name}: a bandwidth of {value:.3g} bytes/ns is too small; expected at least 1 MB/s, or 0: down"
            )
        if 0 < pace < Fraction(1, LARGEST):
            # It would be rounded to 0, which is a link that is down.
            raise InputError(
                f"{name}: a bandwidth of {value:.3g} bytes/ns is too large; expected at most 1 EB/s where messages are "
                "moved"
            )
        # Numerator and denominator stay below 2**20, so that times of 4 TiB fit 62 bits.
        limit = LARGEST if pace < 1 else max(1, int(LARGEST / pace))
        pairs.append(pace.limit_denominator(limit))
    table = np.array([(pair.numerator, pair.denominator) for pair in pairs], np.int64).reshape(-1, 2)
    chosen = table[inverse.ravel()]
    return chosen[:, 0], chosen[:, 1]
