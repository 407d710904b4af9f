"""An all-reduce of 1 MB on a torus of 4 x 4 x 4 in network model `packet` against `analytical`; JSON lines.

The case by which ASTRA-sim 2.0 (Won et al., ISPASS 2023) compares Garnet, 21.42 min, with its analytical network,
1.70 s: 756 times. Here links of 50 GB/s and 500 ns, all through `armillary.simulate`, profile physical. `cpu` is
the processor time of the best of `runs` with warm kernels, `loop` the part of the event loop; `times` is `cpu` over
that of `analytical`; `error` says how far the simulated time of `analytical` is from the row's,
`widest` the claim on it.

Usage: python benchmarks/torus.py
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

from rungs import time_loop

import armillary
from armillary.engine.common.timeline import Timeline
from armillary.engine.messages import run as engine
from armillary.platform.files.native import load_platform
from armillary.platform.model import Packets, Platform
from armillary.workload.micro.collectives import collective_trace

SIZE, NPUS, RUNS = 1_000_000, 64, 5
RUNGS: tuple[tuple[str, Packets], ...] = (
    ("congestion", Packets()),
    ("flow", Packets()),
    ("packet, lossless, packets of 4096 bytes", Packets("lossless", {"mtu": 4096})),
    ("packet, credit, packets of 4096 bytes, flits of 64", Packets("credit", {"packet": 4096, "flit": 64})),
    ("packet, credit, packets of 256 bytes, flits of 16", Packets("credit", {"packet": 256, "flit": 16})),
)
WIDEST = {1: 0.05, 16: 0.2}
"""Claims on the size of `error`, by number of chunks."""


def best(platform: Platform, model: str, loop: list[float]) -> tuple[float, float, Timeline]:
    """Return the processor seconds of the fastest run after one, those of its event loop, and its timeline."""
    trace = collective_trace("all-reduce", NPUS, NPUS, SIZE)
    found = []
    for _ in range(RUNS + 1):
        start, loop[0] = time.process_time(), 0.0
        timeline = armillary.simulate(trace, platform, network_model=model)
        found.append((time.process_time() - start, loop[0]))
    return *min(found[1:]), timeline


def main() -> None:
    """Measure."""
    loop = [0.0]
    time_loop(engine.load, loop, engine)
    ring = {"topology": "Ring", "size": 4, "bandwidth": "100 GB/s", "latency": "500 ns"}
    for chunks, widest in WIDEST.items():
        network = [ring | {"name": axis} for axis in "xyz"]
        platform = load_platform({"network": network, "collectives": {"chunks": chunks}})
        base, _, timeline = best(platform, "analytical", loop)
        found = timeline.total_ticks
        about = {"chunks": chunks, "runs": RUNS, "widest": widest}
        print(json.dumps({"name": "analytical", "cpu": round(base, 5), "ns": found, **about}), flush=True)
        for name, packets in RUNGS:
            cpu, used, timeline = best(replace(platform, packets=packets), name.split(",")[0], loop)
            ns = timeline.total_ticks
            row: dict[str, Any] = {"name": name, "cpu": round(cpu, 4), "loop": round(used, 4), "ns": ns}
            row |= {"events": timeline.info["events"], "times": round(cpu / base, 1)}
            print(json.dumps({**row, "error": round(found / ns - 1, 4), **about}), flush=True)


if __name__ == "__main__":
    main()
