"""How fast network model `packet` moves packets; one JSON line per case.

`cpu` is the best processor time of three runs with warm kernels, routes and tables included; `hops` how many links all
packets cross together, `events_per_hop` what that took. `least` is the claim on `hops_per_second`; where a million
packets wait at once, memory sets the pace.

Usage: python benchmarks/packet.py
"""

from __future__ import annotations

import json
import resource
import time
from typing import Any

import numpy as np

from armillary.engine.transport.control.dcqcn import Dcqcn
from armillary.engine.transport.offer import offer
from armillary.engine.transport.packet import Packet
from armillary.platform.network import Dimension
from armillary.platform.topology import DimensionOrder, Ecmp, Routing, fat_tree, from_dimensions, leaf_spine

MTU = 4096
LOSSLESS: dict[str, Any] = {"mtu": MTU, "buffer": 400_000}
MARKED: dict[str, Any] = {**LOSSLESS, "kmin": 100_000, "kmax": 400_000, "pmax": 0.2, "dcqcn": Dcqcn()}


def all_to_all(npus: int) -> tuple[Any, Any]:
    """Every NPU to every other, each starting with the one after it."""
    source, step = np.divmod(np.arange(npus * (npus - 1)), npus - 1)
    return source, (source + step + 1) % npus


def permutations(npus: int, rounds: int) -> tuple[Any, Any]:
    """Every NPU to a random one, `rounds` times at once."""
    chance = np.random.default_rng(1)
    target = np.concatenate([chance.permutation(npus) for _ in range(rounds)])
    source = np.tile(np.arange(npus), rounds)
    return source[source != target], target[source != target]


def measure(
    name: str, options: Packet, routing: Routing, ends: tuple[Any, Any], size: int, least: float
) -> dict[str, Any]:
    """Run four times; returns the row of the best."""
    source, target = ends
    flow = np.arange(len(source))
    best = float("inf")
    for _ in range(4):
        start = time.process_time()
        got = offer(options, routing, source, target, size, flow=flow)
        best = min(best, time.process_time() - start)
    hops = int(routing.paths(source, target, flow).hops.sum()) * -(-size // MTU)
    if got.arrived.min() < 0:
        raise RuntimeError(f"{name}: a message has not arrived")
    use = {"marks": int(got.use.marks.sum()), "paused_ms": round(float(got.use.paused.sum()) / 1e9, 3)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = {"name": name, "cpu": round(best, 3), "hops": hops, "hops_per_second": round(hops / best), **use}
    events = round(got.events / hops, 2)
    return {**row, "events_per_hop": events, "peak_mib": round(peak), "least": least}


def main() -> None:
    """Measure all cases."""
    leaves = Ecmp(leaf_spine(8, 8, 16, 50.0, 500.0))
    many = Ecmp(leaf_spine(16, 16, 32, 50.0, 500.0))
    tree = Ecmp(fat_tree(16, 50.0, 500.0))
    torus = DimensionOrder(from_dimensions([Dimension(name, "Ring", 16, 50.0, 500.0) for name in "xy"]))
    every, some = all_to_all(128), permutations(1024, 4)
    for name, options, routing, ends, size, least in (
        ("leaf-spine of 512, all-to-all", Packet(mtu=MTU), many, all_to_all(512), 1 << 16, 10e6),
        ("leaf-spine of 128, all-to-all", Packet(mtu=MTU), leaves, every, 1 << 17, 10e6),
        ("leaf-spine of 128, all-to-all, pauses", Packet(**LOSSLESS), leaves, every, 1 << 17, 2e6),
        ("leaf-spine of 128, all-to-all, DCQCN", Packet(**MARKED), leaves, every, 1 << 17, 2e6),
        ("fat tree of 1024, random", Packet(mtu=MTU), tree, some, 1 << 20, 1e6),
        ("fat tree of 1024, random, pauses", Packet(**LOSSLESS), tree, some, 1 << 20, 1e6),
        ("torus of 16 x 16, random", Packet(mtu=MTU), torus, permutations(256, 8), 1 << 20, 2e6),
    ):
        print(json.dumps(measure(name, options, routing, ends, size, least)), flush=True)


if __name__ == "__main__":
    main()
