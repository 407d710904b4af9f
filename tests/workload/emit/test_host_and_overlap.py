"""What later and earlier frameworks do otherwise: handshakes, scattered messages, overlap, kernels of their own."""

from __future__ import annotations

from math import comb
from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.engine import simulate
from armillary.platform.files.native import load_platform
from armillary.trace import NodeType
from armillary.workload.generate import generate
from armillary.workload.layers.of_model import layers_of
from armillary.workload.models import load_model
from armillary.workload.plan.schema import Plan

MODEL = load_model("megatron-22b").model_copy(update={"layers": 8})


def plan(**keys: Any) -> Plan:
    base = {"ranks": 8, "batch": 8, "sequence": 2048, "parallel": {"tp": 2, "pp": 2, "sequence": False}}
    return Plan.model_validate({**base, **keys})


def ticks(wish: Plan, model: Any = MODEL) -> int:
    platform = load_platform(
        {
            "network": [
                {
                    "name": "node",
                    "topology": "Switch",
                    "size": wish.ranks,
                    "bandwidth": "50 GB/s",
                    "latency": "1 us",
                }
            ],
            "npu": {"peak": "300 TFLOP/s", "memory": {"bandwidth": "2 TB/s"}},
            "compute": {"roofline": True},
        }
    )
    return simulate(generate(model, wish), platform).total_ticks


def names(wish: Plan, model: Any = MODEL) -> list[str]:
    return [name for graph in generate(model, wish).graphs for name in graph.names()]


def test_handshake_delays_what_was_received():
    one, two = (ticks(plan(pipeline={"handshake": f"{wait} us"})) for wait in (0, 500))
    # At least activations there and gradients back wait on the critical path.
    assert two - one >= 2 * 500_000
    assert names(plan(pipeline={"handshake": "1 us"})).count("handshake") == 8


def test_scattered_messages_are_parts_that_are_gathered():
    whole, parts = (generate(MODEL, plan(pipeline={"scatter": scatter})) for scatter in (False, True))
    sizes = []
    for trace in (whole, parts):
        graph = trace.graphs[0]
        sent = graph.types == NodeType.COMM_SEND_NODE
        sizes.append(set(graph.ints("comm_size")[sent].tolist()))
    (large,), (small,) = sizes
    assert small == large // 2
    assert names(plan(pipeline={"scatter": True})).count("gather activations") == 4
    assert "gather activations" not in names(plan(pipeline={"scatter": True}, parallel={"tp": 2, "pp": 2}))


def test_gemms_hide_their_collectives():
    without, with_it = (ticks(plan(parallel={"tp": 4, "overlap": on})) for on in (False, True))
    assert with_it < without


def test_tasks_hide_messages_of_experts():
    model = load_model("qwen3-30b-a3b").model_copy(update={"layers": 2})
    without, with_it = (
        ticks(plan(parallel={"ep": 8}, batch=64, pipeline={"overlap": on}), model) for on in (False, True)
    )
    assert with_it < 0.95 * without


def exchanged(model: Any, wish: Plan) -> dict[str, list[int]]:
    """Return the bytes of the exchanges of a step, by axis set of groups, in order."""
    graph = generate(model, wish).graphs[0]
    codes, axis_sets = graph.strings("pg_name")
    sizes, found = graph.ints("comm_size", 0), {}
    for at, name in enumerate(graph.names()):
        if "exchange" in name:
            found.setdefault(axis_sets[codes[at]], []).append(int(sizes[at]))
    return found


