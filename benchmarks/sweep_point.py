"""How long one point of a parallelisation study takes: Llama 3.1 405B on up to 16,384 H100, 540B on 131,072.

Usage: python benchmarks/sweep_point.py [NAME ...]

Prints one JSON line per plan. `seconds` is the CPU time of the best of five rounds of one core with warm kernels, its
parts follow: generate the workload, lower it, run it, make its timeline, and divide the time of the slowest rank.
10,000 points of which 3,000 are simulated are done in 10 minutes on 2 cores if one takes 0.4 s; `limit` leaves room
for the rest. `goal` is what is aimed at: the limit is the events, two for each of `nodes`, and a kernel that handles
each in 0.1 us. `next_machine` is what the next point of a sweep takes, of the same plan on a machine with another
bandwidth: nothing is generated, and what was read of the trace stays. `node_by_node` is what generating takes if no
task is placed again as arrays, as a multiple of what it takes so, both taken in turn. `peak_mib` is the peak memory of
the process, interpreter and libraries included.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any


def plan(
    tp: int, pp: int, dp: int, virtual: int, sharding: str, microbatches: int = 32, sequence: int = 8192
) -> dict[str, Any]:
    """A plan of the study in docs/tutorial-llama.md."""
    return {
        "ranks": tp * pp * dp,
        "batch": dp * microbatches,
        "sequence": sequence,
        "parallel": {"tp": tp, "pp": pp},
        "pipeline": {"schedule": "interleaved" if virtual > 1 else "1f1b", "virtual": virtual},
        "data": {"sharding": sharding, "reshard": False},
    }


PLANS = {
    "tp8_pp16_dp128": plan(8, 16, 128, 1, "fsdp"),
    "tp8_pp16_dp128_virtual4": plan(8, 16, 128, 4, "fsdp"),
    "tp8_pp4_dp512_zero1": plan(8, 4, 512, 1, "zero-1"),
    "tp8_pp8_dp256_virtual2_ddp": plan(8, 8, 256, 2, "ddp"),
    "tp8_pp16_dp8_virtual4_256_microbatches": plan(8, 16, 8, 4, "fsdp", 256),
    "540b_tp8_pp16_dp1024_64_microbatches": plan(8, 16, 1024, 1, "ddp", 64, 2048),
}
LIMITS = dict.fromkeys(PLANS, 0.35) | {
    "tp8_pp16_dp8_virtual4_256_microbatches": 3.0,
    "540b_tp8_pp16_dp1024_64_microbatches": 1.0,
}
GOALS = dict.fromkeys(PLANS, 0.03) | {"540b_tp8_pp16_dp1024_64_microbatches": 0.3}
PARTS = ("generate", "lower", "run", "timeline", "breakdown")


def machine(npus: int, fabric: str = "50 GB/s") -> dict[str, Any]:
    """The machine of that tutorial."""
    return {
        "network": [
            {"name": "nvlink", "topology": "Switch", "size": 8, "bandwidth": "450 GB/s", "latency": "1 us"},
            {"name": "fabric", "topology": "Switch", "size": npus // 8, "bandwidth": fabric, "latency": "5 us"},
        ],
        "npu": {
            "peak": {"bf16": "989 TFLOP/s", "fp8": "1979 TFLOP/s", "fp32": "67 TFLOP/s"},
            "memory": {"bandwidth": "3.35 TB/s", "capacity": "80 GB"},
        },
        "compute": {"efficiency": {"compute": "60 %", "memory": "80 %"}},
    }  # fmt: skip


def model_of(name: str) -> Any:
    """Return the model of a plan: that of `benchmarks/generate.py` where the name of the plan begins with 540b."""
    from armillary.workload.models import load_model

    if not name.startswith("540b"):
        return load_model("llama-3-405b")
    from generate import LARGE

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.yaml"
        path.write_text(LARGE)
        return load_model(str(path))


def node_by_node(generated: Callable[[], object]) -> float:
    """Return what generating takes without arrays of tasks, as a multiple of what it takes with them."""
    from armillary.workload.emit.repeats import Again

    usual, best = Again.task, [float("inf"), float("inf")]

    def slow(self: Again, role: Any, microbatch: int, place: Any) -> None:
        self.settle()
        place(role, microbatch, False)

    for _ in range(3):
        for way, task in enumerate((usual, slow)):
            Again.task = task  # type: ignore[method-assign]
            begin = time.process_time()
            generated()
            best[way] = min(best[way], time.process_time() - begin)
    Again.task = usual  # type: ignore[method-assign]
    return best[1] / best[0]


def measure(name: str) -> None:
    """Measure one plan here and print its line."""
    from armillary.engine.common.diagnose import check_finished
    from armillary.engine.common.result import timeline_of
    from armillary.engine.physical import machine_info
    from armillary.engine.physical.lower import lower
    from armillary.engine.physical.program import execute
    from armillary.platform import load_platform, with_roofline
    from armillary.report.time_breakdown import breakdown
    from armillary.workload.generate import generate
    from armillary.workload.plan.schema import Plan

    made = Plan.model_validate(PLANS[name])
    model, platform = model_of(name), with_roofline(load_platform(machine(made.ranks)))
    best = [float("inf")] * len(PARTS)
    machines = cycle(
        with_roofline(load_platform(machine(made.ranks, rate))) for rate in ("100 GB/s", "200 GB/s")
    )
    following = float("inf")
    for _ in range(6):
        at = [time.process_time()]
        trace = generate(model, made)
        at.append(time.process_time())
        program = lower(trace, platform)
        at.append(time.process_time())
        run = execute(program)
        check_finished(program, run)
        at.append(time.process_time())
        timeline = timeline_of(program, run, platform, machine_info(program, platform))
        at.append(time.process_time())
        breakdown(timeline, int(timeline.finish.argmax()))
        at.append(time.process_time())
        best = min(best, [b - a for a, b in pairwise(at)], key=sum)
        other, begin = next(machines), time.process_time()
        program = lower(trace, other)
        run = execute(program)
        after = timeline_of(program, run, other, machine_info(program, other))
        breakdown(after, int(after.finish.argmax()))
        following = min(following, time.process_time() - begin)
    ratio = node_by_node(lambda: generate(model, made))
    values = {
        "seconds": sum(best),
        "limit": LIMITS[name],
        "goal": GOALS[name],
        "next_machine": following,
        "node_by_node": ratio,
        **dict(zip(PARTS, best, strict=True)),
        "nodes": sum(len(view.nodes.kind) for view in program.views),
        "ticks": timeline.total_ticks,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in values.items()}
    print(json.dumps({"name": f"sweep_point_{name}", **rounded}), flush=True)


def main() -> None:
    """Measure the plans named on the command line, or all, each in a process of its own."""
    words = sys.argv[1:]
    if words[:1] == ["--here"]:
        measure(words[1])
        return
    for name in words or PLANS:
        subprocess.run([sys.executable, __file__, "--here", name], check=True)


if __name__ == "__main__":
    main()
