"""Synthesised collectives: how fast they are found, and how they compare with the built-in algorithms; JSON lines.

`heterogeneous` are all-reduces of 1 GB among 128 NPUs whose links differ: a ring of fully connected groups behind
switches, whose NPUs are all alike, and a mesh whose second half is slower, in which none is. TACOS (Won et al., MICRO
2024) reports 1.08 s for 128 heterogeneous NPUs. `torus` is 16 x 16 x 16. `found_s` is the time of `synthesize` with its
kernels compiled and loaded, `cpu_s` its processor time (it has one thread), which `ok` holds to 1 s and 120 s.

`preset` are all platform presets of at most 4,096 NPUs: `simulated_ns` and the best `built_in_ns` by network model
congestion; `moved` says that real numbers were moved along the schedule and came out right, `ok` that it is not slower.

Usage: python benchmarks/synthesis.py [--size "1 GB"] [--operation all-reduce] [--presets NAME,…] [--only-bars]
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from armillary.base.units import parse_bytes
from armillary.collective.synthesis import SynthesizedSchedule, check_schedule, lower_bound, synthesize
from armillary.explore.synthesis import compare
from armillary.platform import load_platform
from armillary.platform.files.preset import preset_names
from armillary.platform.network import Dimension
from armillary.platform.topology import Topology, from_dimensions
from armillary.platform.topology.grids import wafer_mesh

GIGABYTE = 10**9
MOST_NPUS = 4096


def mixed() -> Topology:
    """Return 128 NPUs: rings of 4 at 200 GB/s, groups of 8 at 50 GB/s per link, switches of 4 at 25 GB/s."""
    return from_dimensions(
        [
            Dimension("ring", "Ring", 4, 200.0, 500.0),
            Dimension("group", "FullyConnected", 8, 50.0, 500.0),
            Dimension("rack", "Switch", 4, 25.0, 1000.0),
        ]
    )


def uneven() -> Topology:
    """Return a mesh of 16 x 8 NPUs in two dies, joined by links of an eighth of the bandwidth."""
    return wafer_mesh((16, 8), 400.0, 100.0, die=(8, 8), die_bandwidth=50.0, die_latency=500.0)


def torus() -> Topology:
    """Return 4,096 NPUs with 50 GB/s links."""
    return from_dimensions([Dimension(axis, "Torus", 16, 50.0, 500.0) for axis in "xyz"])


def timed(topology: Topology) -> tuple[SynthesizedSchedule, float, float]:
    """Return an all-reduce of 1 GB, and the seconds and processor seconds to find it, the best of some after one."""
    took, used = [], []
    for _ in range(4 if topology.npus < 1000 else 2):
        start, busy = time.perf_counter(), time.process_time()
        found = synthesize(topology, "all-reduce", GIGABYTE)
        took.append(time.perf_counter() - start)
        used.append(time.process_time() - busy)
    return found, min(took[1:]), min(used[1:])


def bar(case: str, name: str, topology: Topology, seconds: float) -> dict[str, Any]:
    """Return the row of one bar."""
    found, took, used = timed(topology)
    bound = lower_bound(found.edges, "all-reduce", found.size)
    start = time.perf_counter()
    check_schedule(found)
    return {
        "case": case, "network": name, "npus": found.n,
        "found_s": round(took, 3), "cpu_s": round(used, 3), "bar_s": seconds,
        "checked_s": round(time.perf_counter() - start, 2), "messages": found.messages, "predicted_ns": found.predicted,
        "bound_ns": round(bound), "ok": used <= seconds,
    }  # fmt: skip


def preset(name: str, operation: str, size: int) -> dict[str, Any]:
    """Return the row of a preset."""
    platform = load_platform(name)
    start = time.perf_counter()
    found = compare(platform, operation, size)
    took = time.perf_counter() - start
    check_schedule(found.schedule)
    best = found.built_in[0]
    return {
        "case": "preset", "network": name, "npus": platform.npus, "operation": operation, "size": size,
        "chunks_per_npu": found.schedule.per_npu, "predicted_ns": found.schedule.predicted,
        "simulated_ns": found.simulated.time, "built_in": best.name, "built_in_ns": best.time,
        "bound_ns": round(found.bound), "gain": round(best.time / found.simulated.time, 4), "moved": True,
        "taken": found.taken, "took_s": round(took, 1), "ok": found.time <= best.time,
    }  # fmt: skip


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="1 GB")
    parser.add_argument("--operation", default="all-reduce")
    parser.add_argument("--presets", default=",".join(preset_names()))
    parser.add_argument("--only-bars", action="store_true")
    options = parser.parse_args()
    for case, name, topology, seconds in (
        ("heterogeneous", "ring, fully connected, switch", mixed(), 1.0),
        ("heterogeneous", "mesh of two dies", uneven(), 1.0),
        ("torus", "16 x 16 x 16", torus(), 120.0),
    ):
        print(json.dumps(bar(case, name, topology, seconds)), flush=True)
    for name in () if options.only_bars else options.presets.split(","):
        if load_platform(name).npus <= MOST_NPUS:
            print(json.dumps(preset(name, options.operation, parse_bytes(options.size))), flush=True)


if __name__ == "__main__":
    main()
