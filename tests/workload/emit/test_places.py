"""Stages of places with other loads: placed again with other sizes, against all of them placed one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.trace import nodes_of
from armillary.trace.templates import PlacedGraph
from armillary.workload import generate as module
from armillary.workload.generate import generate
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

MODEL: dict[str, Any] = {
    "kind": "decoder", "name": "small mixture", "layers": 2, "hidden": 64, "vocabulary": 100, "context": 32,
    "attention": {"heads": 4}, "norm": "rms", "activation": "swiglu", "tied": False,
    "experts": {"count": 8, "top_k": 2, "size": 64},
}  # fmt: skip
MACHINE: dict[str, Any] = {
    "network": [
        {"name": "node", "topology": "Switch", "size": 4, "bandwidth": "100 GB/s", "latency": "1 us"},
        {"name": "fabric", "topology": "Switch", "size": 4, "bandwidth": "10 GB/s", "latency": "5 us"},
    ],
    "npu": {"peak": "10 TFLOP/s", "memory": {"bandwidth": "1 TB/s"}},
    "remote_memory": {"kind": "per-npu", "bandwidth": "50 GB/s", "latency": "1 us"},
    "compute": {"efficiency": "60 %"},
}


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    pp = draw(st.sampled_from([1, 2]))
    chosen: dict[str, Any] = {
        "ranks": 16, "batch": 32, "sequence": 32,
        "parallel": {"pp": pp, "ep": draw(st.sampled_from([2, 4, 8]))},
        # The law of a steep skew leaves most experts without a token.
        "experts": {"skew": draw(st.sampled_from([0.3, 1.0, 8.0]))},
        "pipeline": {"schedule": draw(st.sampled_from(["1f1b", "zero-bubble"])) if pp > 1 else "1f1b"},
        "data": {"sharding": draw(st.sampled_from(["ddp", "zero-1", "fsdp"]))},
        "recompute": draw(st.sampled_from(["none", "full"])),
        "offload": draw(st.sampled_from([{}, {"activations": 0.5}])),
        "host": {"issue": draw(st.sampled_from(["0 us", "1 us"]))},
    }  # fmt: skip
    return Plan.model_validate(chosen)


@settings(max_examples=5)
@given(plans())
def test_graphs_of_other_places_equal_those_placed_one_by_one(plan: Plan) -> None:
    model = Decoder.model_validate(MODEL)
    fast = generate(model, plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "same_placements", lambda *_: None)
        slow = generate(model, plan)
    assert np.array_equal(fast.rank_graph, slow.rank_graph)
    for one, other in zip(fast.graphs, slow.graphs, strict=True):
        assert one.source == other.source
        assert nodes_of(one) == nodes_of(other)
    mine, yours = (armillary.simulate(each, MACHINE) for each in (fast, slow))
    assert mine.info == yours.info
    assert np.array_equal(mine.finish_ticks, yours.finish_ticks)
    assert np.array_equal(mine.node_start, yours.node_start)
    assert np.array_equal(mine.node_end, yours.node_end)


def test_places_share_what_follows_from_their_tasks_alone() -> None:
    plan = Plan.model_validate(
        {"ranks": 16, "batch": 64, "sequence": 32, "parallel": {"pp": 2, "ep": 8}, "experts": {"skew": 0.3}}
    )
    graphs = generate(Decoder.model_validate(MODEL), plan).graphs
    placed = [graph.placement for graph in graphs if isinstance(graph, PlacedGraph)]
    assert len(placed) == len(graphs) > 2
    assert {id(each) for each in placed} == {id(each) for each in placed[:2]}
