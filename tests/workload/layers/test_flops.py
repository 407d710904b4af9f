"""Operations of all ranks together are those of the closed forms."""

from __future__ import annotations

from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.workload.layers.attention_core import pairs
from armillary.workload.layers.layer import Layer
from armillary.workload.layers.of_model import inference_layers, layers_of
from armillary.workload.models import Decoder, Vit, flops, layer_flops, load_model, preset_names, read_model
from armillary.workload.models.operations import SCORES
from armillary.workload.plan.schema import Plan

# Of sparse attention only inference is modelled.
DECODERS = [
    name
    for name in preset_names()
    if isinstance(model := load_model(name), Decoder) and not model.attention.sparse
]
PARTS = [(1, 1, 1), (2, 1, 1), (8, 1, 1), (1, 2, 1), (4, 2, 1), (2, 4, 8), (1, 8, 4), (8, 2, 2)]


def decoder(**changes: object) -> Decoder:
    model = read_model(
        {
            "kind": "decoder",
            "name": "small",
            "layers": 2,
            "hidden": 48,
            "vocabulary": 96,
            "context": 32,
            "tied": False,
            "norm": "rms",
            "activation": "swiglu",
            "attention": {"heads": 8, "kv_heads": 4, "head_size": 6},
            "mlp": {"size": 64},
        }
        | changes
    )
    assert isinstance(model, Decoder)
    return model


def plan(tp: int = 1, cp: int = 1, ep: int = 1, **changes: object) -> Plan:
    parallel = {"tp": tp, "cp": cp, "ep": ep} | changes.pop("parallel", {})  # type: ignore[operator]
    stage = tp * cp * ep
    return Plan.model_validate({"ranks": stage, "batch": 8 * stage, "parallel": parallel} | changes)


def step_flops(layer: Layer) -> tuple[int, int, int]:
    lists = layer.forward, layer.backward, layer.weight
    forward, backward, weight = (sum(step.flops for step in steps) for steps in lists)
    return forward, backward, weight


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(("tp", "cp", "ep"), PARTS)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_every_layer_of_every_preset(name: str, tp: int, cp: int, ep: int, recompute: str) -> None:
    model = load_model(name)
    assert isinstance(model, Decoder)
    ep = ep if model.experts else 1
    tp = gcd(tp, model.attention.heads if model.attention.latent else model.kv_heads)
    # States of linear layers pass along the sequence.
    cp = 1 if model.linear else cp
    causal = cp > 1
    for attention in ("flash", "unfused")[: 1 if cp > 1 else 2]:
        asked = plan(
            tp, cp, ep, sequence=1024, recompute=recompute, attention=attention, causal=causal, microbatch=2
        )
        made = layers_of(model, asked)
        assert len(made) == model.layers + 2
        for index in {0, 1, model.layers - 1}:
            parts = layer_flops(model, index, 2, 1024, causal=causal)
            again = parts.get(SCORES, 0) if attention == "unfused" else 0
            again = {"none": 0, "selective": again, "full": sum(parts.values())}[recompute]
            forward, backward, weight = step_flops(made[1 + index])
            assert tp * cp * forward == sum(parts.values())
            assert tp * cp * (backward + weight) == 2 * sum(parts.values()) + again


@pytest.mark.parametrize("name", DECODERS)
def test_whole_model(name: str) -> None:
    model = load_model(name)
    for recompute in ("none", "selective", "full"):
        made = layers_of(model, plan(sequence=512, attention="unfused", recompute=recompute))
        wanted = flops(model, 1, 512, recomputation=recompute)
        assert sum(layer.flops for layer in made) == wanted.training


@given(st.data())
def test_any_decoder(data: st.DataObject) -> None:
    tp, cp, ep = (data.draw(st.sampled_from((1, 2, 4))) for _ in range(3))
    etp = data.draw(st.sampled_from((1, 2, 4)))
    latent = {"query_rank": data.draw(st.none() | st.just(12)), "kv_rank": 10}
    latent |= {"plain_size": 6, "rotary_size": 2, "value_size": 4}
    window = data.draw(st.none() | st.integers(1, 40))
    attention: dict[str, object] = {"window": window, "full_layers": data.draw(st.integers(0, 2))}
    attention |= data.draw(
        st.sampled_from(
            [
                {"heads": 8, "latent": latent},
                {"heads": 8},
                {"heads": 8, "kv_heads": 4, "head_size": 6, "qk_norm": True, "bias": "qkv"},
            ]
        )
    )
    experts: dict[str, object] | None = {"count": 8, "top_k": data.draw(st.integers(1, 8)), "size": 16}
    assert experts is not None
    if data.draw(st.booleans()):
        experts |= {"shared": 3, "shared_size": 8, "shared_gate": True, "bias": True}
    if data.draw(st.booleans()):
        experts["dense_first"] = 1
    if data.draw(st.booleans()):
        experts["latent"] = 12
    if data.draw(st.booleans()):
        experts = None
        ep, etp = 1, tp
    model = decoder(
        attention=attention,
        experts=experts,
        activation=data.draw(st.sampled_from(("gelu", "swiglu"))),
        learned_positions=data.draw(st.none() | st.just(32)),
    )
    skew = data.draw(st.sampled_from((0.0, 0.7, 3.0))) if experts else 0.0
    causal = data.draw(st.booleans())
    parallel: dict[str, object] = {"etp": etp, "context": data.draw(st.sampled_from(("ring", "all-gather")))}
    recompute = data.draw(st.sampled_from(("none", "full")))
    asked = plan(tp, cp, ep, recompute=recompute, causal=causal, experts={"skew": skew}, parallel=parallel)
    ranks = [layers_of(model, asked, rank) for rank in range(ep)]
    for index in range(model.layers):
        parts = layer_flops(model, index, 1, causal=causal)
        total = sum(sum(step_flops(made[1 + index])) for made in ranks) * tp * cp
        wanted = (3 + (recompute == "full")) * sum(parts.values()) * ep
        # A windowed mask may cut scores into shares that are no whole number: at most 1 more, in 4 passes.
        slack = 4 * ep * tp * cp if causal and window and cp > 1 else 0
        assert wanted <= total <= wanted + slack


