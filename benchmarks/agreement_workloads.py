"""How far network models agree on the time of whole workloads; one JSON line per workload, network and pair of models.

Collectives are simulated with all that ranks wait for: a rank goes on with the next round when its own messages are
through, so that rounds of different ranks overlap. `error` is by how much the first model's step is longer than the
second's, as a share; `ranks` the mean of the same of all ranks' ends, without sign. `ok` tells whether the step is
within the bar: 2 % (packets against ns-3's UDP, told the same headers), 10 % (TCP NewReno against ns-3's), 10 % (flow
against packets, whose mean is to be within 5 %). The last lines sum up each pair.

Usage: python benchmarks/agreement_workloads.py [--hosts 16,64,128] [--pairs flow,headers,udp,tcp]
       [--patterns incast,…] [--networks torus,…]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import armillary
from armillary.engine.common.timeline import Timeline
from armillary.platform.logical import logical_dimensions
from armillary.platform.model import Collectives, Packets, Platform
from armillary.platform.network import Dimension
from armillary.platform.topology import UNBOUNDED, Network, Topology, from_dimensions, leaf_spine
from armillary.trace import GraphBuilder, Trace
from armillary.workload.micro.collectives import collective_trace

BANDWIDTH, LATENCY = 12.5, 500.0
"""100 Gbit/s in bytes/ns, and ns."""
UDP_HEADER, TCP_HEADER = 8 + 20 + 2, 32 + 20 + 2
"""As ns-3 sends them: UDP, or TCP with timestamps; IPv4; PPP."""
MESSAGE = 1 << 20
"""Bytes of a message from one NPU to another."""


@dataclass(frozen=True)
class Pair:
    """Two models, each with what it is told of packets, and how far they may be apart."""

    name: str
    model: str
    other: str
    packets: Packets
    bar: float


PAIRS = {
    "flow": Pair(
        "flow / packet, 1 KiB, no headers", "flow", "packet", Packets("lossless", {"mtu": 1024, "header": 0}), 0.10
    ),
    "headers": Pair("flow / packet, 4 KiB and 62 B", "flow", "packet", Packets(), 0.10),
    "udp": Pair(
        "packet / ns-3 UDP", "packet", "ns3", Packets("lossless", {"mtu": 4096, "header": UDP_HEADER}), 0.02
    ),
    "tcp": Pair(
        "tcp / ns-3 TCP NewReno", "packet", "ns3",
        Packets("tcp", {
            "algorithm": "newreno", "header": TCP_HEADER, "ack_delay": 200.0, "buffer": UNBOUNDED, "jitter": 0.0,
        }), 0.10,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A workload on a network."""

    pattern: str
    network: str
    trace: Trace
    platform: Platform


def networks(hosts: int) -> dict[str, Topology]:
    """Return leaves and spines, full and with uplinks of a quarter, and a torus; `hosts` is a power of 2."""
    side = 1 << (hosts.bit_length() - 1) // 2
    across = hosts // side
    rings = [Dimension(name, "Ring", size, BANDWIDTH, LATENCY) for name, size in (("x", side), ("y", across))]
    return {
        "leaf-spine": leaf_spine(across, side, side, BANDWIDTH, LATENCY),
        "leaf-spine 4:1": leaf_spine(across, side, side, BANDWIDTH, LATENCY, uplink=BANDWIDTH / 4),
        "torus": from_dimensions(rings),
    }


def platform_of(topology: Topology, hierarchy: tuple[int, ...], algorithm: str) -> Platform:
    """Return the machine on which all-reduce runs by an algorithm at each level."""
    routing: Any = "dimension-order" if topology.dimensions else "ecmp"
    names = {"all-reduce": (algorithm,) * len(hierarchy)}
    return Platform(
        logical_dimensions(topology, hierarchy), collectives=Collectives(names), topology=Network(topology, routing)
    )  # fmt: skip


