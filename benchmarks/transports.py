"""Protocol `rdma` against published results of htsim (uet-htsim, datacenter/validate_outputs) and their bounds.

One JSON line per case: the time of the last flow in us, as its sender sees it (with the way of the last ACK), that of
the reference, the ratio, and the earliest. `bound` is what no transport beats, or upstream's own target.

Usage: python benchmarks/transports.py [CASE ...]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from armillary.engine.transport.offer import offer
from armillary.engine.transport.rdma import Rdma
from armillary.platform.topology import Ecmp, Topology, fat_tree

MTU, HEADER = 4086, 64
FLOW = 2_000_000
RATE, HOP = 12.5, 1000.0
"""bytes/ns, ns: 100 Gb/s and 1 us per link, three tiers."""
BACK = 6.031
"""us of an ACK across the tree."""
PAIRS = "13->6 1->4 6->0 2->13 10->5 15->1 8->14 14->2 5->15 4->12 12->11 0->8 9->7 7->9 3->10 11->3"

BALANCERS = (
    (False, "oblivious", "packet", 212.8, 208.8),
    (False, "bitmap", "bitmap", 200.5, 204.1),
    (False, "REPS", "reps", 198.2, 197.3),
    (True, "oblivious", "packet", 280.8, 224.8),
    (True, "bitmap", "bitmap", 220.3, 211.3),
    (True, "REPS", "reps", 206.7, 207.9),
)
"""Whether links are slow, the balancer, and its reference with NSCC and RCCC."""


@dataclass(frozen=True)
class Case:
    """Flows on a tree of so many ports per switch; `nscc`, `rccc`: the reference's last flow in us."""

    k: int
    source: Any
    target: Any
    size: Any
    nscc: float
    rccc: float
    bound: float
    begin: Any = 0
    options: Any = None
    oversubscription: float = 1.0
    slowed: bool = False


def ring_free(npus: int, seed: int) -> Any:
    """Return a random permutation without fixed points."""
    rng = np.random.default_rng(seed)
    while True:
        target = rng.permutation(npus)
        if (target != np.arange(npus)).all():
            return target


def slow_links(tree: Topology) -> Topology:
    """Return a tree whose links from the core down to the first aggregation switch have a quarter of their rate.

    These are the first eight links that uet-htsim slows in a tree of 16 ports per switch. The sheet of results does not
    say by how much; a quarter is the default of its topology.
    """
    slow = (tree.head == tree.node("aggregation 0")) & (tree.tail >= tree.node("core 0"))
    return replace(tree, bandwidth=np.where(slow, tree.bandwidth / 4, tree.bandwidth))


def cases() -> dict[str, Callable[[], Case]]:
    """Return the cases, by name."""
    ends = np.array([pair.split("->") for pair in PAIRS.split()], int).T
    wide, one = {"paths": 128}, {"spread": "message"}
    every = np.arange(1024)
    target = ring_free(1024, 13)
    return {
        "one": lambda: Case(4, [0], [13], FLOW, 176.2, 177.368, 176.4),
        "bidir": lambda: Case(4, [0, 13], [13, 0], FLOW, 176.804, 178.18, 190),
        "incast16": lambda: Case(4, np.arange(15), 15, FLOW, 2478.53, 2464.44, 2440),
        "incast128": lambda: Case(8, np.arange(127), 127, FLOW, 21029.3, 20891.4, 20660),
        "incast1024": lambda: Case(16, np.arange(1023), 1023, 100_000, 10556.2, 8902.25, 8950),
        "3-to-1": lambda: Case(
            8,
            [127, 95, 61],
            0,
            [FLOW, 250_000, 250_000],
            221.731,
            217.08,
            220,
            begin=[0, 40_000_000, 40_000_000],
        ),
        "outcast-incast": lambda: Case(
            8, [1, *[2] * 10, *[3] * 9], [0, 0, *range(4, 13), 0, *range(13, 21)], FLOW, 1638, 1638, 2500
        ),
        "perm16, 128 paths": lambda: Case(4, ends[0], ends[1], FLOW, 194.022, 195.673, 176.2, options=wide),
        "perm16, 1 path": lambda: Case(4, ends[0], ends[1], FLOW, 527.755, 515.24, 1300, options=one),
        "perm1024, 128 paths": lambda: Case(16, every, target, FLOW, 200.507, 203.384, 220, options=wide),
        "perm1024, 1 path": lambda: Case(16, every, target, FLOW, 889.92, 1063.0, 1300, options=one),
        # Trees with four and eight NPUs per uplink have 1,000 and 1,024 NPUs.
        "perm1000, 4:1": lambda: Case(
            10,
            np.arange(1000),
            ring_free(1000, 13),
            FLOW,
            785.8,
            749.7,
            651,
            options=wide,
            oversubscription=4.0,
        ),
        "perm1024, 8:1": lambda: Case(
            8, every, target, FLOW, 1443.4, 1459.1, 1301, options=wide, oversubscription=8.0
        ),
        **{
            f"perm1024, {name}{', slow links' * slowed}": lambda spread=spread, nscc=nscc, rccc=rccc, slowed=slowed: (
                Case(
                    16,
                    every,
                    target,
                    FLOW,
                    nscc,
                    rccc,
                    220,
                    options={"spread": spread, **wide},
                    slowed=slowed,
                )
            )
            for slowed, name, spread, nscc, rccc in BALANCERS
        },
    }


def measure(name: str, case: Case, control: str) -> dict[str, Any]:
    """Run a case."""
    start = time.process_time()
    tree = fat_tree(case.k, RATE, HOP, oversubscription=case.oversubscription)
    tree = slow_links(tree) if case.slowed else tree
    rdma = Rdma(control=control, mtu=MTU, header=HEADER, seed=13, **(case.options or {}))
    source, target = np.broadcast_arrays(case.source, case.target)
    got = offer(rdma, Ecmp(tree), source, target, case.size, case.begin, flow=np.arange(len(source)))
    if got.arrived.min() < 0:
        raise RuntimeError(f"{name}: a message has not arrived")
    last, first = got.arrived.max() / 1e6 + BACK, got.arrived.min() / 1e6 + BACK
    reference = case.nscc if control == "nscc" else case.rccc
    return {
        "name": name, "control": control, "last": round(float(last), 1), "reference": reference,
        "ratio": round(float(last / reference), 3), "bound": case.bound, "first": round(float(first), 1),
        "dropped or trimmed": int(got.use.drops.sum()), "cpu": round(time.process_time() - start, 1),
    }  # fmt: skip


def main() -> None:
    """Measure the cases named, or all."""
    known = cases()
    for name in sys.argv[1:] or known:
        for control in ("nscc", "rccc"):
            print(json.dumps(measure(name, known[name](), control)), flush=True)


if __name__ == "__main__":
    main()