@given(st.integers(1, 12), st.integers(0, 12), st.none() | st.integers(1, 30), st.booleans())
def test_pairs_are_those_of_the_mask(queries: int, earlier: int, window: int | None, causal: bool) -> None:
    keys = queries + earlier
    # Without the mask a query sees as many keys as the window has, wherever they are.
    seen = [min(earlier + query + 1 if causal else keys, window or keys) for query in range(queries)]
    assert pairs(queries, keys, window, causal) == sum(seen)


def test_copies_of_few_kv_heads_are_computed_by_each_rank() -> None:
    model = decoder(attention={"heads": 8, "kv_heads": 2, "head_size": 6})
    made = layers_of(model, plan(8))[1]
    twice = 2 * 32 * 48 * 6 * 2  # operations of one key and one value head
    assert 8 * sum(s.flops for s in made.forward) == sum(layer_flops(model, 0, 1).values()) + 6 * twice


def test_slots_of_a_capacity_are_computed_whole() -> None:
    experts = {"count": 8, "top_k": 2, "size": 16, "capacity_factor": 1.3}
    made = layers_of(decoder(experts=experts), plan(2, 1, 4, experts={"skew": 2.0}))[1]
    wanted = layer_flops(decoder(experts=experts), 0, 1, 16)["routed experts"]  # a rank has 16 tokens
    found = [s.flops for s in made.forward if s.name.startswith("experts.") and s.flops]
    assert sum(found) == wanted


@pytest.mark.parametrize("name", ["vit-b-16", "vit-l-16", "vit-h-14"])
def test_vision(name: str) -> None:
    model = load_model(name)
    assert isinstance(model, Vit)
    parts = flops(model, 4).parts
    rest = sum(parts.values()) - parts["head"] - parts["embedding"]
    made = layers_of(model, plan(4, microbatch=4, parallel={"sequence": False}))
    assert 4 * sum(layer.flops for layer in made[1:-1]) == 3 * rest
    assert made[-1].flops == 3 * parts["head"]
    assert made[0].flops == 2 * parts["embedding"]  # images need no gradient


def test_inference_computes_a_forward_pass() -> None:
    model = decoder()
    made = inference_layers(model, plan(2, causal=True), tokens=20, context=20, batch=3)
    assert 2 * made[1].flops == sum(layer_flops(model, 0, 3, 20, causal=True).values())
    assert 2 * made[-1].flops == 2 * 3 * 48 * 96
    assert not any(layer.backward or layer.weight or layer.saved for layer in made)


def test_latent_attention_of_later_tokens() -> None:
    """Absorbed projections leave the same GEMMs of the weights, and scores over the latent vector."""
    latent = {"query_rank": 12, "kv_rank": 10, "plain_size": 6, "rotary_size": 2, "value_size": 4}
    model = decoder(attention={"heads": 8, "latent": latent})
    made = inference_layers(model, plan(2), tokens=1, context=30, batch=4)[1]
    weights = (
        48 * (12 + 10 + 2) * 2 + 12 * 8 * 8 + 10 * 8 * (6 + 4) + 8 * 4 * 48 + 3 * 48 * 64
    )  # down: on both
    scores = 30 * 8 * (10 + 2 + 10)
    assert 2 * made.flops == 2 * 4 * (weights + scores)
    assert made.cache == 4 * 30 * (10 + 2) * 2


def test_zigzag_needs_no_even_division() -> None:
    model = decoder(context=36, layers=1)
    made = layers_of(model, plan(1, 4, causal=True))[1]
    assert 4 * made.flops == 3 * sum(layer_flops(model, 0, 1, causal=True).values())
    with pytest.raises(InputError, match="sequence 30: expected a multiple of cp 4"):
        layers_of(model, plan(1, 4, sequence=30))
