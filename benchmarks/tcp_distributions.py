"""How far the times of TCP with drops are distributed as ns-3's: one JSON line per case.

Senders under one leaf switch share the link to a receiver, whose queue drops. Every run draws begins and, for each
sender, a latency of its own: over equal links the same senders would be dropped in every run (phase effects, Floyd and
Jacobson 1991), in ns-3 too. Both programs have the same draws, delayed ACKs of 200 ms after the first, SACK and
proportional rate reduction, and no jitter. Messages are whole segments, as ns-3 holds back a part of one (Nagle).

`d` and `p` are of the two-sample Kolmogorov-Smirnov test of the times of messages, of the last message of a run, of the
packets that a run drops, and of the messages of a run that a timeout meets; `quantiles` are the 10, 50 and 90 % ones,
ours and ns-3's (us, packets, messages). Messages of a run are not independent: the first `p` is rather too small.

Usage: python benchmarks/tcp_distributions.py [--runs 100] [--cases light,heavy]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.engine.transport.ns3.transport import Ns3
from armillary.engine.transport.offer import offer
from armillary.engine.transport.tcp import Tcp
from armillary.engine.transport.transport import Transport
from armillary.platform.topology import UNBOUNDED, Ecmp, leaf_spine

SEGMENT, SEGMENTS = 1448, 724
SPREAD = 5000.0
"""Most ns that a sender's link is longer."""


class Case(NamedTuple):
    """Senders, bytes of a queue, least timeout (ms), and ps within which messages begin."""

    senders: int
    buffer: int
    min_rto: int
    begins: int


CASES = {"light": Case(4, 64 << 10, 5, 200_000_000), "heavy": Case(7, 256 << 10, 10, 20_000_000)}


def network(case: Case, run: int) -> Ecmp:
    """Return the network of a run: links of 100 Gbit/s, 500 ns and what is drawn."""
    graph = leaf_spine(2, 1, case.senders, 12.5, 500.0, buffer=case.buffer)
    more = np.random.default_rng([run, 1]).uniform(0, SPREAD, case.senders).round(3)
    of_node = np.concatenate([more, np.zeros(graph.nodes - case.senders)])
    return Ecmp(dataclasses.replace(graph, latency=graph.latency + of_node[graph.tail] + of_node[graph.head]))


def times(transport: Transport, case: Case, runs: int) -> NDArray[np.float64]:
    """Return (runs, senders + 1) the us that messages take, and the packets that are dropped."""
    rows = []
    for run in range(runs):
        begin = np.random.default_rng(run).integers(0, case.begins, case.senders)
        done = offer(
            transport, network(case, run), range(case.senders), [case.senders] * case.senders,
            SEGMENT * SEGMENTS, begin, mode="interpreted" if transport.in_python else None,
        )  # fmt: skip
        rows.append([*((done.arrived - begin) / 1e6).tolist(), float(done.use.drops.sum())])
    return np.array(rows)


def both(case: Case, runs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the `times` of our TCP and of ns-3's."""
    tcp = Tcp(
        "newreno", header=54, ack_delay=200.0, quick_acks=1, buffer=UNBOUNDED, jitter=0.0,
        min_rto=float(case.min_rto),
    )  # fmt: skip
    return times(tcp, case, runs), times(Ns3("reno", min_rto=case.min_rto * 10**6), case, runs)


def kolmogorov(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[float, float]:
    """Return the greatest distance of two empirical distributions, and how likely it is if both are one."""
    every = np.concatenate([one, other])
    below = [np.searchsorted(np.sort(each), every, side="right") / len(each) for each in (one, other)]
    distance = float(np.abs(below[0] - below[1]).max())
    root = np.sqrt(len(one) * len(other) / len(every))
    # Stephens' correction for few samples; the sum is 1 where the distance is 0.
    scaled, k = (root + 0.12 + 0.11 / root) * distance, np.arange(1, 101)
    chance = 2 * np.sum((-1.0) ** (k - 1) * np.exp(-2 * (k * scaled) ** 2)) if scaled > 0.2 else 1.0
    return distance, float(np.clip(chance, 0, 1))


def compare(name: str, runs: int) -> dict[str, object]:
    """Return one line."""
    case = CASES[name]
    ours, theirs = both(case, runs)
    line: dict[str, object] = {"case": name, **case._asdict(), "runs": runs}
    for what, of in {
        "messages": lambda rows: rows[:, :-1].ravel(),
        "last": lambda rows: rows[:, :-1].max(axis=1),
        "drops": lambda rows: rows[:, -1],
        "late": lambda rows: (rows[:, :-1] > 1e3 * case.min_rto).sum(axis=1).astype(float),
    }.items():
        one, other = of(ours), of(theirs)
        distance, chance = kolmogorov(one, other)
        quantiles = [np.percentile(each, [10, 50, 90]).round(1).tolist() for each in (one, other)]
        line[what] = {"d": round(distance, 3), "p": round(chance, 4), "quantiles": quantiles}
    return line


def main() -> None:
    """Print the lines that the options ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--cases", default=",".join(CASES))
    given = parser.parse_args()
    for name in given.cases.split(","):
        print(json.dumps(compare(name, given.runs)), flush=True)


if __name__ == "__main__":
    main()
