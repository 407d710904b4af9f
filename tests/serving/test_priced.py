"""Times of steps from the exact engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.base.jit import load
from armillary.compute.machine import machine_of
from armillary.serving.load import load_requests
from armillary.serving.priced import as_engines_run, priced, projected
from armillary.serving.service import service
from armillary.serving.spread import Wanted
from armillary.serving.step_table import StepTable
from armillary.workload.layers.of_model import inference_layers
from armillary.workload.models import load_model
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan


def decoder(name: str, layers: int) -> Decoder:
    found = load_model(name).model_copy(update={"layers": layers})
    assert isinstance(found, Decoder)
    return found


def plan(**numbers: str) -> Plan:
    return Plan.model_validate(
        {"ranks": 1, "batch": 1, "serve": {"prompt": 1}, "causal": True, "numbers": numbers}
    )


def table(name: str, layers: int = 1, budget: int = 2048, **numbers: str) -> StepTable:
    platform = machine_of("1xh100").platform
    return priced(decoder(name, layers), plan(**numbers), platform, budget=budget, sequences=8, longest=1500)


def ns(of: StepTable, tokens: int, new: int = 0, before: int = 0, decoding: int = 0, context: int = 0) -> int:
    kernel: Any = load("armillary.serving.price_kernel", "interpreted")
    return int(kernel.step_ns(of.arrays(), tokens, decoding + (new > 0), new, before, decoding, context, 0))


def test_what_is_more_takes_longer() -> None:
    of = table("llama-3.1-8b")
    assert ns(of, 1, decoding=1, context=100) < ns(of, 1, decoding=1, context=1400)
    assert ns(of, 64, 64) < ns(of, 512, 512) < ns(of, 2048, 2048)
    assert ns(of, 512, 512) < ns(of, 516, 512, decoding=4, context=1000)
    assert ns(of, 512, 512) <= ns(of, 512, 512, before=1000)
    # Four prompts have fewer scores than one of the same tokens, and more than one of a quarter.
    whole = of.attention[:, 0, 0, 0]
    assert whole[list(of.axes[0]).index(512)] < ns_of_attention(of, 2048, -768) < whole[-1]


def ns_of_attention(of: StepTable, new: int, before: int) -> int:
    """Return ps: a step of prompts less all but its attention."""
    return 1000 * (ns(of, new, new, before) - int(of.dense[new]) - int(of.head[1]))


@pytest.mark.parametrize("name", ["deepseek-v3", "kimi-k2"])
def test_latent_attention_depends_on_the_context(name: str) -> None:
    of = table(name, 2, 512, compute="fp8")
    near, far = (ns(of, 8, decoding=8, context=each) for each in (1, 1400))
    assert far > near
    # A prompt is no batch of sequences that decode: its attention is in the table, not in what depends on tokens.
    assert of.attention[-1, 0, 0, 0] > 0
    assert ns(of, 512, 512) < 3 * int(of.dense[512])


def test_experts_of_a_step_are_one_kernel() -> None:
    """A loop over the experts of a layer would take more than ten times as long as reading their weights."""
    model = decoder("qwen3-30b-a3b", 48)
    of = table("qwen3-30b-a3b", 48, 64)
    # 8 tokens read at most 64 of 128 experts of 3 matrices each, at 3.35 TB/s.
    reads = 48 * 64 * 3 * 2048 * 768 * 2 / 3.35e12 * 1e9
    assert reads < ns(of, 8, decoding=8, context=100) < 3 * reads
    layers = inference_layers(model, plan(), tokens=1, context=100, batch=8)
    names = [step.name for step in as_engines_run(layers[1].forward)]
    assert "experts.up.grouped" in names and "experts.down.grouped" in names
    assert not any(name.endswith("residual.add") for name in names)


def test_steps_are_filled_up_to_graphs() -> None:
    platform = machine_of("1xh100").platform
    of = priced(
        decoder("llama-3.1-8b", 1), plan(), platform, budget=64, sequences=4, longest=64, captured=(1, 8, 32)
    )
    assert of.dense[2] == of.dense[8] > 0 and of.dense[9] == of.dense[32]
    assert np.all(np.diff(of.dense[:33]) >= 0)


def test_decoding_is_near_what_was_measured() -> None:
    """TensorRT-LLM on H100, 8 requests of 1,024 tokens and answers of 512: 7.42 ms (silicon_sample.csv), with prompts.

    Not fitted to it: the kernels alone sum up to 7.1 ms.
    """
    of = table("llama-3.1-8b", 32)
    assert ns(of, 8, decoding=8, context=1300) / 1e6 == pytest.approx(7.42, rel=0.1)


@pytest.mark.parametrize("name", ["qwen3-next-80b-a3b", "nemotron-3-nano"])
def test_linear_layers_do_not_depend_on_what_is_before(name: str) -> None:
    whole, attention = load_model(name), decoder("llama-3.1-8b", 2)
    assert isinstance(whole, Decoder)
    first = whole.model_copy(update={"layers": 2, "layout": whole.layout and whole.layout[:2]})
    grows = []
    for model in (first, attention):
        of = priced(model, plan(), machine_of("1xh100").platform, budget=512, sequences=64, longest=1500)
        grows.append(ns(of, 32, decoding=32, context=1400) - ns(of, 32, decoding=32, context=1))
        # Each sequence has a state, and a prompt moves none of others.
        assert ns(of, 64, decoding=64, context=1) > ns(of, 8, decoding=8, context=1)
        assert ns(of, 512, 512) > ns(of, 64, 64)
    assert grows[0] == 0 < grows[1]


@pytest.mark.slow
def test_a_model_of_linear_layers_is_served() -> None:
    requests = load_requests("constant:rate=1,requests=2,input=64,output=4")
    found = service(load_model("qwen3.5-397b-a17b"), machine_of("8xb200"), requests, Wanted(budget=64))
    outcome = found.run(requests)
    # 17 of 397 billion parameters in 16 bits are read from 8 memories of 8 TB/s, in 0.53 ms at best.
    assert 0.53e-3 < outcome.tpot[0] < 15e-3
    assert found.capacity and 8 * found.capacity.weights == pytest.approx(2 * 397e9, rel=0.02)


def test_narrow_weights_are_an_assumption() -> None:
    requests = load_requests("constant:rate=1,requests=1,input=8,output=2")
    found = service(
        decoder("llama-3.1-8b", 1), machine_of("1xh100"), requests, Wanted(weight_precision="fp8", budget=16)
    )
    assert any("not in fp8" in each for each in found.assumptions)


def test_projections_of_attention_may_be_wider_than_other_gemms() -> None:
    model = decoder("llama-3.1-8b", 1)
    both = [
        inference_layers(model, plan(compute=kind), tokens=4, context=64, batch=1) for kind in ("fp8", "bf16")
    ]
    narrow, wide = (layers[1].forward for layers in both)
    found = projected(narrow, "bf16")
    widened = [step.name for step in found if step.gemms and step.precision == "bf16"]
    assert widened == ["qkv.gemm", "out.gemm"]
    assert projected(narrow, None) == list(narrow) and projected(narrow, "fp8") == list(narrow)
    # They move what they do where all GEMMs are as wide, and others what they did.
    known = {step.name: step for step in wide}
    for step, before in zip(found, narrow, strict=True):
        assert step.bytes == (known[step.name].bytes if step.name in widened else before.bytes)


def test_a_service_has_wider_projections_and_norms_of_their_own() -> None:
    requests = load_requests("closed:clients=4,requests=4,input=64,output=4")

    def served(**options: Any) -> tuple[int, int]:
        made = service(
            decoder("llama-3.1-8b", 4), machine_of("2xh100"), requests, Wanted(precision="fp8", **options)
        )
        assert made.capacity is not None
        return ns(made.table, 4, decoding=4, context=64), made.capacity.weights

    usual, bytes_of = served()
    wide, more = served(attention_precision="bf16")
    # Two GEMMs of 4096 x (6144 + 4096) weights a layer, of which a device has half.
    assert more - bytes_of == pytest.approx(4 * 4096 * (6144 + 4096) / 2, rel=1e-3) and wide > usual
    assert served(fused=False)[0] == usual > served(fused=True)[0]
    with pytest.raises(
        InputError, match=r"attention-precision bf61: expected one of bf16, fp8, fp4 \(did you mean"
    ):
        served(attention_precision="bf61")
