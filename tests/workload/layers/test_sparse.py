"""Sparse attention (DSA): closed forms of what it computes, reads and keeps."""

from __future__ import annotations

import pytest

from armillary.base.errors import InputError
from armillary.workload.layers.layer import Layer
from armillary.workload.layers.of_model import inference_layers, layers_of
from armillary.workload.models import load_model
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

HEADS, SIZE, TOP = 32, 128, 2048
"""Of GLM-5 (its config.json)."""


def model() -> Decoder:
    found = load_model("glm-5")
    assert isinstance(found, Decoder)
    return found


def plan(tp: int = 1) -> Plan:
    return Plan.model_validate(
        {"ranks": tp, "batch": 1, "serve": {"prompt": 1}, "causal": True, "parallel": {"tp": tp}}
    )


def layer(tokens: int, context: int, batch: int = 1, tp: int = 1) -> Layer:
    return inference_layers(model(), plan(tp), tokens=tokens, context=context, batch=batch)[1]


def steps(of: Layer) -> dict[str, int]:
    return {step.name: step.flops for step in of.forward}


def test_a_token_scores_all_keys_and_attends_to_the_top() -> None:
    for context in (100, 2048, 50_000):
        found = steps(layer(1, context, batch=3, tp=8))
        # Every rank scores for all heads of the small attention, and attends with its share of the others.
        assert found["index.probe"] == 2 * 3 * context * HEADS * SIZE
        assert found["absorbed.attend"] == 2 * 3 * min(context, TOP) * 8 * (512 + 64 + 512)


def test_a_prompt_scores_under_its_mask() -> None:
    tokens = 5_000
    found = steps(layer(tokens, tokens))
    assert found["index.score"] == tokens * (tokens + 1) // 2 * 2 * HEADS * SIZE
    seen = TOP * tokens - TOP * (TOP - 1) // 2
    assert found["absorbed.attend"] == 2 * seen * 64 * (512 + 64 + 512)
    # Up to the top all keys count, and nothing is chosen.
    short = steps(layer(TOP, TOP))
    assert "core.attend" in short and not {"index.score", "index.top", "absorbed.attend"} & set(short)
    # New tokens behind others are chosen for, however few.
    assert {"index.score", "absorbed.attend"} <= set(steps(layer(64, 1_000)))


def test_it_keeps_a_small_key_of_each_token() -> None:
    # 576 elements in 16 bits, and 128 in fp8 with a scale: 89,856 and 10,296 bytes a token over 78 layers.
    assert layer(1, 1_000).cache == 1_000 * (576 * 2 + 128 + 4)


def test_training_is_refused() -> None:
    own = Plan.model_validate({"ranks": 1, "batch": 1, "sequence": 128})
    with pytest.raises(
        InputError, match=r"its attention is sparse \(DSA\), of which only inference is modelled"
    ):
        layers_of(model(), own)
