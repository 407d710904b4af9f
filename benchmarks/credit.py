"""How fast network model `credit` moves packets; one JSON line per case.

`seconds` is the best of three runs with warm kernels, `cpu` the processor time of that one; `hops` how many links all
packets cross together. `least` is the claim on `hops_per_second`, which is by `cpu`.

Usage: python benchmarks/credit.py
"""

from __future__ import annotations

import json
import resource
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.engine.transport.credit import Credit
from armillary.engine.transport.offer import offer
from armillary.platform.network import Dimension
from armillary.platform.topology import DimensionOrder, Ecmp, fat_tree, from_dimensions
from armillary.platform.topology.routing import Routing

Ints = NDArray[np.int64]
BANDWIDTH, LATENCY = 50.0, 500.0


def torus(*sizes: int, buffer: int | None = None) -> DimensionOrder:
    """Rings of 50 GB/s and 500 ns."""
    dimensions = [Dimension(f"dim{i}", "Ring", size, BANDWIDTH, LATENCY) for i, size in enumerate(sizes)]
    limit = {} if buffer is None else {"buffer": buffer}
    return DimensionOrder(from_dimensions(dimensions, **limit))


def neighbours(routing: Routing, shift: int) -> tuple[Ints, Ints]:
    """Every NPU sends to one so many ranks on."""
    rank = np.arange(routing.topology.npus)
    return rank, (rank + shift) % len(rank)


def permutations(routing: Routing, rounds: int) -> tuple[Ints, Ints]:
    """Every NPU sends to `rounds` others, drawn so that each receives as many."""
    chance = np.random.default_rng(1)
    count = routing.topology.npus
    return np.tile(np.arange(count), rounds), np.concatenate(
        [chance.permutation(count) for _ in range(rounds)]
    )


def measure(
    name: str, routing: Routing, ends: tuple[Ints, Ints], size: int, least: float, credit: Credit
) -> dict[str, Any]:
    """Move a message of `size` bytes between each pair of ends; returns the row of the best run."""
    source, target = ends
    links = int(routing.paths(source, target, np.arange(len(source))).first[-1])
    hops = links * -(-size // credit.packet)
    best, used, events = float("inf"), 0.0, 0
    for _ in range(4):
        start, cpu = time.perf_counter(), time.process_time()
        offered = offer(credit, routing, source, target, size, flow=np.arange(len(source)))
        seconds = time.perf_counter() - start
        if seconds < best:
            best, used, events = seconds, time.process_time() - cpu, offered.events
    assert (offered.arrived >= 0).all()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = {"name": name, "seconds": round(best, 3), "cpu": round(used, 3), "hops": hops, "events": events}
    return {**row, "hops_per_second": round(hops / used), "peak_mib": round(peak), "least": least}


def main() -> None:
    """Measure all cases."""
    cube, full = torus(4, 4, 4), torus(4, 4, 4, buffer=16384)
    plane, tree = torus(32, 32), Ecmp(fat_tree(8, BANDWIDTH, LATENCY))
    for case in (
        ("torus of 4 x 4 x 4, shift by 1", cube, neighbours(cube, 1), 1 << 24),
        ("torus of 4 x 4 x 4, random", cube, permutations(cube, 16), 1 << 20),
        ("torus of 4 x 4 x 4, random, 16 KiB buffers", full, permutations(full, 16), 1 << 20),
        ("torus of 32 x 32, random", plane, permutations(plane, 2), 1 << 18),
        ("fat tree of 128, random", tree, permutations(tree, 8), 1 << 20),
    ):
        print(json.dumps(measure(*case, 2e6, Credit())), flush=True)


if __name__ == "__main__":
    main()
