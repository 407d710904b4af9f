"""Linear layers (Gated DeltaNet, Mamba-2), layers of one block, and what refuses them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from armillary.base.errors import InputError
from armillary.workload.generate import generate
from armillary.workload.layers.layer import Step
from armillary.workload.layers.of_model import inference_layers, layers_of
from armillary.workload.models import flops, load_model, parameters
from armillary.workload.models.decoder_parts import Attention, Experts, Linear, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

KINDS = ("gated-delta", "mamba-2")


def linear(kind: str = "gated-delta", **more: Any) -> Linear:
    sizes = {"heads": 8, "key_heads": 4, "key_size": 16, "value_size": 8, "chunk": 32}
    return Linear.model_validate({"kind": kind, **sizes, **more})


def model(**more: Any) -> Decoder:
    usual = {
        "name": "mixed", "layers": 4, "hidden": 64, "vocabulary": 128, "context": 64, "tied": False, "norm": "rms",
        "activation": "swiglu", "attention": Attention(heads=4), "mlp": Mlp(size=96), "linear": linear(),
        "full_every": 4,
    }  # fmt: skip
    return Decoder.model_validate(usual | more)


def plan(**more: Any) -> Plan:
    return Plan.model_validate({"ranks": 1, "batch": 1, **more})


def test_of_every_so_many_layers_one_has_attention() -> None:
    found = model(layers=8)
    assert [found.mixes(layer) for layer in range(8)] == ["linear", "linear", "linear", "attention"] * 2
    names = [
        name for name in generate(found, plan()).graphs[0].names() if name in ("core.attend", "mixer.scan")
    ]
    # Forward and backward.
    assert names.count("core.attend") == 2 * 2 and names.count("mixer.scan") == 2 * 6


def test_a_layout_has_layers_of_one_block() -> None:
    experts = Experts(count=4, top_k=2, size=32)
    found = model(layers=5, layout="ME*-M", full_every=None, experts=experts)
    made = layers_of(found, plan())[1:-1]
    heads = [{step.name.split(".")[0] for step in layer.forward} for layer in made]
    assert [("mixer" in each, "experts" in each, "core" in each, "mlp" in each) for each in heads] == [
        (True, False, False, False), (False, True, False, True), (False, False, True, False),
        (False, False, False, True), (True, False, False, False),
    ]  # fmt: skip
    # Equal layers are one object, and one norm stands before each block.
    assert made[0] is made[4]
    norms = found.hidden * 6
    assert parameters(found).norms == norms


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_counts_are_those_of_the_layers(kind: str, data: st.DataObject) -> None:
    heads = data.draw(st.sampled_from((1, 2, 4)))
    own = linear(
        kind,
        key_heads=heads,
        heads=heads * data.draw(st.sampled_from((1, 2))),
        conv=data.draw(st.integers(1, 5)),
    )
    layers = data.draw(st.integers(1, 6))
    found = model(layers=layers, linear=own, full_every=data.draw(st.integers(2, 4)))
    made = layers_of(found, plan(sequence=32, batch=2, microbatch=2))
    assert sum(sum(layer.parameters.values()) for layer in made) == parameters(found).total
    counted = flops(found, 2, 32)
    assert sum(layer.flops for layer in made) == counted.training
    # By hand: two GEMMs, a convolution, and numbers of heads.
    inputs = 2 * own.key_heads * 16 + 2 * own.heads * 8 + own.heads * (2 if kind == "gated-delta" else 1)
    linears = sum(found.mixes(layer) == "linear" for layer in range(layers))
    assert counted.parts.get("linear projections", 0) == linears * 2 * 64 * 64 * (inputs + own.heads * 8)


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_of_tp_share_the_heads(kind: str) -> None:
    found = model(linear=linear(kind))
    whole, half = (
        generate(found, plan(ranks=tp, parallel={"tp": tp})).graphs[0].ints("num_ops", 0) for tp in (1, 2)
    )
    names = generate(found, plan()).graphs[0].names()
    scans = [at for at, name in enumerate(names) if name == "mixer.scan"]
    shared = [
        at
        for at, name in enumerate(generate(found, plan(ranks=2, parallel={"tp": 2})).graphs[0].names())
        if name == "mixer.scan"
    ]
    assert sum(whole[scans]) == 2 * sum(half[shared])


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_moves_the_state_and_a_prompt_its_tokens(kind: str) -> None:
    found, own = model(linear=linear(kind)), linear(kind)
    held = 4 * own.heads * own.key_size * own.value_size
    served = plan(serve={"prompt": 8})

    def scan(tokens: int, batch: int, context: int = 64) -> Step:
        layer = inference_layers(found, served, tokens=tokens, context=context, batch=batch)[1]
        return next(step for step in layer.forward if step.name in ("mixer.scan", "mixer.update"))

    one, many = scan(1, 1), scan(1, 6)
    assert (one.name, scan(8, 1).name) == ("mixer.update", "mixer.scan")
    # Each sequence has a state of its own, which is read and written, whatever is before it.
    assert 2 * held < one.bytes < 3 * held and many.bytes == 6 * one.bytes
    assert scan(1, 1, 7).bytes == one.bytes
    assert scan(32, 1).bytes == 4 * scan(8, 1).bytes == 4 * scan(4, 2).bytes
    # What is kept does not grow with the sequence, but with their number.
    kept = [
        inference_layers(found, served, tokens=1, context=c, batch=b)[1].cache for c, b in ((9, 1), (64, 3))
    ]
    assert kept[1] == 3 * kept[0] and held < kept[0] < 2 * held


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"parallel": {"tp": 8}, "ranks": 8}, "linear key_heads 4"),
        ({"parallel": {"cp": 2}, "ranks": 2}, "cp 2: 'mixed' has linear layers"),
        ({"lora": {"rank": 2}}, "lora of 'mixed': it has linear layers"),
    ],
)
def test_what_it_cannot_is_refused(more: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        generate(model(attention=Attention(heads=8), mlp=Mlp(size=96)), plan(**more))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"full_every": None}, "expected linear with full_every"),
        ({"linear": None}, "expected linear with full_every"),
        ({"layout": "MM*", "full_every": None}, "a layout of 3 for 4 layers"),
        ({"layout": "MX*-", "full_every": None}, "got 'X' in layout"),
        ({"layout": "ME*-", "full_every": None}, "expected experts: a mixture of experts"),
        ({"layout": "MM*-"}, "expected no full_every"),
        ({"linear": {**linear().model_dump(), "heads": 6}}, "got 6 heads for 4 key_heads"),
    ],
)
def test_a_model_is_whole(more: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        model(**more)


def test_presets_cost_less_than_attention_on_long_sequences() -> None:
    for name in ("qwen3-next-80b-a3b", "nemotron-3-nano"):
        found = load_model(name)
        short, long = (flops(found, 1, sequence).parts for sequence in (4096, 65536))
        assert long["linear states"] == 16 * short["linear states"]
        assert long["attention scores"] == 256 * short["attention scores"]
