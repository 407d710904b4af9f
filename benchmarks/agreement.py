"""How far our networks agree with ns-3 and with each other; one JSON line per pattern, topology and pair of models.

`ring` and `hierarchical` are the messages of these all-reduces in rounds, each of which begins when the one before
it is over; the others all begin at once, `permutation` to random NPUs. `makespan` is by how much the first model's
end differs from the second's, as a share, rounds added up; `mean` and `most` the same of the times of all messages,
without sign. `ok` tells whether `makespan` is within 2 % (ns-3's UDP), 10 % (its TCP) or 5 % (flow against packet).

Queues have no end, but in the rows `drops`: four senders that begin at random share one full queue, many times
over; `makespan` then is of the mean time of a message, meaned over the middle half of the runs: a timeout decides over
most of such a time.

Usage: python benchmarks/agreement.py [--hosts 16,64] [--pairs packet,tcp,flow,drops] [--patterns incast,...]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.engine.transport.flow import Flow
from armillary.engine.transport.ns3.transport import Ns3
from armillary.engine.transport.offer import offer
from armillary.engine.transport.packet import Packet
from armillary.engine.transport.tcp import Tcp
from armillary.engine.transport.transport import Transport
from armillary.platform.network import Dimension
from armillary.platform.topology import UNBOUNDED, DimensionOrder, Ecmp, Routing, from_dimensions, leaf_spine

Ints = NDArray[np.int64]
BANDWIDTH, LATENCY = 12.5, 500.0
"""100 Gbit/s in bytes/ns, and ns."""
SEGMENT = 1448
UDP_HEADER, TCP_HEADER = 8 + 20 + 2, 32 + 20 + 2
"""UDP, or TCP with timestamps; IPv4; PPP."""
JITTER = 120.0
"""ns: a packet's time on a link."""


@dataclass(frozen=True)
class Messages:
    """(messages) who sends what to whom, in which round."""

    source: Ints
    target: Ints
    size: Ints
    round: Ints

    @property
    def begin(self) -> Ints:
        """(messages) ps: rounds are so far apart that none meets the next."""
        return self.round * round(self.size.max() / BANDWIDTH * 1000 * 64)

    def makespan(self, took: Ints) -> int:
        """Return the ps of all rounds, one after the other, from those of messages."""
        longest = np.zeros(self.round.max() + 1, np.int64)
        np.maximum.at(longest, self.round, took)
        return int(longest.sum())


def at_once(pairs: list[tuple[int, int]], size: int) -> Messages:
    """Messages of one size between pairs."""
    return in_rounds([pairs], size)


def in_rounds(rounds: list[list[tuple[int, int]]], size: int) -> Messages:
    """Rounds of messages of one size."""
    ends = np.array([pair for pairs in rounds for pair in pairs], np.int64)
    number = np.repeat(np.arange(len(rounds)), [len(pairs) for pairs in rounds])
    return Messages(ends[:, 0], ends[:, 1], np.full(len(ends), size), number)


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
    return in_rounds([[(a, (a + 1) % hosts) for a in range(hosts)]] * min(16, 2 * hosts - 2), 1 << 17)


