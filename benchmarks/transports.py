"""Protocol `rdma` against published results of htsim (uet-htsim, datacenter/validate_outputs) and their bounds.

One JSON line per case: the time of the last flow in us, as its sender sees it (with the way of the last ACK), that of
the reference, the ratio, and the earliest. `bound` is what no transport beats, or upstream's own target.

`nscc+rccc` is measured too; the sheet has a reference for one case only. `one path` compares a permutation on one path
with what its fullest link needs, over ten draws.

Usage: python benchmarks/transports.py [CASE ...]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import armillary
from armillary.engine.transport.offer import offer
from armillary.engine.transport.rdma import Rdma
from armillary.platform.topology import Ecmp, Topology, fat_tree, leaf_spine
from armillary.trace import GraphBuilder, Trace

MTU, HEADER, ACK = 4086, 64, 64
FLOW = 2_000_000
RATE, HOP = 12.5, 1000.0
"""bytes/ns, ns: 100 Gb/s and 1 us per link, three tiers."""
ALONE = 13.5
"""us that a flow takes besides its bytes: six links there and back, and five that store a packet."""
PAIRS_16 = "13->6 1->4 6->0 2->13 10->5 15->1 8->14 14->2 5->15 4->12 12->11 0->8 9->7 7->9 3->10 11->3"
PAIRS_32 = (
    "19->0 1->25 13->4 8->6 3->5 23->1 11->23 12->28 18->12 14->19 15->29 10->2 17->26 31->9 0->16 30->14 6->8 2->31 "
    "22->3 26->10 27->20 24->30 4->11 28->21 7->13 20->18 5->17 25->24 29->15 21->7 9->27 16->22"
)
"""The permutations of perm_16n and perm_32n, which come with uet-htsim."""

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
    """Flows on a tree; `nscc`, `rccc`: the reference's last flow in us; `links`: of the way of the last one."""

    tree: Topology
    source: Any
    target: Any
    size: Any
    nscc: float | None
    rccc: float | None
    bound: float
    begin: Any = 0
    options: Any = None
    links: int = 6


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


def tree_of(ports: int, over: float = 1.0) -> Topology:
    """Return a fat tree of switches with so many ports."""
    return fat_tree(ports, RATE, HOP, oversubscription=over)


def cases() -> dict[str, Callable[[], Case]]:
    """Return the cases, by name."""
    ends, far = (
        np.array([pair.split("->") for pair in each.split()], int).T for each in (PAIRS_16, PAIRS_32)
    )
    wide, one, every = {"paths": 128}, {"spread": "message"}, np.arange(1024)
    target = ring_free(1024, 13)
    begin = [0, 40_000_000, 40_000_000]
    out, into = [1, *[2] * 10, *[3] * 9], [0, 0, *range(4, 13), 0, *range(13, 21)]
    leaves = leaf_spine(4, 2, 8, RATE, HOP)
    found = {
        "one": lambda: Case(tree_of(4), [0], [13], FLOW, 176.2, 177.368, 176.4),
        "256 KiB, same switch": lambda: Case(tree_of(4), [0], [1], 1 << 18, 25.37, None, 25.4, links=2),
        "256 KiB, same pod": lambda: Case(tree_of(4), [0], [2], 1 << 18, 29.67, None, 29.7, links=4),
        "256 KiB, across": lambda: Case(tree_of(4), [0], [13], 1 << 18, 34.34, None, 34.3),
        "bidir": lambda: Case(tree_of(4), [0, 13], [13, 0], FLOW, 176.804, 178.18, 190),
        "incast4": lambda: Case(tree_of(4), [1, 5, 9, 13], 0, 1_000_000, 331.8, 333.8, 325.4),
        "incast16": lambda: Case(tree_of(4), np.arange(15), 15, FLOW, 2478.53, 2464.44, 2440),
        "incast16, drop": lambda: Case(
            tree_of(4),
            np.arange(15),
            15,
            FLOW,
            2737.78,
            None,
            2440,
            options={"full": "drop", "recovery": "timeout"},
        ),
        "incast128": lambda: Case(tree_of(8), np.arange(127), 127, FLOW, 21029.3, 20891.4, 20660),
        "incast1024": lambda: Case(tree_of(16), np.arange(1023), 1023, 100_000, 10556.2, 8902.25, 8950),
        "3-to-1": lambda: Case(
            tree_of(8), [127, 95, 61], 0, [FLOW, 250_000, 250_000], 221.731, 217.08, 220, begin=begin
        ),
        "outcast-incast": lambda: Case(tree_of(8), out, into, FLOW, 1638, 1638, 2500),
        "perm16, 128 paths": lambda: Case(tree_of(4), *ends, FLOW, 194.022, 195.673, 176.2, options=wide),
        "perm16, 1 path": lambda: Case(tree_of(4), *ends, FLOW, 527.755, 515.24, 1300, options=one),
        "perm32, leaf-spine 4:1": lambda: Case(leaves, *far, FLOW, 732.6, 724.9, 651, links=4),
        "perm1024, 128 paths": lambda: Case(
            tree_of(16), every, target, FLOW, 200.507, 203.384, 220, options=wide
        ),
        # Trees with four and eight NPUs per uplink have 1,000 and 1,024 NPUs.
        "perm1000, 4:1": lambda: Case(
            tree_of(10, 4.0), every[:1000], ring_free(1000, 13), FLOW, 785.8, 749.7, 651, options=wide
        ),
        "perm1024, 8:1": lambda: Case(
            tree_of(8, 8.0), every, target, FLOW, 1443.4, 1459.1, 1301, options=wide
        ),
    }

    def balanced(slow: bool, spread: str, nscc: float, rccc: float) -> Case:
        tree = slow_links(tree_of(16)) if slow else tree_of(16)
        return Case(tree, every, target, FLOW, nscc, rccc, 220, options={"spread": spread, **wide})

    def large(rate: float, nscc: float, rccc: float) -> Case:
        # The sheet does not say how many leaves: ours have 64 NPUs and 64 uplinks.
        tree = leaf_spine(128, 64, 64, rate, HOP)
        pairs = np.arange(tree.npus), ring_free(tree.npus, 13)
        return Case(tree, *pairs, 1_000_000, nscc, rccc, 1000 / rate + 9, options=wide, links=4)

    for slow, name, *balancer in BALANCERS:
        found[f"perm1024, {name}{', slow links' * slow}"] = partial(balanced, slow, *balancer)
    for gbits, *results in ((200, 58.8, 59.7), (400, 35.4, 36.3), (800, 22.1, 22.3)):
        found[f"perm8192, {gbits} Gb/s, 1 MB"] = partial(large, gbits / 8, *results)
    return found


