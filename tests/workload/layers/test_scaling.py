"""Recipes of fp8 and fp4: which kernels quantise what, which collectives carry it, and who refuses it."""

from __future__ import annotations

import re
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from armillary.base.errors import InputError
from armillary.trace import CollectiveType, Graph
from armillary.workload.generate import generate, memory_of
from armillary.workload.layers.expert_load import Load
from armillary.workload.layers.of_model import layers_of
from armillary.workload.models import load_model
from armillary.workload.models.decoder_parts import Attention, Experts, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

HIDDEN, INNER, SEQUENCE, LAYERS = 64, 256, 32, 2
MODEL = Decoder(
    name="small", layers=LAYERS, hidden=HIDDEN, vocabulary=128, context=SEQUENCE, tied=False, norm="rms",
    activation="swiglu", attention=Attention(heads=4), mlp=Mlp(size=INNER),
)  # fmt: skip
EXPERTS = MODEL.model_copy(update={"mlp": None, "experts": Experts(count=8, top_k=2, size=32)})
# Bytes of an element, along rows or columns, and of each kernel of a quantisation.
ELEMENT = {"delayed": 1, "current": 1, "block": 1 + 4 / 128, "mx": 1 + 1 / 32, "nvfp4": 0.5 + 1 / 16}
MOVED = {
    "delayed": {"quantize": 2 + 2},
    "current": {"amax": 2, "quantize": 2 + 2},
    "block": {"quantize": 2 + 2 * ELEMENT["block"]},
    "mx": {"quantize": 2 + 2 * ELEMENT["mx"]},
    "nvfp4": {"amax": 2, "quantize": 2 + ELEMENT["nvfp4"], "quantize columns": 2 + ELEMENT["nvfp4"]},
}


def plan(recipe: str | None, **more: Any) -> Plan:
    numbers = {"compute": "fp4" if recipe == "nvfp4" else "fp8", "recipe": recipe}
    return Plan.model_validate({"ranks": 1, "batch": 1, "numbers": numbers, **more})


def graph(recipe: str | None, model: Decoder = MODEL, **more: Any) -> Graph:
    return generate(model, plan(recipe, **more)).graphs[0]


def sizes(found: Graph, pattern: str, key: str = "tensor_size") -> list[int]:
    """Return the sizes of the nodes whose whole names match, in order."""
    every = found.ints(key, 0)
    return [int(every[at]) for at, name in enumerate(found.names()) if re.fullmatch(pattern, name)]


@pytest.mark.parametrize("recipe", sorted(MOVED))
def test_each_tensor_is_quantised_once(recipe: str) -> None:
    found = graph(recipe)
    # Inputs and outputs of the linear layers of a layer.
    widths = {
        "qkv": (HIDDEN, 3 * HIDDEN), "out": (HIDDEN, HIDDEN), "mlp.up": (HIDDEN, 2 * INNER), "mlp.down": (INNER, HIDDEN)
    }  # fmt: skip
    for block, (inputs, outputs) in widths.items():
        for kernel, each in MOVED[recipe].items():
            # Delayed scaling knows the scale before, so the norm writes fp8.
            behind = recipe == "delayed" and block in ("qkv", "mlp.up")
            wanted = [] if behind else [ceil(SEQUENCE * inputs * each)] * LAYERS
            wanted += [ceil(SEQUENCE * outputs * each)] * LAYERS
            assert sizes(found, rf"{re.escape(block)}\.{kernel}") == wanted
    weights = LAYERS * sum(inputs * outputs for inputs, outputs in widths.values())
    assert sizes(found, "quantize weights") == [ceil(weights * sum(MOVED[recipe].values()))]


@pytest.mark.parametrize("recipe", [None, *sorted(MOVED)])
def test_only_linear_layers_are(recipe: str | None) -> None:
    found = graph(recipe)
    codes, names = found.strings("scaling")
    scaled = {name.rpartition(".")[0] for name, code in zip(found.names(), codes, strict=True) if code >= 0}
    assert scaled == ({"qkv", "out", "mlp.up", "mlp.down"} if recipe else set())
    assert set(names) == ({recipe} if recipe else set())


