"""An all-reduce of 1 MiB on a torus of 4 x 4 x 4 in network model `credit` against `analytical`; JSON lines.

The case by which ASTRA-sim 2.0 (Won et al., ISPASS 2023) compares Garnet, 21.42 min, with its analytical network,
1.70 s: 756 times. Here rings of 50 GB/s and 500 ns, and one chunk: reduce-scatter in x, y, z, then all-gather in z, y,
x, every step a message to the next NPU of a ring. All NPUs are alike, so a step begins when the last one has ended.
`seconds` is the best of three with warm kernels, `times` that over `seconds` of `analytical`; `error` of `ns` is
relative to `credit`.

Usage: python benchmarks/credit_torus.py
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import numpy as np

import armillary
from armillary.engine.transport.credit import Credit
from armillary.engine.transport.offer import offer
from armillary.platform.model import Algorithm, Dimension, Platform, System
from armillary.platform.topology import DimensionOrder, from_dimensions
from armillary.trace import GraphBuilder, Trace

SIDE, SIZE = 4, 1 << 20
DIMENSIONS = tuple(Dimension(name, "Ring", SIDE, 50.0, 500.0) for name in "xyz")


def steps() -> list[tuple[int, int]]:
    """Return the dimension and the bytes of a message of every step."""
    down = [(d, SIZE // SIDE ** (d + 1)) for d in range(3) for _ in range(SIDE - 1)]
    return down + down[::-1]


def credit(model: Credit) -> tuple[float, int]:
    """Return ns and events."""
    routing = DimensionOrder(from_dimensions(DIMENSIONS))
    rank = np.arange(SIDE**3)
    begin, events = 0, 0
    for dimension, size in steps():
        stride = SIDE**dimension
        at = rank // stride % SIDE
        moved = offer(model, routing, rank, rank + ((at + 1) % SIDE - at) * stride, size, begin)
        begin, events = int(moved.arrived.max()), events + moved.events
    return begin / 1000, events


def analytical() -> tuple[float, int]:
    """Return ns of the same schedule."""
    builder = GraphBuilder()
    builder.all_reduce("sum", size=SIZE)
    ring = {"all-reduce": (Algorithm("ring"),) * 3}
    system = System(
        collective_optimization="localBWAware", endpoint_delay=0, local_reduction_delay=0, algorithms=ring
    )
    trace = Trace.replicate(builder.graph(), SIDE**3)
    return float(armillary.simulate(trace, Platform(DIMENSIONS, system), profile="astra-sim").total_ticks), 0


def best(run: Callable[[], tuple[float, int]]) -> tuple[float, float, int]:
    """Return the seconds of the fastest of three after one, and what it returned."""
    seconds = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        ns, events = run()
        seconds = min(seconds, time.perf_counter() - start)
    return seconds, ns, events


def main() -> None:
    """Measure."""
    base, found, _ = best(analytical)
    print(json.dumps({"name": "analytical", "seconds": round(base, 5), "ns": found}), flush=True)
    for packet, flit in ((4096, 64), (256, 16), (64, 64)):
        model = Credit(packet=packet, flit=flit)
        seconds, ns, events = best(lambda model=model: credit(model))
        row = {
            "name": f"credit, packets of {packet} bytes",
            "seconds": round(seconds, 4),
            "ns": ns,
            "events": events,
        }
        print(
            json.dumps({**row, "times": round(seconds / base, 1), "error": round(found / ns - 1, 5)}),
            flush=True,
        )


if __name__ == "__main__":
    main()