def hierarchical(hosts: int, side: int) -> Messages:
    """Rings in groups of `side` neighbours, then between the groups, then in the groups."""
    inside = [(a, a - a % side + (a + 1) % side) for a in range(hosts)]
    across = [(a, (a + side) % hosts) for a in range(hosts)]
    return in_rounds(
        [inside] * (side - 1) + [across] * (2 * hosts // side - 2) + [inside] * (side - 1), 1 << 17
    )


PATTERNS: dict[str, Callable[[int, int], Messages]] = {
    "incast": incast,
    "permutation": permutation,
    "all-to-all": all_to_all,
    "ring": ring,
    "hierarchical": hierarchical,
}


def networks(hosts: int) -> list[tuple[Routing, int]]:
    """Leaf-spine without oversubscription, and a torus; with hosts of a leaf, or of a row. `hosts`: a power of 2."""
    side = 1 << (hosts.bit_length() - 1) // 2
    sides = (side, hosts // side)
    dimensions = [Dimension(f"dim{d}", "Ring", sides[d], BANDWIDTH, LATENCY) for d in range(2)]
    return [
        (Ecmp(leaf_spine(hosts // side, side, side, BANDWIDTH, LATENCY)), side),
        (DimensionOrder(from_dimensions(dimensions, name="torus")), side),
    ]


@dataclass(frozen=True)
class Pair:
    """Ours, the other's, and the bar."""

    name: str
    ours: Transport
    theirs: Transport
    bar: float


def connections(ours: Any, theirs: Any, min_rto: int, mark: int = 0) -> tuple[Tcp, Ns3]:
    """Return TCP here and in ns-3, told the same; times in ms."""
    options = {"header": TCP_HEADER, "ack_delay": 200.0, "buffer": UNBOUNDED, "jitter": 0.0}
    tcp = Tcp(ours, min_rto=float(min_rto), mark=mark, **options)
    return tcp, Ns3(theirs, min_rto=min_rto * 1_000_000, mark=mark)


def pairs_of_models(names: list[str]) -> list[Pair]:
    """Return those asked for."""
    datagrams = Packet(mtu=SEGMENT, header=UDP_HEADER)
    pairs = {
        "packet": [
            Pair("packet/ns-3 UDP", datagrams, Ns3(), 0.02),
            Pair("packet/ns-3 UDP, fair ports", datagrams, Ns3("udp-fair"), 0.02),
        ],
        "tcp": [
            Pair(f"tcp/ns-3 {theirs}", *connections(ours, theirs, 200, mark), 0.10)
            for ours, theirs, mark in (
                ("newreno", "reno", 0),
                ("cubic", "cubic", 0),
                ("dctcp", "dctcp", 100_000),
            )
        ],
        "flow": [Pair("flow/packet", Flow(), Packet(mtu=SEGMENT, header=0), 0.05)],
    }
    return [pair for name in names for pair in pairs[name]]


def taken(transport: Transport, routing: Routing, messages: Messages) -> tuple[Ints, float]:
    """Return how many ps messages took, and the seconds it took to know."""
    mode: Any = "interpreted" if isinstance(transport, Ns3) else "compiled"
    begin = time.perf_counter()
    flow = np.arange(len(messages.source))
    columns = (messages.source, messages.target, messages.size, messages.begin)
    arrived = offer(transport, routing, *columns, flow=flow, mode=mode).arrived
    if (arrived < 0).any():
        raise SystemExit(f"{transport.name}: {(arrived < 0).sum()} messages have not arrived")
    return arrived - messages.begin, time.perf_counter() - begin


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="16,64")
    parser.add_argument("--pairs", default="packet,tcp,flow")
    parser.add_argument("--patterns", default=",".join(PATTERNS))
    asked = parser.parse_args()
    names = asked.pairs.split(",")
    if "drops" in names:
        names.remove("drops")
        for buffer in (64 << 10, 256 << 10, 1 << 20):
            print(json.dumps(dropping(buffer)), flush=True)
    for pair in pairs_of_models(names):
        for hosts in map(int, asked.hosts.split(",")):
            for routing, side in networks(hosts):
                for pattern in asked.patterns.split(","):
                    print(
                        json.dumps(compared(pair, routing, pattern, PATTERNS[pattern](hosts, side))),
                        flush=True,
                    )


def compared(pair: Pair, routing: Routing, pattern: str, messages: Messages) -> dict[str, Any]:
    """Return a row of the table."""
    took, seconds = taken(pair.ours, routing, messages)
    its, its_seconds = taken(pair.theirs, routing, messages)
    end, its_end = messages.makespan(took), messages.makespan(its)
    makespan = end / its_end - 1
    error = np.abs(took / its - 1)
    return {
        "models": pair.name, "network": routing.topology.name, "hosts": routing.topology.npus, "pattern": pattern,
        "messages": len(took), "makespan_us": round(end / 1e6, 3),
        "its_makespan_us": round(its_end / 1e6, 3), "makespan": round(makespan, 5),
        "mean": round(error.mean(), 5), "most": round(error.max(), 5), "ok": abs(makespan) <= pair.bar,
        "seconds": round(seconds, 2), "its_seconds": round(its_seconds, 2),
    }  # fmt: skip


def dropping(buffer: int, runs: int = 192, senders: int = 4) -> dict[str, Any]:
    """Return a row of TCP NewReno over a queue that drops."""
    routing = Ecmp(leaf_spine(2, 1, senders, BANDWIDTH, LATENCY, buffer=buffer))
    means = np.empty((2, runs))
    drops = np.zeros(2, np.int64)
    ours, theirs = connections("newreno", "reno", 5)
    for run in range(runs):
        chance = np.random.default_rng(run)
        begin = chance.integers(0, 200_000_000, senders)
        size = chance.integers(1 << 20, 1 << 22, senders)
        models: list[tuple[Transport, Any]] = [
            (replace(ours, jitter=JITTER, seed=run), "compiled"),
            (theirs, "interpreted"),
        ]
        for i, (model, mode) in enumerate(models):
            moved = offer(model, routing, range(senders), [senders] * senders, size, begin, mode=mode)
            means[i, run] = (moved.arrived - begin).mean() / 1e6
            drops[i] += moved.use.drops.sum()
    middle, its_middle = np.sort(means, axis=1)[:, runs // 4 : runs - runs // 4].mean(axis=1)
    return {
        "models": "tcp/ns-3 newreno, drops", "buffer_kib": buffer >> 10, "runs": runs,
        "middle_us": round(middle, 1), "its_middle_us": round(its_middle, 1),
        "makespan": round(middle / its_middle - 1, 4), "means_us": means.mean(axis=1).round(1).tolist(),
        "drops": drops.tolist(), "ok": bool(abs(middle / its_middle - 1) <= 0.10),
    }  # fmt: skip


if __name__ == "__main__":
    main()
