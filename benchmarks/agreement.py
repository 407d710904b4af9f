"""How far our networks agree with ns-3 and with each other; one JSON line per pattern, topology and pair of models.

Messages begin at given times: `incast` and `all-to-all` all at once, `permutation` too, to random NPUs; `ring` and
`hierarchical` in rounds, each a message's time on an empty link after the one before it. `makespan` is how much later the
first model ends than the second, as a share; `mean` and `most` the same of the time of every message, without its
sign. `bar` is the claim on `makespan` and `mean`, `most_bar` on `most`.

Usage: python benchmarks/agreement.py [--hosts 16,64] [--pairs packet,tcp,flow] [--patterns incast,...]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.engine.transport.ns3.transport import Ns3
from armillary.engine.transport.offer import offer
from armillary.engine.transport.packet import Packet
from armillary.engine.transport.transport import Transport
from armillary.platform.model import Dimension
from armillary.platform.topology import DimensionOrder, Ecmp, Routing, from_dimensions, leaf_spine

Ints = NDArray[np.int64]
BANDWIDTH, LATENCY = 12.5, 500.0
"""100 Gbit/s in bytes/ns, and ns."""
SEGMENT, UDP_HEADER = 1448, 30
NEVER = float("nan")


@dataclass(frozen=True)
class Messages:
    """(messages) who sends what to whom, and when in ps."""

    source: Ints
    target: Ints
    size: Ints
    begin: Ints


def at_once(pairs: list[tuple[int, int]], size: int, begin: int = 0) -> Messages:
    """Messages of one size between pairs."""
    ends = np.array(pairs, np.int64)
    return Messages(ends[:, 0], ends[:, 1], np.full(len(ends), size), np.full(len(ends), begin))


def after_each_other(rounds: list[list[tuple[int, int]]], size: int) -> Messages:
    """Rounds of messages of one size."""
    step = round(size / BANDWIDTH * 1000)
    parts = [at_once(pairs, size, number * step) for number, pairs in enumerate(rounds)]
    return Messages(*(np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])))


def incast(hosts: int, side: int) -> Messages:
    """A quarter of the hosts, all over the machine, send to the first."""
    return at_once([(host, 0) for host in range(1, hosts, 4)], 1 << 20)


def permutation(hosts: int, side: int) -> Messages:
    """Every host sends to another, and every host receives."""
    order = np.random.default_rng(6).permutation(hosts)
    return at_once(list(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True)), 1 << 20)


def all_to_all(hosts: int, side: int) -> Messages:
    """Every host sends to every other."""
    return at_once([(a, (a + k) % hosts) for k in range(1, hosts) for a in range(hosts)], 1 << 15)


def ring(hosts: int, side: int) -> Messages:
    """As many rounds as a ring all-reduce takes, up to 16."""
    return after_each_other([[(a, (a + 1) % hosts) for a in range(hosts)]] * min(16, 2 * hosts - 2), 1 << 17)


def hierarchical(hosts: int, side: int) -> Messages:
    """Rings in groups of `side` neighbours, then between the groups, then in the groups."""
    inside = [(a, a - a % side + (a + 1) % side) for a in range(hosts)]
    across = [(a, (a + side) % hosts) for a in range(hosts)]
    return after_each_other([inside] * (side - 1) + [across] * (side - 1) + [inside] * (side - 1), 1 << 17)


PATTERNS: dict[str, Callable[[int, int], Messages]] = {
    "incast": incast,
    "permutation": permutation,
    "all-to-all": all_to_all,
    "ring": ring,
    "hierarchical": hierarchical,
}


def networks(hosts: int) -> list[tuple[Routing, int]]:
    """Leaf-spine without oversubscription, and a square torus; with hosts of a leaf, or of a row."""
    side = round(hosts**0.5)
    dimensions = tuple(Dimension(f"dim{d}", "Ring", side, BANDWIDTH, LATENCY) for d in range(2))
    return [
        (Ecmp(leaf_spine(side, side, side, BANDWIDTH, LATENCY)), side),
        (DimensionOrder(from_dimensions(dimensions)), side),
    ]


def pairs_of_models(names: list[str]) -> list[tuple[str, Transport, Transport, float, float]]:
    """Ours, the other's, and the bars."""
    found: list[tuple[str, Transport, Transport, float, float]] = []
    if "packet" in names:
        found.append(("packet/ns-3 UDP", Packet(mtu=SEGMENT, header=UDP_HEADER), Ns3(), 0.02, NEVER))
        found.append(("packet/ns-3 UDP, fair", Packet(mtu=SEGMENT, header=UDP_HEADER), Ns3("udp-fair"), 0.02, NEVER))
    if "tcp" in names:
        from armillary.engine.transport.tcp import Tcp

        found.append(("tcp/ns-3 NewReno", Tcp(), Ns3("reno"), 0.10, NEVER))
    if "flow" in names:
        from armillary.engine.transport.flow import Flow

        found.append(("flow/packet", Flow(), Packet(mtu=SEGMENT, header=0), 0.05, 0.10))
    return found


def taken(transport: Transport, routing: Routing, messages: Messages) -> tuple[Ints, Ints, float]:
    """Return when messages arrived and how long they took in ps, and the seconds it took to know."""
    mode: Any = "interpreted" if isinstance(transport, Ns3) else "compiled"
    begin = time.perf_counter()
    flow = np.arange(len(messages.source))
    columns = (messages.source, messages.target, messages.size, messages.begin)
    arrived = offer(transport, routing, *columns, flow=flow, mode=mode).arrived
    if (arrived < 0).any():
        raise SystemExit(f"{transport.name}: {(arrived < 0).sum()} messages have not arrived")
    return arrived, arrived - messages.begin, time.perf_counter() - begin


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="16,64")
    parser.add_argument("--pairs", default="packet,tcp,flow")
    parser.add_argument("--patterns", default=",".join(PATTERNS))
    asked = parser.parse_args()
    for hosts in map(int, asked.hosts.split(",")):
        for routing, side in networks(hosts):
            for pattern in asked.patterns.split(","):
                messages = PATTERNS[pattern](hosts, side)
                for name, ours, theirs, bar, most_bar in pairs_of_models(asked.pairs.split(",")):
                    arrived, took, seconds = taken(ours, routing, messages)
                    reference, its, its_seconds = taken(theirs, routing, messages)
                    makespan = arrived.max() / reference.max() - 1
                    error = np.abs(took / its - 1)
                    ok = abs(makespan) <= bar and error.mean() <= bar and not error.max() > most_bar
                    line = {
                        "models": name, "network": routing.topology.name, "hosts": hosts, "pattern": pattern,
                        "messages": len(took), "makespan_us": round(arrived.max() / 1e6, 3),
                        "its_makespan_us": round(reference.max() / 1e6, 3), "makespan": round(makespan, 5),
                        "mean": round(error.mean(), 5), "most": round(error.max(), 5), "ok": bool(ok),
                        "seconds": round(seconds, 2), "its_seconds": round(its_seconds, 2),
                    }  # fmt: skip
                    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
