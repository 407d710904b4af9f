"""How much of a sweep the exact planner simulates: JSON lines, one per space of more than 2,000 points.

python benchmarks/search.py [NAME …]
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from armillary.explore.search.planner import plan
from armillary.explore.sweep.load import load_sweep

SPACES = {
    "llama-2-13b, 8 H100": ("llama-2-13b", "hgx-h100", 64, 4096),
    "llama-3-70b, 128 A100": ("llama-3-70b", "zionex", 256, 4096),
    "megatron-175b, 1,024 H100": ("megatron-175b", "dgx-superpod-h100", 1536, 2048),
    "mixtral-8x7b, 128 A100": ("mixtral-8x7b", "zionex", 256, 4096),
    "llama-3-405b, 4,096 TPU v4": ("llama-3-405b", "tpuv4-pod", 4096, 4096),
    "megatron-1t, 1,024 H100": ("megatron-1t", "dgx-superpod-h100", 1024, 2048),
}
"""Model, machine, batch and tokens of a sequence."""


def sweep(model: str, machine: str, batch: int, sequence: int) -> dict[str, Any]:
    """Return a sweep of plans: parallelism, schedule, microbatch, recomputation and sharding."""
    of = "workload.generate"
    return {
        "study": {
            "platform": {"preset": machine},
            "workload": {"generate": {"model": model, "batch": batch, "sequence": sequence}},
        },
        "vary": {
            f"{of}.parallel.tp": [1, 2, 4, 8],
            f"{of}.parallel.pp": [1, 2, 4, 8, 16],
            f"{of}.pipeline.schedule": {"values": ["1f1b", "interleaved", "zero-bubble"], "when": "pp > 1"},
            f"{of}.pipeline.virtual": {"values": [2, 4], "when": "schedule == 'interleaved'"},
            f"{of}.microbatch": [1, 2, 4],
            f"{of}.recompute": ["none", "selective", "full"],
            f"{of}.data.sharding": ["ddp", "zero-1", "zero-2", "fsdp"],
        },
        "where": ["memory fits"],
    }


def main(names: list[str]) -> None:
    """Search every space, or those named."""
    for name in names or SPACES:
        begun = time.perf_counter()
        given = load_sweep(sweep(*SPACES[name]))
        found = plan(given)
        possible = sum(row.status == "ok" or row.reason.startswith("cannot win") for row in found.rows)
        ratios = sorted(
            row.measures["bound"] / row.measures["step_time"] for row in found.rows if row.status == "ok"
        )
        print(
            json.dumps(
                {
                    "space": name,
                    "points": found.points,
                    "possible": possible,
                    "simulated": found.simulated,
                    "share of possible": round(found.simulated / max(1, possible), 4),
                    "bound of simulated": round(ratios[len(ratios) // 2], 4) if ratios else None,
                    "best": dict(found.best[0].values) if found.best else None,
                    "seconds": round(time.perf_counter() - begun, 1),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
