"""What collectives in switches gain over a ring, in the message evaluator; one JSON line per case.

Ring and in-switch run on the same graph. `gain` is the time of the ring ÷ that in switches; `theory` is the bytes that
the ring moves through a port ÷ those that go to the switch: 2 (n-1) / n in an all-reduce. The claim is `ratio`,
gain ÷ theory, within 2 % of 1 for large messages.

Usage: python benchmarks/in_network.py [--model flow] [--size "1 GB"]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import armillary
from armillary.base.units import parse_bytes
from armillary.platform.files.native import load_platform
from armillary.trace import CollectiveType, GraphBuilder, Trace

IN_NETWORK = {"rate": "50 GB/s", "latency": "200 ns", "operations": 32}
LINKS = {"bandwidth": "50 GB/s", "latency": "500 ns"}
BAR = 0.02


def machines() -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield (name, NPUs, platform)."""
    for n in (4, 8, 16, 32, 64):
        yield (
            "one switch",
            n,
            {"network": [{"topology": "Switch", "size": n, "in_network": IN_NETWORK} | LINKS]},
        )
    for leaves, below in ((2, 4), (4, 4), (4, 8), (8, 8)):
        graph = {"kind": "leaf-spine", "leaves": leaves, "spines": below, "npus_per_leaf": below}
        yield (
            f"{leaves} leaves and spines",
            leaves * below,
            {"topology": graph | LINKS | {"in_network": IN_NETWORK}},
        )
    graph = {"kind": "fat-tree", "k": 4, "in_network": IN_NETWORK}
    yield "fat tree of 3 levels", 16, {"topology": graph | LINKS}


def ticks(platform: dict[str, Any], algorithm: str, size: int, model: str) -> tuple[int, float]:
    """Return the ns that an all-reduce takes, and the seconds that it takes to say so."""
    machine = load_platform(platform | {"collectives": {"all-reduce": algorithm}})
    builder = GraphBuilder(rank=0)
    builder.collective("all-reduce", CollectiveType.ALL_REDUCE, size)
    trace = Trace.from_ranks([builder.graph("all ranks")] * machine.npus)
    start = time.perf_counter()
    timeline = armillary.simulate(trace, machine, network_model=model)
    return timeline.total_ticks, time.perf_counter() - start


def main() -> int:
    """Print the lines; returns 1 if a case misses the bar."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="flow", help="congestion, flow or packet")
    parser.add_argument("--size", default="1 GB")
    given = parser.parse_args()
    missed = 0
    for name, n, platform in machines():
        size = int(parse_bytes(given.size))
        ring, ring_seconds = ticks(platform, "ring", size, given.model)
        ours, seconds = ticks(platform, "in-switch", size, given.model)
        theory, gain = 2 * (n - 1) / n, ring / ours
        ok = abs(gain / theory - 1) <= BAR
        missed += not ok
        row = {
            "case": name, "n": n, "model": given.model, "bytes": size, "ring_ns": ring, "in_switch_ns": ours,
            "gain": round(gain, 4), "theory": theory, "ratio": round(gain / theory, 4), "ok": ok,
            "seconds": round(seconds, 2), "ring_seconds": round(ring_seconds, 2),
        }  # fmt: skip
        print(json.dumps(row), flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
