"""Counts and operations against a list of every tensor and every GEMM, for random decoders."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.workload.models import Decoder, flops, layer_flops, load_model, parameters, read_model

small = st.integers(1, 6)


@st.composite
def decoders(draw: st.DrawFn) -> Decoder:
    """Return any small decoder."""
    kv_heads, size = draw(small), draw(small)
    heads = kv_heads * draw(st.integers(1, 3))
    attention = {"heads": heads, "kv_heads": kv_heads, "head_size": size}
    attention |= {"bias": draw(st.sampled_from(("none", "qkv", "all"))), "qk_norm": draw(st.booleans())}
    if draw(st.booleans()):
        attention = {"heads": heads, "latent": {"query_rank": draw(st.none() | small)}}
        attention["latent"] |= {
            key: draw(small) for key in ("kv_rank", "plain_size", "rotary_size", "value_size")
        }
    if draw(st.booleans()):
        attention |= {"window": draw(small), "full_layers": draw(st.integers(0, 3))}
    data = {
        "kind": "decoder",
        "name": "random",
        "layers": draw(small),
        "hidden": draw(small),
        "vocabulary": draw(small),
        "context": draw(st.integers(1, 9)),
        "learned_positions": draw(st.none() | st.integers(9, 12)),
        "tied": draw(st.booleans()),
        "norm": draw(st.sampled_from(("rms", "layer"))),
        "activation": draw(st.sampled_from(("gelu", "relu", "swiglu", "geglu"))),
        "attention": attention,
        "mlp": {"size": draw(small), "bias": draw(st.booleans())},
    }
    if draw(st.booleans()):
        count = draw(small)
        data["experts"] = {
            "count": count,
            "top_k": draw(st.integers(1, count)),
            "size": draw(small),
            "dense_first": draw(st.integers(0, 3)),
            "every": draw(st.integers(1, 3)),
            "bias": draw(st.booleans()),
            "router_bias": draw(st.booleans()),
        }
        if draw(st.booleans()):
            data["experts"] |= {
                "shared": draw(small),
                "shared_size": draw(small),
                "shared_gate": draw(st.booleans()),
            }
    model = read_model(data)
    assert isinstance(model, Decoder)
    return model


def linear(inputs: int, outputs: int, bias: bool) -> Iterator[tuple[int, ...]]:
    yield (outputs, inputs)
    if bias:
        yield (outputs,)


def projections(model: Decoder) -> Iterator[tuple[int, int, bool]]:
    """Yield inputs, outputs and bias of the projections of an attention layer."""
    own, hidden = model.attention, model.hidden
    if latent := own.latent:
        query = own.heads * (latent.plain_size + latent.rotary_size)
        if latent.query_rank:
            yield hidden, latent.query_rank, False
        yield latent.query_rank or hidden, query, False
        yield hidden, latent.kv_rank + latent.rotary_size, False
        yield latent.kv_rank, own.heads * (latent.plain_size + latent.value_size), False
        yield own.heads * latent.value_size, hidden, False
        return
    for heads in (own.heads, own.kv_heads, own.kv_heads):
        yield hidden, heads * own.head_size, own.bias != "none"
    yield own.heads * own.head_size, hidden, own.bias == "all"


def block(model: Decoder, size: int) -> list[tuple[int, int]]:
    """Return inputs and outputs of the matrices of a feed-forward block."""
    into = 2 if model.activation in ("swiglu", "geglu") else 1
    return into * [(model.hidden, size)] + [(size, model.hidden)]


def tensors(model: Decoder, *, active: bool) -> Iterator[tuple[int, ...]]:
    """Yield the shape of every tensor; if `active` of those that one token meets."""
    hidden, own = model.hidden, model.attention
    yield (model.vocabulary, hidden)
    if model.learned_positions:
        yield (model.learned_positions, hidden)
    if not model.tied:
        yield (model.vocabulary, hidden)
    norms = [hidden]
    for layer in range(model.layers):
        norms += [hidden, hidden]
        if own.latent:
            norms += [size for size in (own.latent.query_rank, own.latent.kv_rank) if size]
        elif own.qk_norm:
            norms += [own.head_size, own.head_size]
        for inputs, outputs, bias in projections(model):
            yield from linear(inputs, outputs, bias)
        experts = model.experts
        if experts is None or layer < experts.dense_first or (layer + 1) % experts.every:
            for inputs, outputs in block(model, model.mlp.size):
                yield from linear(inputs, outputs, model.mlp.bias)
            continue
        yield from linear(hidden, experts.count, False)
        if experts.router_bias:
            yield (experts.count,)
        if experts.shared_gate:
            yield (1, hidden)
        sizes = (experts.top_k if active else experts.count) * [experts.size]
        sizes += experts.shared * [experts.shared_size]
        for size in sizes:
            for inputs, outputs in block(model, size):
                yield from linear(inputs, outputs, experts.bias)
    for size in norms:
        yield from linear(0, size, model.norm == "layer")
        yield (size,)


@given(decoders())
def test_parameters(model):
    counts = parameters(model)
    assert counts.total == sum(map(math.prod, tensors(model, active=False)))
    assert counts.active == sum(map(math.prod, tensors(model, active=True)))


def multiply_adds(model: Decoder, sequence: int, causal: bool) -> tuple[int, int, int]:
    """Return those of everything, of the scores, and of the head, for one sample, token by token."""
    total = scores = 0
    own = model.attention
    key, value = own.head_size, own.head_size
    if own.latent:
        key, value = own.latent.plain_size + own.latent.rotary_size, own.latent.value_size
    for layer in range(model.layers):
        window = own.window if own.window and layer >= own.full_layers else sequence
        for query in range(sequence):
            total += sum(inputs * outputs for inputs, outputs, _ in projections(model))
            if causal:
                seen = sum(query - window < other <= query for other in range(sequence))
            else:
                seen = min(window, sequence)
            scores += own.heads * seen * (key + value)
            experts = model.experts
            sizes = [model.mlp.size] if model.mlp else []
            if model.has_experts(layer):
                total += model.hidden * (experts.count + experts.shared_gate)
                sizes = experts.top_k * [experts.size] + experts.shared * [experts.shared_size]
            total += sum(inputs * outputs for size in sizes for inputs, outputs in block(model, size))
    head = sequence * model.hidden * model.vocabulary
    return total + scores + head, scores, head


@given(decoders(), st.integers(1, 3), st.integers(1, 9), st.booleans())
def test_operations(model, batch, sequence, causal):
    total, scores, head = (2 * batch * macs for macs in multiply_adds(model, sequence, causal))
    for policy, again in {"none": 0, "selective": scores, "full": total - head}.items():
        work = flops(model, batch, sequence, recomputation=policy, causal=causal)
        assert (work.forward, work.recomputed, work.training) == (total, again, 3 * total + again)
    layers = [layer_flops(model, layer, batch, sequence, causal=causal) for layer in range(model.layers)]
    assert sum(sum(parts.values()) for parts in layers) == total - head


@pytest.mark.parametrize("name", ["gpt-3-175b", "megatron-22b", "megatron-530b", "transformer-1t"])
@pytest.mark.parametrize("batch", [1, 1536])
def test_megatron_formulas(name, batch):
    """arXiv 2104.04473, eq. 2 and 3: parameters, and operations with full recomputation."""
    model = load_model(name)
    L, h, V, s = model.layers, model.hidden, model.vocabulary, model.context
    full = 96 * batch * s * L * h**2 * (1 + s / (6 * h) + V / (16 * L * h))
    assert flops(model, batch, recomputation="full").training == pytest.approx(full, rel=1e-12)
    # arXiv 2205.05198, appendix A: without recomputation.
    none = 72 * batch * s * L * h**2 * (1 + s / (6 * h) + V / (12 * h * L))
    assert flops(model, batch).training == pytest.approx(none, rel=1e-12)
    count = 12 * L * h**2 * (1 + 13 / (12 * h) + (V + s) / (12 * L * h))
    assert parameters(model).total == pytest.approx(count, rel=1e-6)


def test_capacity_computes_whole_buffers():
    model = load_model("mixtral-8x7b")
    experts = model.experts.model_copy(update={"capacity_factor": 1.25})
    capped = model.model_copy(update={"experts": experts})
    dropless, padded = (flops(each, 1, 101).parts["routed experts"] for each in (model, capped))
    slots = 8 * 32  # 101 tokens x 2 / 8 experts x 1.25 = 31.56 slots in each
    assert padded * 101 * 2 == dropless * slots


def test_torch_counts_the_same():
    """FlopCounterMode over the modules of a small Llama layer and head, on no device."""
    torch = pytest.importorskip("torch")
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

    model = read_model(
        {
            "kind": "decoder",
            "name": "small",
            "layers": 1,
            "hidden": 64,
            "vocabulary": 100,
            "context": 16,
            "tied": False,
            "norm": "rms",
            "activation": "swiglu",
            "attention": {"heads": 8, "kv_heads": 2},
            "mlp": {"size": 96},
        }
    )
    with torch.device("meta"):
        layers = {
            "query": nn.Linear(64, 64, bias=False),
            "key": nn.Linear(64, 16, bias=False),
            "value": nn.Linear(64, 16, bias=False),
            "out": nn.Linear(64, 64, bias=False),
            "gate": nn.Linear(64, 96, bias=False),
            "up": nn.Linear(64, 96, bias=False),
            "down": nn.Linear(96, 64, bias=False),
            "head": nn.Linear(64, 100, bias=False),
        }
        norms = [nn.RMSNorm(64) for _ in range(3)]
        table = nn.Embedding(100, 64)
        x = torch.empty(3, 16, 64)
        with FlopCounterMode(display=False) as counter:
            query = layers["query"](x).view(3, 16, 8, 8).transpose(1, 2)
            kv = [layers[name](x).view(3, 16, 2, 8).transpose(1, 2) for name in ("key", "value")]
            key, value = (each.repeat_interleave(4, dim=1) for each in kv)
            scores = torch.matmul(query, key.transpose(-1, -2)).softmax(-1)
            x = layers["out"](torch.matmul(scores, value).transpose(1, 2).reshape(3, 16, 64))
            x = layers["down"](layers["gate"](x) * layers["up"](x))
            layers["head"](x)
    assert flops(model, 3).forward == counter.get_total_flops()
    modules = [*layers.values(), *norms, table]
    assert parameters(model).total == sum(p.numel() for module in modules for p in module.parameters())