def test_a_token_goes_once_to_each_node_and_there_to_the_ranks_of_its_experts():
    model = load_model("qwen3-30b-a3b").model_copy(update={"layers": 1})
    whole = exchanged(model, plan(parallel={"ep": 8}))["ep"]
    parts = exchanged(model, plan(parallel={"ep": 8}, experts={"domain": 2}))
    assert set(parts) == {"ep.across", "ep.inside"} and len(parts["ep.across"]) == len(whole)
    # 8 of 128 experts, of which a node has 32 and a rank 16, without one: C(96, 8) / C(128, 8), C(112, 8) / C(128, 8).
    nodes, ranks = (n * (1 - comb(128 - 128 // n, 8) / comb(128, 8)) for n in (4, 8))
    assert parts["ep.across"] == pytest.approx([size * nodes / 8 for size in whole], rel=1e-4)
    assert parts["ep.inside"] == pytest.approx([size * ranks / 8 for size in whole], rel=1e-4)
    assert exchanged(model, plan(parallel={"ep": 8}, experts={"domain": 8})) == {"ep": whole}
    with pytest.raises(InputError, match=r"experts.domain 3: expected a divisor of ep 8 \(nearest: [24]\)"):
        generate(model, plan(parallel={"ep": 8}, experts={"domain": 3}))


def test_tokens_of_deepseek_v3_reach_four_nodes_at_most():
    model = load_model("deepseek-v3").model_copy(update={"layers": 4})
    wish = plan(ranks=64, batch=64, parallel={"ep": 64}, experts={"domain": 8})
    tokens = 2048 * 7168 * 2
    for size in exchanged(model, wish)["ep.across"]:
        # 4 groups of 32 experts, one a node: 4 (1 - C(96, 8) / C(128, 8)) of the nodes.
        assert size == pytest.approx(tokens * 4 * (1 - comb(96, 8) / comb(128, 8)), rel=1e-4)


@pytest.mark.parametrize("domain", [None, 4])
def test_fp8_goes_to_experts_and_bf16_comes_back(domain):
    model = load_model("qwen3-30b-a3b").model_copy(update={"layers": 1})
    experts = {"domain": domain} if domain else {}
    low = exchanged(model, plan(parallel={"ep": 8}, numbers={"compute": "fp8"}, experts=experts))
    high = exchanged(model, plan(parallel={"ep": 8}, numbers={"compute": "bf16"}, experts=experts))
    for axis_set, sizes in high.items():
        # Forward: to experts, back; backward: gradients of their results to them, those of tokens back.
        assert low[axis_set] == [size // (1, 2)[at % 2 == 0] for at, size in enumerate(sizes)]
    same = exchanged(
        model, plan(parallel={"ep": 8}, numbers={"compute": "fp8"}, experts=experts | {"dispatch": "bf16"})
    )
    assert same == high


def test_early_stop_leaves_out_the_last_gemm():
    full, early = (layers_of(MODEL, plan(recompute="full", early_stop=stop))[1] for stop in (False, True))
    left_out = {step.name for step in full.backward} - {step.name for step in early.backward}
    assert left_out == {"again.mlp.down.gemm", "again.mlp.down.reduce", "again.mlp.residual.add"}


@pytest.mark.parametrize("attention", ["unfused", "eager"])
def test_kernels_of_attention(attention):
    steps = {
        step.name: step.bytes for step in layers_of(MODEL, plan(attention=attention, dropout=True))[1].forward
    }
    scores = 32 * 2048 * 2048
    assert steps["core.dropout"] == 5 * scores  # two bytes in, two out, one of the mask
    assert steps["core.softmax"] == (4 if attention == "unfused" else 8) * scores
    assert ("core.mask" in steps) == (attention == "eager")


def test_gradients_are_added_apart():
    """Early Megatron-LM adds them by kernels of their own: bf16 read, fp32 read and written."""
    fused, apart = (
        {step.name: step for step in layers_of(MODEL, plan(numbers={"fused": on}))[1].weight}
        for on in (True, False)
    )
    left = {name: step.bytes for name, step in apart.items() if name not in fused}
    assert set(left) == {f"{name}.accumulate" for name in ("mlp.down", "mlp.up", "out", "qkv")}
    assert left["mlp.down.accumulate"] == (6144 * 24576 // 2 + 6144) * (2 + 4 + 4)


@pytest.mark.parametrize(
    "parallel",
    [{"tp": 4, "pp": 2, "sequence": False}, {"tp": 2, "pp": 4}, {"tp": 1, "pp": 4}],
)
def test_zero_bubble_with_overlap_is_no_slower_than_1f1b(parallel):
    """Gradients of weights fill what other tasks leave idle: they may not keep the next task from its place."""
    one, zero = (
        ticks(plan(batch=32, parallel=parallel, pipeline={"schedule": schedule, "overlap": True}))
        for schedule in ("1f1b", "zero-bubble")
    )
    assert zero <= one
