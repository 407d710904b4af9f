"""How far our TCP agrees with ns-3's: one JSON line per buffer and pattern, means over random begins of messages.

Over 4 leaves and 2 spines at 100 Gbit/s, 16 hosts; the room of switch ports is given, that of hosts has no limit. Both
open a connection for every message, with ns-3's defaults: delayed ACKs of 200 ms, SACK, proportional rate reduction.
`last` is when the last message has arrived, `mean` and `median` are over the times of messages (us), each ours and
ns-3's; `drops` are packets, `late` messages that met a timeout. With drops a message meets a timeout or not, by
chance: a few begins do not give a mean.

Usage: python benchmarks/tcp_against_ns3.py [--algorithm newreno] [--buffers 100000,400000,0] [--begins 5] [--jitter 10]
"""

from __future__ import annotations

import argparse
import dataclasses
import json

import numpy as np

from armillary.engine.transport.ns3.transport import Ns3
from armillary.engine.transport.offer import offer
from armillary.engine.transport.tcp.transport import ALGORITHMS, Tcp
from armillary.platform.topology import Ecmp, leaf_spine
from armillary.platform.topology.graph import UNBOUNDED

HOSTS = 16
MARK = 97_500
NS3_NAME = {"newreno": "reno", "cubic": "cubic", "dctcp": "dctcp"}


def patterns() -> dict[str, tuple[list[tuple[int, int]], int]]:
    """Return pairs of hosts and bytes of a message."""
    order = np.random.default_rng(6).permutation(HOSTS)
    return {
        "incast of 4": ([(host, 0) for host in range(1, HOSTS, 4)], 1 << 20),
        "incast of 15": ([(host, 0) for host in range(1, HOSTS)], 1 << 20),
        "permutation": (list(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True)), 1 << 20),
        "all-to-all": ([(a, (a + k) % HOSTS) for k in range(1, HOSTS) for a in range(HOSTS)], 1 << 17),
    }


def routing(buffer: int) -> Ecmp:
    """Return ways over a leaf-spine network whose switches have `buffer` bytes per port, 0 for no limit."""
    graph = leaf_spine(4, 2, 4, 12.5, 500.0, buffer=buffer or UNBOUNDED)
    room = np.where(graph.tail < graph.npus, UNBOUNDED, graph.buffer)
    return Ecmp(dataclasses.replace(graph, buffer=room))


def compare(
    algorithm: str, buffer: int, pattern: str, begins: int, min_rto: float, jitter: float
) -> dict[str, object]:
    """Return one line."""
    pairs, size = patterns()[pattern]
    source, target = np.array(pairs).T
    tcp = Tcp(
        algorithm, header=54, min_rto=min_rto, ack_delay=200, buffer=UNBOUNDED, mark=MARK, persistent=False,
        handshake=True, jitter=jitter,
    )  # type: ignore[arg-type]  # fmt: skip
    ns3 = Ns3(NS3_NAME[algorithm], min_rto=round(min_rto * 1e6), mark=MARK if algorithm == "dctcp" else 0)  # type: ignore[arg-type]
    rows = []
    for seed in range(begins):
        begin = np.random.default_rng(seed).integers(0, 10**7, len(source))
        ways = routing(buffer)
        both = (
            offer(tcp, ways, source, target, size, begin),
            offer(ns3, ways, source, target, size, begin, mode="interpreted"),
        )
        times = [(one.arrived - begin) / 1e6 for one in both]
        rows.append([
            [time.max(), time.mean(), np.median(time), one.use.drops.sum(), (time > 1e3 * min_rto).sum()]
            for time, one in zip(times, both, strict=True)
        ])  # fmt: skip
    means = np.mean(rows, axis=0)
    names = ("last", "mean", "median", "drops", "late")
    line: dict[str, object] = {
        "algorithm": algorithm,
        "buffer": buffer,
        "pattern": pattern,
        "min_rto_ms": min_rto,
    }
    line |= {name: means[:, column].round(1).tolist() for column, name in enumerate(names)}
    return line | {
        f"{name}_error": round(means[0, at] / means[1, at] - 1, 4) for at, name in enumerate(names[:3])
    }


def main() -> None:
    """Print the lines that the options ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="newreno")
    parser.add_argument("--buffers", default="100000,400000,0")
    parser.add_argument("--begins", type=int, default=5)
    parser.add_argument("--min-rto", type=float, default=10.0)
    parser.add_argument("--jitter", type=float, default=10.0)
    given = parser.parse_args()
    for buffer in map(int, given.buffers.split(",")):
        for pattern in patterns():
            line = compare(given.algorithm, buffer, pattern, given.begins, given.min_rto, given.jitter)
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
