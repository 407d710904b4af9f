"""How near extrapolated traces are to traces that were generated at their size.

Usage: python benchmarks/extrapolate.py [--table] [NAME ...]

Prints one JSON line per case, or with ``--table`` the largest error of each axis in Markdown. A small run is generated
and written out rank by rank, so that nothing but numbers of groups and ranks is left of its axes; these are found, the
run is extrapolated and compared with the one generated at that size: nodes, bytes of kernels and of communication,
operations, and the step time on two machines, in percent; `rank` is the largest error of these four on any one rank.
`seconds` is the time to extrapolate.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from armillary.engine import simulate
from armillary.lab.extrapolation import Reference, extrapolate, recognise
from armillary.lab.extrapolation.edit import without
from armillary.platform import load_platform
from armillary.platform.model import Platform
from armillary.trace import Trace
from armillary.trace.expand import expand
from armillary.workload.generate import generate
from armillary.workload.models import load_model
from armillary.workload.plan.schema import Plan

QUANTITIES = ("num_ops", "tensor_size", "comm_size")
MACHINES = {
    "h100": ("Switch", "450 GB/s", "50 GB/s", "989 TFLOP/s", "3.35 TB/s"),
    "a100": ("Ring", "150 GB/s", "12.5 GB/s", "312 TFLOP/s", "1.6 TB/s"),
}


@dataclass(frozen=True)
class Case:
    """A run, what it is scaled to, and the plan that says the same.

    Attributes:
        axis: For the table.
        name: For people.
        model: A preset.
        small: Plan of the run.
        large: Plan at the new size.
        scale: What is asked for.
        reference: Axis, size, and plan of a second run, from which laws are measured.
        bare: Whether the trace is without layers and microbatches.
    """

    axis: str
    name: str
    model: str
    small: dict[str, Any]
    large: dict[str, Any]
    scale: dict[str, int | Fraction]
    reference: tuple[str, int, dict[str, Any]] | None = None
    bare: bool = field(default=False)


def plan(tp: int, pp: int, dp: int, batches: int = 4, **more: Any) -> dict[str, Any]:
    """Return a plan of `batches` microbatches for each replica."""
    parallel = {"tp": tp, "pp": pp, **more.pop("parallel", {})}
    micro = more.get("microbatch", 1)
    return {
        "ranks": tp * pp * dp * parallel.get("cp", 1),
        "batch": dp * batches * micro,
        "parallel": parallel,
        **more,
    }


def cases() -> Iterator[Case]:
    """Yield all cases."""
    shardings: list[dict[str, Any]] = [{"sharding": name} for name in ("ddp", "zero-1", "zero-2", "fsdp")]
    for data in shardings:
        for model in ("llama-3-8b", "gpt-3-175b"):
            for dp in (16, 128):
                yield Case("dp", f"{data['sharding']} {model} 8 to {4 * dp}", model, plan(2, 2, 2, data=data),
                           plan(2, 2, dp, data=data), {"dp": dp})  # fmt: skip
    hybrid = {"sharding": "hsdp", "shard": 2}
    yield Case("dp", "hsdp llama-3-8b 16 to 512", "llama-3-8b", plan(2, 2, 4, data=hybrid),
               plan(2, 2, 128, data=hybrid), {"dp": 128})  # fmt: skip
    experts = {"parallel": {"ep": 4}, "data": {"sharding": "zero-1"}}
    yield Case("dp", "experts mixtral-8x7b 16 to 512", "mixtral-8x7b", plan(2, 1, 8, **experts),
               plan(2, 1, 256, **experts), {"ranks": 512})  # fmt: skip
    for sequence in (True, False):
        for model in ("llama-3-8b", "llama-3-70b", "gpt-3-175b"):
            more = {"parallel": {"sequence": sequence}, "data": {"sharding": "zero-1"}}
            name = f"{model} {'with' if sequence else 'without'} sequence parallelism 8 to 32"
            yield Case("tp", name, model, plan(2, 2, 2, **more), plan(8, 2, 2, **more), {"tp": 8})
    for data in (*shardings, hybrid):
        for pp in (16, 32):
            yield Case("pp", f"{data['sharding']} llama-3-8b 16 to {8 * pp}", "llama-3-8b", plan(2, 2, 4, 8, data=data),
                       plan(2, pp, 4, 8, data=data), {"pp": pp})  # fmt: skip
    for schedule in ("gpipe", "zero-bubble", "interleaved"):
        run = {"pipeline": {"schedule": schedule, "virtual": 2 if schedule == "interleaved" else 1}}
        axis = "pp (interleaved)" if schedule == "interleaved" else "pp"
        for data in shardings if schedule == "interleaved" else shardings[:2]:
            for dp in (2, 16):
                yield Case(axis, f"{schedule} {data['sharding']} llama-3-8b 8 to {32 * dp}", "llama-3-8b",
                           plan(2, 2, 2, 16, data=data, **run), plan(2, 16, dp, 16, data=data, **run),
                           {"pp": 16, "dp": dp})  # fmt: skip
        yield Case("microbatches", f"{schedule} llama-3-8b 4 to 32", "llama-3-8b", plan(2, 2, 2, 4, **run),
                   plan(2, 2, 2, 32, **run), {"microbatches": 8})  # fmt: skip
    yield from expert_cases(shardings)
    yield from context_cases(shardings)
    for model in ("gpt-3-175b", "mixtral-8x7b"):
        yield Case("pp (layers found)", f"{model} 8 to 64", model, plan(2, 2, 2, 8), plan(2, 16, 2, 8), {"pp": 16},
                   bare=True)  # fmt: skip
    yield Case("microbatches", "llama-3-8b 4 to 32", "llama-3-8b", plan(2, 2, 2, 4), plan(2, 2, 2, 32),
               {"microbatches": 8})  # fmt: skip
    for attention in ("flash", "unfused"):
        for model in ("llama-3-8b", "gpt-3-175b"):
            run = {"attention": attention, "sequence": 1024}
            yield Case("batch", f"{attention} {model} x 8", model, plan(2, 2, 2, microbatch=1, **run),
                       plan(2, 2, 2, microbatch=8, **run), {"batch": 8})  # fmt: skip
        run: dict[str, Any] = {"attention": attention}
        yield Case("sequence", f"{attention} llama-3-8b x 8", "llama-3-8b", plan(2, 2, 2, sequence=1024, **run),
                   plan(2, 2, 2, sequence=8192, **run), {"sequence": 8})  # fmt: skip
        yield Case("sequence (measured)", f"{attention} llama-3-8b x 8 by x 2", "llama-3-8b",
                   plan(2, 2, 2, sequence=1024, **run), plan(2, 2, 2, sequence=8192, **run), {"sequence": 8},
                   ("sequence", 2, plan(2, 2, 2, sequence=2048, **run)))  # fmt: skip
    lower: dict[str, Any] = {"causal": True}
    yield Case("sequence (measured)", "causal llama-3-8b x 8 by x 2", "llama-3-8b",
               plan(2, 2, 2, sequence=1024, **lower), plan(2, 2, 2, sequence=8192, **lower), {"sequence": 8},
               ("sequence", 2, plan(2, 2, 2, sequence=2048, **lower)))  # fmt: skip
    yield Case("tp (measured)", "llama-3-70b 8 to 32 by 16", "llama-3-70b", plan(2, 2, 2), plan(8, 2, 2), {"tp": 8},
               ("tp", 4, plan(4, 2, 2)))  # fmt: skip
    experts = {"parallel": {"ep": 2}}
    yield Case("tp (measured)", "experts mixtral-8x7b 8 to 32 by 16", "mixtral-8x7b", plan(2, 2, 2, **experts),
               plan(8, 2, 2, **experts), {"tp": 8}, ("tp", 4, plan(4, 2, 2, **experts)))  # fmt: skip
    for model in ("vit-l-16", "resnet-50", "gnmt", "deepseek-v3"):
        run = {"data": {"sharding": "zero-1"}}
        yield Case(
            "dp", f"zero-1 {model} 8 to 512", model, plan(1, 1, 8, **run), plan(1, 1, 512, **run), {"dp": 512}
        )
        yield Case("batch", f"{model} x 4", model, plan(1, 1, 8), plan(1, 1, 8, microbatch=4), {"batch": 4})
    yield Case(
        "sequence",
        "gnmt x 4",
        "gnmt",
        plan(1, 1, 8, sequence=50),
        plan(1, 1, 8, sequence=200),
        {"sequence": 4},
    )
    for model in ("vit-l-16", "deepseek-v3"):
        yield Case("pp", f"ddp {model} 8 to 32", model, plan(1, 2, 4, 8), plan(1, 8, 4, 8), {"pp": 8})
    both = {"data": {"sharding": "zero-1"}}
    yield Case("tp, pp and dp", "llama-3-70b 8 to 64", "llama-3-70b", plan(2, 2, 2, 8, **both),
               plan(4, 4, 4, 8, **both), {"tp": 4, "pp": 4, "dp": 4})  # fmt: skip
    yield Case("tp, pp and dp", "llama-3-70b 8 to 512", "llama-3-70b", plan(2, 2, 2, 8, **both),
               plan(8, 8, 8, 8, **both), {"tp": 8, "pp": 8, "dp": 8})  # fmt: skip
    yield Case("tp, pp and dp", "llama-3-70b 64 to 512", "llama-3-70b", plan(4, 4, 4, 8, **both),
               plan(8, 8, 8, 8, **both), {"tp": 8, "pp": 8, "dp": 8})  # fmt: skip


def expert_cases(shardings: list[dict[str, Any]]) -> Iterator[Case]:
    """Yield those of mixtures of experts."""
    for data in shardings:
        for tp, pp, ep in ((1, 1, 4), (1, 1, 8), (2, 2, 8)):
            for dp in (64 // tp // pp, 512 // tp // pp):
                small = plan(tp, pp, 8 // tp // pp, data=data, parallel={"ep": 2})
                large = plan(tp, pp, dp, data=data, parallel={"ep": ep})
                yield Case("ep", f"{data['sharding']} mixtral-8x7b ep 2 to {ep}, 8 to {tp * pp * dp}", "mixtral-8x7b",
                           small, large, {"ep": ep, "dp": dp})  # fmt: skip
    for model, few, many in (("deepseek-v3", 8, 64), ("deepseek-v3", 2, 8), ("gpt-oss-120b", 4, 32)):
        run: dict[str, Any] = {"data": {"sharding": "zero-1"}, "batches": 2}
        for dp in (64, 512):
            yield Case("ep", f"{model} ep {few} to {many}, 8 to {dp}", model,
                       plan(1, 1, 8, parallel={"ep": few}, **run), plan(1, 1, dp, parallel={"ep": many}, **run),
                       {"ep": many, "dp": dp})  # fmt: skip
    for model in ("mixtral-8x7b", "deepseek-v3", "gpt-oss-120b"):
        for tp, dp in ((8, 8), (8, 64)):
            run = {"data": {"sharding": "zero-1"}, "batches": 2, "parallel": {"ep": 4}}
            yield Case("tp (experts)", f"{model} 8 to {tp * dp}", model, plan(2, 1, 4, **run), plan(tp, 1, dp, **run),
                       {"tp": tp, "dp": dp})  # fmt: skip
    for model, pp in (("mixtral-8x7b", 4), ("gpt-oss-120b", 2)):
        for dp in (8, 64):
            run = {"data": {"sharding": "zero-1"}}
            yield Case("tp, ep, pp and dp", f"{model} 8 to {2 * pp * dp}", model,
                       plan(2, 2, 2, parallel={"ep": 2}, **run), plan(4, pp, dp, parallel={"ep": 8}, **run),
                       {"tp": 4, "ep": 8, "pp": pp, "dp": dp})  # fmt: skip
    for ep in (4, 8):
        yield Case("ep", f"mixtral-8x7b ep 2 to {ep} of 16", "mixtral-8x7b", plan(1, 1, 16, parallel={"ep": 2}),
                   plan(1, 1, 16, parallel={"ep": ep}), {"ep": ep})  # fmt: skip
    for schedule in ("1f1b", "zero-bubble", "interleaved"):
        run = {"pipeline": {"schedule": schedule, "virtual": 2 if schedule == "interleaved" else 1}}
        for dp in (8, 64):
            name = f"{schedule} mixtral-8x7b 8 to {8 * dp}"
            yield Case("ep, pp and dp", name, "mixtral-8x7b", plan(2, 2, 2, 8, parallel={"ep": 2}, **run),
                       plan(2, 4, dp, 8, parallel={"ep": 8}, **run), {"ep": 8, "pp": 4, "dp": dp})  # fmt: skip
    yield Case("ep (measured)", "mixtral-8x7b ep 2 to 8 of 64 by 4", "mixtral-8x7b",
               plan(1, 1, 64, parallel={"ep": 2}), plan(1, 1, 64, parallel={"ep": 8}), {"ep": 8},
               ("ep", 4, plan(1, 1, 64, parallel={"ep": 4})))  # fmt: skip


def context_cases(shardings: list[dict[str, Any]]) -> Iterator[Case]:
    """Yield those of context parallelism."""
    for kind in ("ring", "all-gather"):
        own: dict[str, Any] = {"context": kind}
        for data in shardings:
            for cp, dp in ((8, 4), (16, 16)):
                for causal in (False, True):
                    run: dict[str, Any] = {"data": data, "sequence": 8192, "causal": causal}
                    name = f"{data['sharding']} llama-3-8b{' causal' * causal} 8 to {2 * cp * dp}"
                    yield Case(f"cp ({kind})", name, "llama-3-8b", plan(2, 1, 2, parallel={"cp": 2, **own}, **run),
                               plan(2, 1, dp, parallel={"cp": cp, **own}, **run), {"cp": cp, "dp": dp})  # fmt: skip
        yield Case(f"cp ({kind})", "deepseek-v3 8 to 64", "deepseek-v3", plan(1, 2, 2, parallel={"cp": 2, **own}),
                   plan(1, 2, 2, parallel={"cp": 16, **own}), {"cp": 16})  # fmt: skip
        run = {"pipeline": {"schedule": "interleaved", "virtual": 2}, "data": {"sharding": "zero-1"}}
        for pp, dp in ((4, 2), (8, 8)):
            yield Case("cp, tp, pp and dp", f"{kind} llama-3-70b 16 to {16 * pp * dp}", "llama-3-70b",
                       plan(2, 2, 2, 8, parallel={"cp": 2, **own}, **run),
                       plan(4, pp, dp, 8, parallel={"cp": 4, **own}, **run),
                       {"cp": 4, "tp": 4, "pp": pp, "dp": dp})  # fmt: skip
        for dp in (8, 64):
            yield Case("cp, ep and dp", f"{kind} mixtral-8x7b 8 to {8 * dp}", "mixtral-8x7b",
                       plan(1, 1, 4, parallel={"cp": 2, "ep": 4, **own}),
                       plan(1, 1, dp, parallel={"cp": 4, "ep": 8, **own}), {"cp": 4, "ep": 8, "dp": dp})  # fmt: skip


def machine(name: str, npus: int) -> Platform:
    """Return a machine of servers of eight NPUs."""
    topology, inside, outside, peak, memory = MACHINES[name]
    network = [
        {"name": "server", "topology": topology, "size": min(8, npus), "bandwidth": inside, "latency": "1 us"}
    ]
    if npus > 8:
        network.append(
            {
                "name": "cluster",
                "topology": "Switch",
                "size": npus // 8,
                "bandwidth": outside,
                "latency": "5 us",
            }
        )
    return load_platform({"network": network, "npu": {"peak": peak, "memory": {"bandwidth": memory}},
                          "compute": {"roofline": True}})  # fmt: skip


def totals(trace: Trace) -> dict[str, float]:
    """Return nodes and sums of quantities of all ranks."""
    ranks = np.bincount(trace.rank_graph, minlength=len(trace.graphs)).astype(float)
    found = {"nodes": float(trace.total_nodes)}
    for name in QUANTITIES:
        sums = [float(graph.ints(name).astype(float).sum()) for graph in trace.graphs]
        found[name] = float(np.dot(ranks, sums))
    return found


def worst_rank(ours: Trace, theirs: Trace) -> float:
    """Return the largest error of nodes and quantities on one rank, in percent."""
    worst = 0.0
    for a, b in np.unique(np.stack([ours.rank_graph, theirs.rank_graph]), axis=1).T.tolist():
        pairs = [(ours.graphs[a].n_nodes, theirs.graphs[b].n_nodes)]
        for name in QUANTITIES:
            pairs.append(
                tuple(float(g.ints(name).astype(float).sum()) for g in (ours.graphs[a], theirs.graphs[b]))
            )
        worst = max(worst, *(abs(own / other - 1) for own, other in pairs if other))
    return round(100 * worst, 4)


def bare(trace: Trace) -> Trace:
    """Return a trace whose nodes do not say which layer and microbatch they belong to."""
    graphs = []
    for graph in trace.graphs:
        every = np.ones(graph.n_nodes, np.bool_)
        graphs.append(without(without(graph, "layer", every), "micro_batch", every))
    return replace(trace, graphs=tuple(graphs))


def made(model: str, of: dict[str, Any]) -> Trace:
    """Generate a run."""
    return generate(load_model(model), Plan.model_validate(of))


def measure(case: Case) -> dict[str, Any]:
    """Return the errors of a case in percent."""
    small, truth = expand(made(case.model, case.small)), made(case.model, case.large)
    references = {}
    if case.reference:
        axis, size, other = case.reference
        ratio = Fraction(size, 1 if axis == "sequence" else case.small["parallel"][axis])
        references[axis] = Reference(recognise(expand(made(case.model, other)))[0], ratio, "the second run")
    at = time.perf_counter()
    found, axes = recognise(bare(small) if case.bare else small)
    result = extrapolate(found, case.scale, axes=axes, references=references).trace
    line: dict[str, Any] = {
        "axis": case.axis,
        "name": case.name,
        "seconds": round(time.perf_counter() - at, 3),
    }
    ours, theirs = totals(result), totals(truth)
    line |= {name: round(100 * (ours[name] / theirs[name] - 1), 4) if theirs[name] else 0.0 for name in ours}
    line["rank"] = worst_rank(result, truth)
    for name in MACHINES:
        platform = machine(name, truth.n_ranks)
        ticks = [simulate(trace, platform).total_ticks for trace in (result, truth)]
        line[f"step_{name}"] = round(100 * (ticks[0] / ticks[1] - 1), 4)
    return line


def main() -> None:
    """Measure the cases that are named, or all."""
    words = [word for word in sys.argv[1:] if word != "--table"]
    worst: dict[str, dict[str, float]] = {}
    for case in cases():
        if words and not any(word in f"{case.axis} {case.name}" for word in words):
            continue
        line = measure(case)
        if "--table" not in sys.argv:
            print(json.dumps(line), flush=True)
        row = worst.setdefault(case.axis, {"runs": 0})
        row["runs"] += 1
        for key, value in line.items():
            if isinstance(value, float) and key != "seconds":
                row[key] = max(row.get(key, 0.0), abs(value))
    if "--table" in sys.argv:
        print(
            "| axis | runs | nodes | operations | bytes of kernels | bytes communicated | any rank | step, H100 "
            "| step, A100 |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        keys = ("nodes", *QUANTITIES, "rank", "step_h100", "step_a100")
        for axis, row in worst.items():
            print(f"| {axis} | {row['runs']} | " + " | ".join(f"{row[key]:.2f} %" for key in keys) + " |")


if __name__ == "__main__":
    main()
