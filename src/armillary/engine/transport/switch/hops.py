"""The ways of packets that choose them at every node: options, and the tables of what may be next.

A destination with a single link into it shares the rows of the switch at the other end, so that tables grow with
switches and not with NPUs. After a failure packets in flight take what is left; where nothing is, they wait at the link
that they had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.base.errors import InputError, nearest
from armillary.engine.transport import layout as lk
from armillary.engine.transport.network import Stage
from armillary.engine.transport.switch import hop_layout as hl
from armillary.engine.transport.transport import Ints
from armillary.platform.topology.detours import Minimal, Ugal, Valiant, between, places_of
from armillary.platform.topology.routing import Adaptive, Ecmp, Routing, Shortest

SPREADS = ("message", "packet", "flowlet", "permuted")
PER_PACKET = (Adaptive, Minimal, Valiant, Ugal)
BY_NODE = (Shortest, Ecmp, *PER_PACKET)
"""Routings of which every node knows the next links, whatever way a packet has come; subclasses may not."""
# 256 Mi words are 2 GiB.
MOST_ROWS = 1 << 27


@dataclass(frozen=True)
class Ways:
    """How packets choose among the links that the routing allows.

    Attributes:
        spread: What takes one way: `message` (all between two NPUs, by queue pairs), `packet` (by hash), or `flowlet`.
            `permuted`: packets between two NPUs take all ways in turn, each once per round. None: `packet` with the
            routings that decide per packet (adaptive, minimal, valiant, ugal), else `message`.
        qps: Queue pairs of a connection, to which packets are dealt out; each hashes to a way of its own.
        flowlet_gap: ns without a packet of a flow after which a switch may let it take another link. 10 µs is that of
            the switches of htsim.
        ugal_bias: Bytes that must wait more on the shortest way before UGAL takes a detour, times links of the way. The
            T of Kim et al.; none there.

    Raises:
        InputError: A value is out of range.
    """

    spread: str | None = None
    qps: int = 1
    flowlet_gap: float = 10_000.0
    ugal_bias: int = 0

    def __post_init__(self) -> None:
        if self.spread is not None and self.spread not in SPREADS:
            raise InputError(
                f"packets: spread is '{self.spread}', expected one of {', '.join(SPREADS)}"
                f"{nearest(self.spread, SPREADS)}"
            )
        for name, value, least, most, unit in (
            ("qps", self.qps, 1, 4096, "queue pairs, e.g. 4"),
            ("flowlet_gap", self.flowlet_gap, 1, 10**12, "ns, e.g. 10000"),
            ("ugal_bias", self.ugal_bias, 0, 1 << 40, "bytes, e.g. 8192"),
        ):
            if not least <= value <= most:
                raise InputError(f"packets: {name} is {value:g}, expected {least} to {most} {unit}")

    def at_nodes(self, stages: Sequence[Stage]) -> bool:
        """Tell whether nodes choose the ways of packets; otherwise messages keep the routes that they leave by.

        Raises:
            InputError: They do, and the routing does not allow it.
        """
        routing = stages[0].routing
        if type(routing) in PER_PACKET:
            if self.spread == "permuted" or (self.spread == "message" and type(routing) is not Valiant):
                raise InputError(
                    f"{routing.topology.called}: routing {_name(routing)} decides where packets are, got "
                    f"packets.spread {self.spread}, expected packet or flowlet"
                )
            return True
        if self.spread in (None, "message") and self.qps == 1:
            return False
        if type(routing) not in BY_NODE:
            what = f"packets.spread {self.spread}" if self.qps == 1 else "packets.qps"
            raise InputError(
                f"{routing.topology.called}: {what} needs a routing with several next links, got {_name(routing)}, "
                "expected ecmp, adaptive, minimal, valiant or ugal"
            )
        return True

    def spread_on(self, routing: Routing) -> str:
        """Return what takes one way on a routing."""
        return self.spread or ("packet" if type(routing) in PER_PACKET else "message")


def _name(routing: Routing) -> str:
    return type(routing).__name__.lower()


def hop_options(ways: Ways, routing: Routing, tables: list[Ints]) -> list[int]:
    """Return the options of ways for kernels, see `hop_layout.WAYS`."""
    detour = (
        hl.ALWAYS if isinstance(routing, Valiant) else hl.SOONER if isinstance(routing, Ugal) else hl.NEVER
    )
    node_rows = tables[0].reshape(-1, hl.NODE.width)
    return [
        int(isinstance(routing, Adaptive)), SPREADS.index(ways.spread_on(routing)), ways.qps,
        round(ways.flowlet_gap * lk.PS), detour, ways.ugal_bias, int(node_rows[:, 0].max()) + 1, len(tables[3]),
        getattr(routing, "seed", 0) & 0x7FFFFFFF,
    ]  # fmt: skip


def hop_tables(stages: Sequence[Stage]) -> list[Ints]:
    """Return the tables NODE, NEXT, CHOICE and BETWEEN of a network over time, see `hop_layout`."""
    topology = stages[0].topology
    npus = np.arange(topology.npus)
    nodes = np.full((topology.nodes, hl.NODE.width), -1)
    nodes[:, 1] = np.arange(topology.nodes)
    nodes[:, 3] = places_of(topology)
    first, incoming = topology.incoming
    # Other routings may tell the NPUs of a switch apart. An NPU that forwards lies on ways of others; one with
    # several links is reached by each of them.
    shares = type(stages[0].routing) in BY_NODE
    single = npus[shares & (np.diff(first)[: topology.npus] == 1) & ~topology.forwards[: topology.npus]]
    nodes[single, 2] = incoming[first[single]]
    nodes[single, 1] = topology.tail[nodes[single, 2]]
    via = between(topology) if isinstance(stages[0].routing, (Valiant, Ugal)) else np.zeros(0, np.int64)
    goals = np.unique(np.concatenate([nodes[: topology.npus, 1], via]))
    number = np.full(topology.nodes, -1)
    number[goals] = np.arange(len(goals))
    nodes[:, 0] = number[nodes[:, 1]]
    rows = len(stages) * len(goals) * topology.nodes
    if rows > MOST_ROWS:
        raise InputError(
            f"{topology.called}: packets that choose their ways need {rows:.3g} rows for {len(goals)} destinations, "
            f"{topology.nodes} nodes and {len(stages)} stages, expected at most {MOST_ROWS:.3g}: routing ecmp with "
            "packets.spread message"
        )
    counts, fars, choices = [], [], []
    kept: dict[int, tuple[Ints, Ints]] = {}
    for stage in stages:
        routing = stage.routing
        for goal in goals.tolist():
            begin, links = routing.next_links(goal)
            if goal in kept:
                begin, links = _retained(begin, links, *kept[goal])
            kept[goal] = begin, links
            counts.append(np.diff(begin))
            choices.append(links)
            fars.append(np.maximum(routing.far(goal), 0))
    at = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    nexts = np.stack([at, np.concatenate([*fars, [0]])], axis=1)
    return [nodes.ravel(), nexts.ravel(), np.concatenate(choices), via]


def _retained(begin: Ints, links: Ints, before: Ints, old: Ints) -> tuple[Ints, Ints]:
    """Return next links, with the former ones of nodes that have none any more."""
    count, former = np.diff(begin), np.diff(before)
    lost = np.flatnonzero((count == 0) & (former > 0))
    if not len(lost):
        return begin, links
    parts = np.split(links, begin[1:-1])
    for node in lost.tolist():
        parts[node] = old[before[node] : before[node + 1]]
    return np.concatenate([[0], np.cumsum([len(part) for part in parts])]), np.concatenate(parts)