@pytest.mark.parametrize("recipe", sorted(MOVED))
def test_gathers_carry_what_is_quantised(recipe: str) -> None:
    found, usual = (graph(each, ranks=2, parallel={"tp": 2}) for each in (recipe, None))
    own = SEQUENCE // 2 * HIDDEN
    assert sizes(usual, r"qkv\.gather", "comm_size") == [2 * own] * 2 * LAYERS
    # Forward and, for the gradient of the weight, backward.
    assert sizes(found, r"qkv\.gather", "comm_size") == [ceil(own * ELEMENT[recipe])] * 2 * LAYERS
    # Gradients are gathered along both directions where one cannot be turned into the other.
    ways = 2 if recipe in ("mx", "nvfp4") else 1
    assert sizes(found, r"out\.gather", "comm_size") == [ceil(ways * own * ELEMENT[recipe])] * LAYERS
    # Sums stay in 16 bits.
    assert sizes(found, r"out\.scatter", "comm_size") == sizes(usual, r"out\.scatter", "comm_size")
    reduced = 4 if recipe in ("current", "nvfp4") else 0
    assert len(sizes(found, r".*\.amax reduce", "comm_size")) == reduced * LAYERS


def test_delayed_scaling_agrees_on_its_history() -> None:
    found = graph("delayed", ranks=4, batch=4, parallel={"tp": 2, "dp": 2})
    # Of two microbatches: input, weight and output of eight linear layers, and two gradients.
    assert sizes(found, "amax forward", "comm_size") == [8 * 3 * 4] * 2
    assert sizes(found, "amax backward", "comm_size") == [8 * 2 * 4] * 2
    kinds = found.ints("comm_type", -1)
    mine = [kinds[at] for at, name in enumerate(found.names()) if name.startswith("amax ")]
    assert set(mine) == {CollectiveType.ALL_REDUCE}
    assert not sizes(graph("mx", ranks=4, batch=4), "amax .*ward", "comm_size")


def test_frozen_weights_need_rows_only() -> None:
    found = graph("mx", lora={"rank": 4, "targets": ["qkv"]})
    assert not sizes(found, "quantize weights")  # frozen ones are quantised once
    each = 2 + ELEMENT["mx"]
    assert sizes(found, r"out\.quantize") == [ceil(SEQUENCE * HIDDEN * each)] * 2 * LAYERS


def test_copies_of_weights_take_their_scales() -> None:
    weights = LAYERS * (4 * HIDDEN**2 + 3 * HIDDEN * INNER)
    held = {each: memory_of(MODEL, plan(each))["allocated_bytes"] for each in ("current", "mx")}
    assert held["mx"] - held["current"] == pytest.approx(2 * weights / 32, abs=4)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"compute": "bf16", "recipe": "mx"}, "which is of fp8, with compute bf16, expected none"),
        ({"compute": "fp8", "recipe": "nvfp4"}, "expected delayed or current or block or mx"),
        ({"compute": "fp4", "recipe": "current"}, "expected nvfp4"),
    ],
)
def test_a_recipe_is_of_a_precision(numbers: dict[str, str], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        Plan.model_validate({"ranks": 1, "batch": 1, "numbers": numbers})


def test_others_refuse_it() -> None:
    with pytest.raises(ValidationError, match="expected it in training only"):
        plan("mx", serve={"prompt": 8})
    with pytest.raises(InputError, match="expected a model of kind 'decoder', got 'vit'"):
        generate(load_model("vit-b-16"), plan("mx"))


@pytest.mark.parametrize(
    ("recipe", "align", "rows"),
    # 32 tokens visit two of eight experts each: eight rows of an expert.
    [
        (None, None, 8),
        ("current", None, 16),
        ("mx", None, 32),
        ("nvfp4", None, 64),
        ("mx", 128, 128),
        (None, 12, 12),
    ],
)
def test_tokens_of_experts_are_padded(recipe: str | None, align: int | None, rows: int) -> None:
    found = graph(recipe, EXPERTS, experts={"align": align})
    shapes, lists = found.int_lists("gemm")
    mine = {
        tuple(lists[code][1:3])
        for name, code in zip(found.names(), shapes, strict=True)
        if name == "experts.up.gemm"
    }
    assert mine == {(8, rows)}


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=8),
    st.integers(1, 4),
    st.sampled_from((1, 16, 32, 128)),
)
def test_padding_by_counting(counts: list[int], times: int, align: int) -> None:
    load = Load(0, sum(counts), experts=tuple(counts))
    rows = 0
    for count in counts:
        own = count * times
        while own % align:
            own += 1
        rows += own
    assert load.rows(len(counts), times, align) == rows


