"""Weights, keys and values, and activations of inference have precisions of their own, in memory and in traffic."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from pydantic import ValidationError

from armillary.base.errors import InputError
from armillary.workload.generate import generate, replica_layers
from armillary.workload.memory.advice import advise
from armillary.workload.models import load_model, parameters
from armillary.workload.plan.numbers import stored
from armillary.workload.plan.schema import Plan

MODEL = load_model("llama-3-8b")
SERVE = {"ranks": 1, "batch": 2, "microbatch": 2, "serve": {"prompt": 64, "outputs": 2, "phase": "decode"}}


def plan(**numbers: Any) -> Plan:
    return Plan.model_validate({**SERVE, "numbers": numbers})


def held(**numbers: Any) -> dict[str, int]:
    own = plan(**numbers)
    return advise(own, 2**62, partial(replica_layers, MODEL)).footprint.at_peak


def moved(name: str, **numbers: Any) -> int:
    """Return the bytes that the nodes whose names end so move."""
    graph = generate(MODEL, plan(**numbers)).graphs[0]
    sizes = graph.ints("tensor_size", 0)
    return int(sum(int(sizes[at]) for at, text in enumerate(graph.names()) if text.endswith(name)))


@pytest.mark.parametrize(("precision", "bits"), [("fp32", 32), ("bf16", 16), ("fp8", 8), ("fp4", 4.25)])
def test_weights_take_their_bits(precision: str, bits: float) -> None:
    count = parameters(MODEL).total
    assert held(compute=precision)["weights"] == pytest.approx(count * bits / 8, rel=1e-3)
    assert held(weights=precision)["weights"] == pytest.approx(count * bits / 8, rel=1e-3)


def test_embeddings_may_stay() -> None:
    table = 2 * MODEL.vocabulary * MODEL.hidden  # type: ignore[union-attr]
    more = held(compute="fp8", embeddings="bf16")["weights"] - held(compute="fp8")["weights"]
    assert more == pytest.approx(table, rel=1e-2)


def test_the_cache_has_its_own() -> None:
    usual = held(compute="fp8")["cache"]
    assert usual == held()["cache"] == held(cache="bf16")["cache"]
    assert held(cache="fp8")["cache"] == pytest.approx(usual / 2, rel=1e-3)
    assert moved("attend", cache="fp8") < 0.7 * moved("attend")


def test_a_decode_reads_what_is_stored() -> None:
    whole = moved("gemm")
    assert moved("gemm", weights="fp8") == pytest.approx(whole / 2, rel=0.02)
    assert moved("gemm", weights="fp4") == pytest.approx(whole * 4.25 / 16, rel=0.03)
    assert moved("gemm", compute="fp4") < moved("gemm", compute="fp8") < whole


def test_activations_have_their_own() -> None:
    assert moved("norm", activations="fp8") == pytest.approx(moved("norm") / 2, rel=0.05)


def test_scales_are_stored_too() -> None:
    assert stored(32, "fp4") == 17
    assert stored(128 * 128, "fp8") == 128 * 128 + 4


@pytest.mark.parametrize("key", ["weights", "embeddings", "cache", "activations"])
def test_they_are_for_inference(key: str) -> None:
    with pytest.raises(ValidationError, match=rf"got numbers.{key} fp8, expected it in inference only"):
        Plan.model_validate({"ranks": 1, "batch": 1, "numbers": {key: "fp8"}})


def test_what_inference_does_not_know_is_still_refused() -> None:
    with pytest.raises(InputError, match=r"numbers.gradients"):
        generate(MODEL, plan(gradients="bf16"))
