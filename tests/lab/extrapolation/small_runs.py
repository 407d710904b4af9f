"""Small runs, and what of them is compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary
from armillary.engine.common.timeline import Timeline
from armillary.lab.extrapolation import recognise
from armillary.platform import load_platform
from armillary.trace import Trace
from armillary.trace.axis_sets import grid_of
from armillary.trace.expand import expand
from armillary.workload.generate import generate
from armillary.workload.models.decoder_parts import Attention, Experts, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

TINY = Decoder(
    name="tiny", layers=8, hidden=512, vocabulary=4096, context=256, tied=False, norm="rms", activation="swiglu",
    attention=Attention(heads=16, kv_heads=16), mlp=Mlp(size=2048),
)  # fmt: skip
MIXED = TINY.model_copy(update={"experts": Experts(count=8, top_k=2, size=256)})
QUANTITIES = ("num_ops", "tensor_size", "comm_size")


def run(tp: int = 1, pp: int = 1, dp: int = 1, batches: int = 4, model: Decoder = TINY, **more: Any) -> Trace:
    """Generate a run of `batches` microbatches for each replica."""
    parallel = {"tp": tp, "pp": pp, **more.pop("parallel", {})}
    data = {"bucket": "1 MiB", **more.pop("data", {})}
    plan = {
        "ranks": tp * pp * dp * parallel.get("cp", 1),
        "batch": dp * batches * more.get("microbatch", 1),
        "parallel": parallel,
        "data": data,
        **more,
    }
    return generate(model, Plan.model_validate(plan))


def written(trace: Trace) -> Trace:
    """Return a trace as its files have it, with its axes found."""
    return recognise(expand(trace))[0]


def totals(trace: Trace) -> dict[str, float]:
    """Return nodes and sums of quantities of all ranks."""
    ranks = np.bincount(trace.rank_graph, minlength=len(trace.graphs)).astype(float)
    found = {"nodes": float(trace.total_nodes)}
    for name in QUANTITIES:
        found[name] = float(np.dot(ranks, [graph.ints(name).sum() for graph in trace.graphs]))
    return found


def alike(made: Trace, truth: Trace, error: float = 0.0) -> None:
    """Check quantities and the step."""
    ours, theirs = totals(made), totals(truth)
    assert ours["nodes"] == theirs["nodes"]
    for name, value in ours.items():
        assert value == pytest.approx(theirs[name], rel=error or 1e-5), name
    assert step(made).total_ticks == pytest.approx(step(truth).total_ticks, rel=error or 1e-5)


def nodes_of(trace: Trace, rank: int) -> list[tuple[object, ...]]:
    """Return of every node of a rank what must not differ: kind, quantities, shapes, and the ranks of its group."""
    graph, grid = trace.graph(rank), grid_of(trace)
    codes, names = graph.strings("pg_name")
    groups = [grid.members(name)[grid.group_of(name)[rank]].tolist() if name else [rank] for name in names]
    columns = [graph.types, *(graph.ints(name, -1) for name in (*QUANTITIES, "comm_type"))]
    found = list(
        zip(
            *(column.tolist() for column in columns),
            (groups[c] if c >= 0 else () for c in codes),
            strict=True,
        )
    )
    for name in ("gemm", "attention"):
        codes, lists = graph.int_lists(name)
        found = [(*each, lists[c] if c >= 0 else ()) for each, c in zip(found, codes.tolist(), strict=True)]
    return found


def same_nodes(made: Trace, truth: Trace) -> None:
    """Check that all ranks of two runs have the same nodes, in the same order."""
    assert made.n_ranks == truth.n_ranks
    pairs = np.stack([made.rank_graph, truth.rank_graph])
    for at in np.unique(pairs, axis=1, return_index=True)[1].tolist():
        ours, theirs = nodes_of(made, at), nodes_of(truth, at)
        differ = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b]
        assert not differ, (made.graph(at).node(differ[0]), ours[differ[0]], theirs[differ[0]])
        assert len(ours) == len(theirs)


def same_step(made: Trace, truth: Trace) -> None:
    """Check that two runs take as long."""
    assert step(made).total_ticks == pytest.approx(step(truth).total_ticks, rel=1e-6)


def step(trace: Trace) -> Timeline:
    """Simulate on servers of four NPUs."""
    network = [
        {
            "name": "in",
            "topology": "Switch",
            "size": min(4, trace.n_ranks),
            "bandwidth": "100 GB/s",
            "latency": "1 us",
        }
    ]
    if trace.n_ranks > 4:
        network.append(
            {
                "name": "out",
                "topology": "Switch",
                "size": trace.n_ranks // 4,
                "bandwidth": "10 GB/s",
                "latency": "5 us",
            }
        )
    npu = {"peak": "100 TFLOP/s", "memory": {"bandwidth": "1 TB/s"}}
    return armillary.simulate(
        trace, load_platform({"network": network, "npu": npu, "compute": {"roofline": True}})
    )
