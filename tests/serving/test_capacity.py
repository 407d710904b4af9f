"""What fits beside the weights."""

from __future__ import annotations

import pytest

from armillary.base.errors import InputError
from armillary.serving.capacity import capacity_of
from armillary.workload.models import load_model
from armillary.workload.plan.schema import Plan


def plan(tp: int = 1, **numbers: str) -> Plan:
    return Plan.model_validate(
        {"ranks": tp, "batch": 1, "parallel": {"tp": tp}, "serve": {"prompt": 1}, "numbers": numbers}
    )


def test_blocks_of_a_measured_engine() -> None:
    """vLLM 0.19 found 2,588 blocks of 16 tokens for Llama 3.1 8B on an RTX 4090 at 0.9 (LLMServingSim's meta.json)."""
    found = capacity_of(
        load_model("llama-3.1-8b"), plan(), 25_250_627_584, 0.9, budget=2048, block=16, tokens=1500
    )
    assert found.per_token == 131_072
    assert found.blocks == pytest.approx(2588, rel=0.1)


def test_more_devices_and_fewer_bits_hold_more() -> None:
    model = load_model("llama-3.1-8b")
    sizes = [
        capacity_of(model, each, 80 * 2**30, 0.9, budget=2048, block=16, tokens=1500).blocks
        for each in (plan(), plan(weights="fp8", compute="bf16"), plan(cache="fp8", weights="fp8"))
    ]
    assert sizes == sorted(sizes) and len({*sizes}) == 3


def test_a_model_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match=r"Llama 3\.1 70B does not fit: .* weights take .* larger tp"):
        capacity_of(load_model("llama-3.1-70b"), plan(), 80 * 2**30, 0.9, budget=2048, block=16, tokens=1500)