def transport(control: str, options: Any = None) -> Rdma:
    """Return the transport of a control."""
    return Rdma(control=control, mtu=MTU, header=HEADER, seed=13, **(options or {}))


def measure(name: str, case: Case, control: str) -> dict[str, Any]:
    """Run a case."""
    start = time.process_time()
    source, target = np.broadcast_arrays(case.source, case.target)
    rdma, numbers = transport(control, case.options), np.arange(len(source))
    got = offer(rdma, Ecmp(case.tree), source, target, case.size, case.begin, flow=numbers)
    if got.arrived.min() < 0:
        raise RuntimeError(f"{name}: a message has not arrived")
    # The sender sees the last ACK.
    back = case.links * (HOP + ACK / case.tree.bandwidth.max()) / 1e3
    last, first = got.arrived.max() / 1e6 + back, got.arrived.min() / 1e6 + back
    reference = {"nscc": case.nscc, "rccc": case.rccc}.get(control)
    return {
        "name": name, "control": control, "last": round(float(last), 1), "reference": reference,
        "ratio": reference and round(float(last / reference), 3), "bound": case.bound,
        "first": round(float(first), 1), "dropped or trimmed": int(got.use.drops.sum()),
        "cpu": round(time.process_time() - start, 1),
    }  # fmt: skip


def one_path(control: str, draws: int = 10) -> dict[str, Any]:
    """Run permutations of 1,024 on one path each, and compare each with what its fullest link needs."""
    tree, every, single = tree_of(16), np.arange(1024), {"spread": "message"}
    per_flow = FLOW + -(-FLOW // MTU) * HEADER
    full, ratio = [], []
    for seed in range(13, 13 + draws):
        pairs = every, ring_free(1024, seed)
        # Ways depend on the pair only; without losses the bytes of a link tell its flows.
        use = offer(transport("line-rate", single), Ecmp(tree), *pairs, FLOW, flow=every).use
        full.append(int(np.rint(use.size / per_flow).max()))
        got = offer(transport(control, single), Ecmp(tree), *pairs, FLOW, flow=every)
        needed = full[-1] * per_flow / RATE / 1e3 + ALONE
        ratio.append(round(float(got.arrived.max() / 1e6 + 6 * (HOP + ACK / RATE) / 1e3) / needed, 3))
    return {"name": "one path", "control": control, "fullest link": full, "of what it needs": ratio}


SERIAL = (2, 11, 4, 8, 9, 15, 5, 7, 10, 12, 6, 3, 1, 14, 0, 13)
"""Order of the NPUs of the reference: each sends to the next one, then to the one after that."""


def serial(control: str, spread: str, draws: int = 8) -> dict[str, Any]:
    """Run all-to-alls of 16 by seeds: each NPU sends 2 MB to one after the other, once the last ACK is there."""
    tree = {"kind": "fat-tree", "k": 4, "bandwidth": "100 Gbit/s", "latency": "1 us", "routing": "ecmp"}
    packets = {
        "protocol": "rdma",
        "control": control,
        "mtu": f"{MTU} B",
        "header": f"{HEADER} B",
        "spread": spread,
    }
    graphs = {}
    for place, rank in enumerate(SERIAL):
        graph = GraphBuilder(rank=rank)
        for other in range(16):
            if other != rank:
                graph.recv(other, FLOW)
        last: list[int] = []
        for step in range(1, 16):
            to = SERIAL[(place + step) % 16]
            # Links between hosts of a switch, of a pod, and of two pods; 5 ns for an ACK on each.
            links = 2 if rank // 2 == to // 2 else 4 if rank // 4 == to // 4 else 6
            sent = graph.send(to, FLOW, after=last)
            last = [graph.compute("ack", duration_micros=1.005 * links, after=[sent])]
        graphs[rank] = graph.graph()
    found = []
    for seed in range(13, 13 + draws):
        machine = armillary.load_platform(
            {"platform": {"topology": tree, "packets": {**packets, "seed": seed}}}
        )
        done = armillary.simulate(Trace.from_ranks(graphs), machine, network_model="packet")
        found.append(round(done.total_ticks / 1e3))
    reference = {"nscc": 2946, "rccc": 3362, "nscc+rccc": 3153}[control]
    mean = round(sum(found) / draws / reference, 3)
    return {
        "name": f"serial, {spread}",
        "control": control,
        "last": found,
        "reference": reference,
        "ratio": mean,
    }


def main() -> None:
    """Measure the cases named, or all."""
    known = cases()
    more = {
        "one path": one_path,
        **{f"serial, {spread}": partial(serial, spread=spread) for spread in ("reps", "bitmap")},
    }
    for name in sys.argv[1:] or (*known, *more):
        for control in ("nscc", "rccc", "nscc+rccc"):
            found = measure(name, known[name](), control) if name in known else more[name](control)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
