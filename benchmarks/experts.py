"""How long a step of DeepSeek-V3 with unevenly loaded experts takes to simulate: every place along ep is a class.

Usage: python benchmarks/experts.py [MICROBATCHES]

Prints one JSON line. `seconds` is the CPU time of the better of two rounds of one core with warm kernels, its parts
follow: generate the workload, lower it, run it, make its timeline. `goal` is for `seconds` and `goal_mib` for
`peak_mib`, the peak memory of the process, interpreter and libraries included. The limit is the events: each class
runs nodes of its own, so 1,024 classes of 800 nodes are 820,000 starts and as many ends.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from itertools import pairwise

from sweep_point import machine

from armillary.engine.common.diagnose import check_finished
from armillary.engine.common.result import timeline_of
from armillary.engine.physical import machine_info
from armillary.engine.physical.lower import lower
from armillary.engine.physical.program import execute
from armillary.platform import load_platform, with_roofline
from armillary.workload.generate import generate
from armillary.workload.models import load_model
from armillary.workload.plan.schema import Plan

RANKS, PP, EP = 32_768, 16, 64


def measure(plan: Plan) -> tuple[list[float], dict[str, int]]:
    """Return the CPU seconds of all parts, and facts of the result."""
    model, platform = load_model("deepseek-v3"), with_roofline(load_platform(machine(RANKS)))
    at = [time.process_time()]
    trace = generate(model, plan)
    at.append(time.process_time())
    program = lower(trace, platform)
    at.append(time.process_time())
    run = execute(program)
    check_finished(program, run)
    at.append(time.process_time())
    timeline = timeline_of(program, run, platform, machine_info(program, platform))
    at.append(time.process_time())
    nodes = sum(len(view.nodes.kind) for view in program.views)
    facts = {"classes": len(program.representatives), "nodes": nodes, "ticks": timeline.total_ticks}
    return [b - a for a, b in pairwise(at)], facts


def main() -> None:
    """Measure one plan."""
    microbatches = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    plan = Plan.model_validate(
        {
            "ranks": RANKS, "batch": RANKS // PP * microbatches, "sequence": 4096,
            "parallel": {"pp": PP, "ep": EP}, "experts": {"skew": 0.5}, "data": {"sharding": "zero-1"},
        }
    )  # fmt: skip
    best = [float("inf")]
    for _ in range(2):
        gc.collect()  # the peak is that of one round
        found, facts = measure(plan)
        best = min(best, found, key=sum)
    parts = zip(("generate", "lower", "run", "timeline"), best, strict=True)
    values = {
        "name": f"experts_deepseek_v3_{microbatches}_microbatches",
        "seconds": round(sum(best), 3),
        "goal": 4.0,
        **{name: round(each, 3) for name, each in parts},
        **facts,
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "goal_mib": 500,
    }
    print(json.dumps(values))


if __name__ == "__main__":
    main()
