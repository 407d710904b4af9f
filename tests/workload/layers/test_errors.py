"""Impossible requests name the number and the nearest that works."""

from __future__ import annotations

import pytest

from armillary.base.errors import InputError
from armillary.workload.layers.of_model import inference_layers, layers_of
from armillary.workload.models import Decoder, load_model
from armillary.workload.models.decoder_parts import Attention, Mlp
from armillary.workload.plan.schema import Plan

CASES = [
    ("llama-3-8b", {"tp": 3}, {}, r"tp 3: expected a divisor of heads 32 \(nearest: 2\)"),
    ("turing-nlg-17b", {"tp": 8}, {}, r"tp 8: expected a divisor of heads 28 \(nearest: 7\)"),
    (
        "turing-nlg-17b",
        {"tp": 28},
        {},
        r"sequence 1024: .* cp 1 x tp 28 = 28 \(nearest: 1008, or parallel.seq",
    ),
    ("llama-3-8b", {"cp": 3}, {}, r"sequence 8192: expected a multiple of cp 3 = 3 \(nearest: 8193\)"),
    ("llama-3-8b", {"cp": 2}, {"attention": "unfused"}, r"attention unfused: expected flash with cp 2"),
    ("llama-3-8b", {"ep": 2}, {}, r"ep 2: 'Llama 3 8B' has no experts, expected 1"),
    ("mixtral-8x7b", {"ep": 3}, {}, r"ep 3: expected a divisor of experts 8 \(nearest: 2\)"),
    ("mixtral-8x7b", {"etp": 3}, {}, r"etp 3: expected a divisor of size of an expert 14336 \(nearest: 2\)"),
    ("mixtral-8x7b", {"tp": 2, "etp": 1, "sequence": False}, {}, r"etp 1: .*expected tp 2"),
    ("gpt-3-175b", {}, {"sequence": 4096}, r"sequence 4096: expected at most 2048"),
    ("llama-3-8b", {"etp": 2}, {}, r"etp 2: 'Llama 3 8B' has no experts, expected none"),
    ("llama-3-8b", {}, {"experts": {"skew": 1.0}}, r"experts.skew 1.0: 'Llama 3 8B' has no experts"),
    (
        "llama-3-8b",
        {},
        {"experts": {"dispatcher": "alltoall"}},
        r"experts.dispatcher alltoall: 'Llama 3 8B' has no experts, expected none",
    ),
    (
        "llama-3-8b",
        {},
        {"experts": {"align": 8}},
        r"experts.align 8: 'Llama 3 8B' has no experts, expected none",
    ),
    ("llama-3-8b", {}, {"experts": {"domain": 4}}, r"experts.domain 4: .*expected none"),
    ("llama-3-8b", {}, {"experts": {"dispatch": "fp8"}}, r"experts.dispatch fp8: .*expected none"),
    (
        "vit-l-16",
        {},
        {"experts": {"domain": 4}},
        r"experts.domain 4: 'ViT-L/16' has no experts, expected none",
    ),
    (
        "resnet-50",
        {},
        {"experts": {"skew": 1.0}},
        r"experts.skew 1.0: 'ResNet-50' has no experts, expected 0",
    ),
    ("vit-l-16", {"tp": 2}, {}, r"sequence 197: .*\(nearest: parallel.sequence: false\)"),
    ("vit-l-16", {"cp": 2}, {}, r"sequence 197: expected a multiple of cp 2 = 2 \(nearest cp: 1\)"),
    ("vit-l-16", {}, {"causal": True}, r"causal: 'ViT-L/16' has no causal mask"),
    ("vit-l-16", {}, {"sequence": 196}, r"sequence 196: 'ViT-L/16' has 197 tokens"),
]


@pytest.mark.parametrize(("name", "parallel", "changes", "message"), CASES)
def test_impossible(name: str, parallel: dict[str, object], changes: dict[str, object], message: str) -> None:
    plan = Plan.model_validate({"ranks": 1, "batch": 1, "parallel": parallel} | changes)
    with pytest.raises(InputError, match=message):
        layers_of(load_model(name), plan)


@pytest.mark.parametrize(
    ("name", "parallel", "sizes", "message"),
    [
        ("llama-3-8b", {}, (2, 1, 1), "context 1: expected at least 2"),
        ("llama-3-8b", {}, (1, 1, 0), "batch 0: expected at least 1"),
        ("llama-3-8b", {"cp": 2}, (8, 8, 1), "cp 2: .*expected 1"),
        ("mixtral-8x7b", {"tp": 8, "ep": 8, "etp": 1}, (1, 8, 9), r"multiple of tp 8.*\(nearest batch: 8\)"),
        ("vit-l-16", {}, (1, 1, 1), "expected a model of kind 'decoder', got 'vit'"),
    ],
)
def test_impossible_inference(
    name: str, parallel: dict[str, object], sizes: tuple[int, int, int], message: str
) -> None:
    plan = Plan.model_validate({"ranks": 1, "batch": 1, "parallel": parallel})
    tokens, context, batch = sizes
    with pytest.raises(InputError, match=message):
        inference_layers(load_model(name), plan, tokens=tokens, context=context, batch=batch)


def test_expert_rank() -> None:
    plan = Plan.model_validate({"ranks": 2, "batch": 2, "parallel": {"ep": 2}})
    with pytest.raises(InputError, match="expert rank 2: expected 0 to 1"):
        layers_of(load_model("mixtral-8x7b"), plan, 2)


def test_nearest_tensor_parallel_divides_all() -> None:
    model = load_model("llama-3-8b")
    assert isinstance(model, Decoder)
    plan = Plan.model_validate({"ranks": 8, "batch": 8, "parallel": {"tp": 8}})
    odd = model.model_copy(update={"mlp": Mlp(size=14340)})  # 6 and 10 divide it, but no heads
    with pytest.raises(InputError, match=r"tp 8: expected a divisor of mlp size 14340 \(nearest: 4\)"):
        layers_of(odd, plan)
    few = model.model_copy(update={"attention": Attention(heads=24, kv_heads=3), "mlp": Mlp(size=14400)})
    with pytest.raises(InputError, match=r"tp 8: .* multiple of kv_heads 3 \(nearest: 6\)"):
        layers_of(few, plan)