def test_biases_of_experts_are_added_by_plain_kernels() -> None:
    biased = EXPERTS.model_copy(update={"experts": Experts(count=8, top_k=2, size=32, bias=True)})
    assert not sizes(graph(None, EXPERTS), r"experts\.bias\..*")
    # Wide products: written; read with a sum in 16 bits, and written; joined; made narrow. And the gradients:
    # made wide; two products, read and written, and summed up; made narrow, joined.
    count = SEQUENCE * 2 * HIDDEN
    moved = [4, 4 + 2 + 4, 4 + 4, 4 + 2, 2 + 4, 16, 8, 4 + 2, 2 + 2]
    found = sizes(graph(None, biased), r"experts\.bias\..*")
    assert sorted(found) == sorted(count * each for each in moved * LAYERS)


def test_inputs_beyond_a_limit_are_held_to_it_by_plain_kernels() -> None:
    held = EXPERTS.model_copy(update={"experts": Experts(count=8, top_k=2, size=32, limit=7)})
    names = r"experts\.activation\.(clamp|join|mask|join back)$"
    assert not sizes(graph(None, EXPERTS), names)
    # Both halves: clamped, joined; backward with a mask, and joined.
    count = SEQUENCE * 2 * 2 * 32 * 2
    assert sorted(sizes(graph(None, held), names)) == sorted(count * each for each in [2, 2, 3, 2] * LAYERS)


@pytest.mark.parametrize(
    ("recipe", "quantise", "kernels", "quantising"),
    [
        (None, "apart", 1, 0), ("current", "apart", 1, 4), ("mx", "apart", 3, 4), ("mx", "joined", 1, 4),
        ("nvfp4", "apart", 3, 8), ("nvfp4", "joined", 1, 0),
    ],
)  # fmt: skip
def test_experts_are_multiplied_and_quantised_one_by_one(
    recipe: str | None, quantise: str, kernels: int, quantising: int
) -> None:
    experts, wish = 8, {"ranks": 1, "batch": 1, "sequence": SEQUENCE, "experts": {"quantise": quantise}}
    compute = "fp4" if recipe == "nvfp4" else "fp8"
    numbers = {"numbers": {"compute": compute, "recipe": recipe}} if recipe else {}
    layer = layers_of(EXPERTS, Plan.model_validate(wish | numbers))[1]
    steps = [*layer.forward, *layer.backward, *layer.weight]
    # Two weights in three passes; the kernels that turn the scales of both operands go before each.
    loops = [
        step.looped for step in steps if step.name.endswith((".gemm", ".input", ".weight")) and step.looped
    ]
    assert loops == [experts * kernels] * 6
    quantised = [
        step.looped
        for step in steps
        if step.looped and step.name.startswith("experts.") and "quantize" in step.name
    ]
    assert quantised == [experts] * quantising
    assert not any(step.looped for step in steps if not step.name.startswith("experts."))
