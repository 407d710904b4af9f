"""How fast network model `congestion` moves messages; one JSON line per case.

`seconds` is the best of three simulations with warm kernels, the reading of the trace not included; `cpu` the processor
time of that one's event loop; `hops` how many links all messages cross together, `pending` how many messages are on
their way or wait at the start. `limit` is the claim on `seconds`, `least` the one on `hops_per_second`, which is by
`cpu`: wall time of a few milliseconds says little on a machine that does other things.

Usage: python benchmarks/congestion.py
"""

from __future__ import annotations

import json
import random
import resource
import time
from collections.abc import Callable
from typing import Any

from armillary.base.jit import load
from armillary.engine.astra_sim.program import Lowered, lower
from armillary.engine.astra_sim.run import execute
from armillary.platform.links import link_blocks, route
from armillary.platform.model import Collectives, Platform
from armillary.platform.network import Dimension
from armillary.trace import GraphBuilder, Trace

GIB_PER_S_50 = 50 * 2**30 / 10**9


def dimensions(topology: Any, *sizes: int) -> tuple[Dimension, ...]:
    """Links of 50 GiB/s and 500 ns."""
    return tuple(Dimension(f"dim{d}", topology, size, GIB_PER_S_50, 500.0) for d, size in enumerate(sizes))


def all_to_all(topology: Any, npus: int, size: int) -> tuple[Trace, Platform, int]:
    """A direct all-to-all of one chunk; returns also its hops."""
    network = dimensions(topology, npus)
    builder = GraphBuilder()
    builder.all_to_all("exchange", size)
    collectives = Collectives({"all-to-all": ("direct",)})
    blocks = link_blocks(network)
    hops = npus * sum(len(route(blocks, 0, to)) for to in range(1, npus))
    return (
        Trace.replicate(builder.graph(), npus),
        Platform(network, collectives=collectives, dialect="astra-sim"),
        hops,
    )


def permutations(rounds: int, *sizes: int) -> tuple[Trace, Platform, int]:
    """Every rank sends `rounds` messages of random sizes to random ranks, one after the other, over a torus."""
    network = dimensions("Ring", *sizes)
    blocks = link_blocks(network)
    chance = random.Random(1)
    order = list(range(blocks[-1].stride * sizes[-1]))
    builders = [GraphBuilder() for _ in order]
    hops = 0
    for number in range(rounds):
        chance.shuffle(order)
        for rank, to in enumerate(order):
            if rank != to:
                size = chance.randrange(1000, 100_000)
                builders[rank].send(to, size, number)
                builders[to].recv(rank, size, number)
                hops += len(route(blocks, rank, to))
    trace = Trace.from_ranks({rank: builder.graph() for rank, builder in enumerate(builders)})
    return trace, Platform(network, dialect="astra-sim"), hops


def measure(name: str, made: tuple[Trace, Platform, int], **claims: float) -> dict[str, Any]:
    """Lower and run three times; returns the row of the best."""
    trace, platform, hops = made
    kernel = load("armillary.engine.astra_sim.congestion.loop_kernel", "compiled", "contention")
    run: Callable[..., None] = kernel.run
    best, used = float("inf"), 0.0
    for _ in range(4):
        cpu = [0.0]

        def timed(*arguments: Any, cpu: list[float] = cpu) -> None:
            start = time.process_time()
            run(*arguments)
            cpu[0] += time.process_time() - start

        kernel.run = timed  # type: ignore[attr-defined]
        start = time.perf_counter()
        lowered: Lowered = lower(trace, platform, contention=True)
        execute(lowered, "compiled")
        seconds = time.perf_counter() - start
        if seconds < best:
            best, used = seconds, cpu[0]
    kernel.run = run  # type: ignore[attr-defined]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = {"name": name, "seconds": round(best, 3), "cpu": round(used, 3), "hops": hops}
    return {**row, "hops_per_second": round(hops / used), "peak_mib": round(peak), **claims}


def main() -> None:
    """Measure all cases."""
    for name, made, claims in (
        ("switch of 256, all-to-all of 1 MB", all_to_all("Switch", 256, 10**6), {"limit": 0.3}),
        ("ring of 64, all-to-all", all_to_all("Ring", 64, 1 << 20), {"pending": 4032, "least": 2e6}),
        ("ring of 256, all-to-all", all_to_all("Ring", 256, 1 << 20), {"pending": 65280, "least": 1e6}),
        ("torus of 32 x 32, random", permutations(20, 32, 32), {"pending": 1024, "least": 2e6}),
        ("torus of 64 x 64, random", permutations(6, 64, 64), {"pending": 4096, "least": 2e6}),
    ):
        print(json.dumps(measure(name, made, **claims)), flush=True)


if __name__ == "__main__":
    main()
