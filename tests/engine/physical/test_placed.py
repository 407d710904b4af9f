"""Graphs of placed templates, whose packed nodes are lowered once, against the same graphs as plain columns."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.trace import Graph
from armillary.trace.templates import PlacedGraph
from armillary.workload.generate import generate
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

MODEL = {"kind": "decoder", "name": "small", "layers": 4, "hidden": 64, "vocabulary": 100, "context": 32}
MODEL |= {
    "attention": {"heads": 4},
    "mlp": {"size": 128},
    "norm": "rms",
    "activation": "swiglu",
    "tied": False,
}
MACHINE: dict[str, Any] = {
    "network": [
        {"name": "node", "topology": "Switch", "size": 4, "bandwidth": "100 GB/s", "latency": "1 us"},
        {"name": "fabric", "topology": "Switch", "size": 4, "bandwidth": "10 GB/s", "latency": "5 us"},
    ],
    "npu": {"peak": "10 TFLOP/s", "memory": {"bandwidth": "1 TB/s"}},
    "remote_memory": {"kind": "per-npu", "bandwidth": "50 GB/s", "latency": "1 us"},
}


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    pp = draw(st.sampled_from([1, 2, 4]))
    chosen: dict[str, Any] = {
        "ranks": 16,
        "batch": 64,
        "sequence": 32,
        "parallel": {"tp": draw(st.sampled_from([1, 2])), "pp": pp},
        "pipeline": {
            "schedule": draw(st.sampled_from(["1f1b", "gpipe", "zero-bubble"])) if pp > 1 else "1f1b"
        },
        "data": {"sharding": draw(st.sampled_from(["ddp", "zero-1", "zero-2", "fsdp"]))},
        "recompute": draw(st.sampled_from(["none", "full"])),
        "offload": draw(st.sampled_from([{}, {"activations": 0.5}])),
        "host": {"issue": draw(st.sampled_from(["0 us", "1 us"]))},
    }
    return Plan.model_validate(chosen)


@settings(max_examples=20)
@given(plans(), st.sampled_from(["roofline", "gpu"]), st.booleans())
def test_packed_nodes_give_the_timeline_of_all_nodes(plan: Plan, compute: str, slow_rank: bool) -> None:
    trace = generate(Decoder.model_validate(MODEL), plan)
    assert all(isinstance(graph, PlacedGraph) for graph in trace.graphs)
    plain = replace(trace, graphs=tuple(Graph(graph.columns, 0, graph.source) for graph in trace.graphs))
    machine = dict(MACHINE)
    if slow_rank:
        machine["npu"] = {**machine["npu"], "speed": {3: 0.9}}
    machine["compute"] = (
        {"model": "gpu", "device": "h100-sxm"} if compute == "gpu" else {"efficiency": "60 %"}
    )
    one, other = (armillary.simulate(each, machine) for each in (trace, plain))
    assert one.info == other.info
    for field in fields(one):
        if field.name not in ("info", "graphs", "network"):
            assert np.array_equal(getattr(one, field.name), getattr(other, field.name)), field.name
    for mine, yours in zip(one.graphs, other.graphs, strict=True):
        for field in fields(mine):
            assert np.array_equal(getattr(mine, field.name), getattr(yours, field.name)), field.name
