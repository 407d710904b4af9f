"""What later and earlier frameworks do otherwise: handshakes, scattered messages, overlap, kernels of their own."""

from __future__ import annotations

from typing import Any

import pytest

from armillary.engine import simulate
from armillary.platform.native import load_platform
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


def test_products_hide_their_collectives():
    without, with_it = (ticks(plan(parallel={"tp": 4, "overlap": on})) for on in (False, True))
    assert with_it < without


def test_tasks_hide_messages_of_experts():
    model = load_model("qwen3-30b-a3b").model_copy(update={"layers": 2})
    without, with_it = (
        ticks(plan(parallel={"ep": 8}, batch=64, pipeline={"overlap": on}), model) for on in (False, True)
    )
    assert with_it < 0.95 * without


def test_a_token_goes_once_to_each_node():
    model = load_model("qwen3-30b-a3b").model_copy(update={"layers": 1})

    def sent(domain: int | None) -> int:
        wish = plan(parallel={"ep": 8}, experts={"domain": domain} if domain else {})
        graph = generate(model, wish).graphs[0]
        return max(
            size
            for size, name in zip(graph.ints("comm_size", 0).tolist(), graph.names(), strict=True)
            if "exchange" in name
        )

    # 8 choices fall on 4 nodes of 2: 4 (1 - (3/4)^8) = 3.6 of them are different.
    assert sent(2) == pytest.approx(sent(None) * 3.6 / 8, rel=0.01)
    assert sent(8) == sent(None)


def test_early_stop_leaves_out_the_last_product():
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
