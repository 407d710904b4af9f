"""How long a timeline for Perfetto takes: trace-event JSON and Perfetto's own format, of a step of Llama 3 70B.

8 ranks, tp 2 and pp 4, 4 microbatches, 4 classes of ranks, 11,016 nodes and 207,120 chunk phases. Prints one JSON
line: the CPU time of each format (best of three, taken in turn), their ratio, and both sizes. Goal: at most a tenth of
the size of JSON, and 1 s for what JSON needs 91 MB for. What limits it is the compression, a third of the time, and the
matrix of bytes that each packet is a row of, another third.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import armillary
from armillary.platform.files.native import load_platform
from armillary.report import write_perfetto
from armillary.workload.generate import generate
from armillary.workload.models import load_model
from armillary.workload.plan.schema import Plan

PLAN = {"ranks": 8, "batch": 4, "sequence": 8192, "parallel": {"tp": 2, "pp": 4}}
PLATFORM = {
    "network": [
        {"name": "node", "topology": "Switch", "size": 8, "bandwidth": "450 GB/s", "latency": "1 us"}
    ],
    "npu": {"peak": "989 TFLOP/s", "memory": {"bandwidth": "3.35 TB/s"}},
    "compute": {"roofline": True},
}


def main() -> None:
    """Write both, three times."""
    timeline = armillary.simulate(
        generate(load_model("llama-3-70b"), Plan.model_validate(PLAN)), load_platform(PLATFORM)
    )
    seconds: dict[str, list[float]] = {"json": [], "pftrace": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(3):
            for kind, found in seconds.items():
                begin = time.process_time()
                write_perfetto(timeline, Path(folder) / f"step.{kind}")
                found.append(time.process_time() - begin)
        sizes = {kind: (Path(folder) / f"step.{kind}").stat().st_size for kind in seconds}
    best = {kind: min(found) for kind, found in seconds.items()}
    print(
        json.dumps(
            {
                "name": "timeline_70b",
                **{f"{kind}_cpu_seconds": round(value, 3) for kind, value in best.items()},
                "ratio": round(best["json"] / best["pftrace"], 2),
                **{f"{kind}_megabytes": round(value / 1e6, 2) for kind, value in sizes.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