def sends(hosts: int, pairs: list[tuple[int, int]], size: int) -> Trace:
    """Return the trace in which each pair moves one message, all at once."""
    builders = [GraphBuilder(rank=rank) for rank in range(hosts)]
    for source, target in pairs:
        builders[source].send(target, size)
        builders[target].recv(source, size)
    return Trace.from_ranks([builder.graph(str(rank)) for rank, builder in enumerate(builders)])


def cases(hosts: int) -> Iterator[Case]:
    """Yield all workloads on all networks.

    An all-reduce is of 256 KiB per host, an all-to-all of 64 KiB from each to each; others send 1 MiB.
    """
    part = 1 << 18
    order = np.random.default_rng(6).permutation(hosts)
    shuffled = list(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True))
    reduce = collective_trace("all-reduce", hosts, hosts, part * hosts)
    for name, topology in networks(hosts).items():
        side = 1 << (hosts.bit_length() - 1) // 2
        flat, levels = (hosts,), (side, hosts // side)
        for pattern, trace, hierarchy, algorithm in (
            ("ring all-reduce", reduce, flat, "ring"),
            ("halving-doubling all-reduce", reduce, flat, "halvingDoubling"),
            ("hierarchical all-reduce", reduce, levels, "ring"),
            ("all-to-all", collective_trace("all-to-all", hosts, hosts, part // 4 * hosts), flat, "ring"),
            ("permutation", sends(hosts, shuffled, MESSAGE), flat, "ring"),
            ("incast", sends(hosts, [(host, 0) for host in range(1, hosts, 4)], MESSAGE), flat, "ring"),
        ):
            yield Case(pattern, name, trace, platform_of(topology, hierarchy, algorithm))


def simulated(case: Case, model: str, packets: Packets) -> tuple[Timeline, float]:
    """Return the timeline, and the seconds it took."""
    begin = time.perf_counter()
    timeline = armillary.simulate(case.trace, replace(case.platform, packets=packets), network_model=model)
    return timeline, time.perf_counter() - begin


def compared(case: Case, pair: Pair) -> dict[str, Any]:
    """Return a row of the table."""
    ours, seconds = simulated(case, pair.model, pair.packets)
    its, its_seconds = simulated(case, pair.other, pair.packets)
    error = ours.total_ticks / its.total_ticks - 1
    ends, its_ends = (line.finish[line.rank_class] for line in (ours, its))
    apart = float(np.mean(np.abs(ends - its_ends) / np.maximum(its_ends, 1)))
    return {
        "models": pair.name, "pattern": case.pattern, "network": case.network, "hosts": case.platform.npus,
        "step_us": ours.total_ticks / 1000, "its_step_us": its.total_ticks / 1000, "error": round(error, 5),
        "ranks": round(apart, 5), "ok": abs(error) <= pair.bar,
        "seconds": round(seconds, 2), "its_seconds": round(its_seconds, 2),
    }  # fmt: skip


def summary(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a pair's rows come to."""
    errors = [abs(row["error"]) for row in rows]
    return {
        "models": name, "cases": len(rows), "mean": round(float(np.mean(errors)), 5), "most": max(errors),
        "missed": sum(not row["ok"] for row in rows),
    }  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", default="16,64,128")
    parser.add_argument("--pairs", default="flow,headers,udp,tcp")
    parser.add_argument("--patterns", default="")
    parser.add_argument("--networks", default="")
    asked = parser.parse_args()
    sums = []
    for pair in (PAIRS[name] for name in asked.pairs.split(",")):
        rows = []
        for hosts in map(int, asked.hosts.split(",")):
            for case in cases(hosts):
                if asked.patterns and case.pattern not in asked.patterns.split(","):
                    continue
                if asked.networks and case.network not in asked.networks.split(","):
                    continue
                rows.append(compared(case, pair))
                print(json.dumps(rows[-1]), flush=True)
        sums.append(summary(pair.name, rows))
    for line in sums:
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
