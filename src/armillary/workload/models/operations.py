"""Operations of a forward pass and a training step, in closed form: two per multiply-add of every GEMM.

A backward pass takes twice the forward pass (the gradients of inputs and of weights). Element-wise work, norms, softmax
and table lookups are not counted: they are bound by memory, and the published formulas leave them out.
For a GPT with full recomputation the sum is that of Megatron-LM (arXiv 2104.04473, eq. 3),
96·B·s·l·h²·(1 + s/6h + V/16lh).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import singledispatch
from itertools import pairwise
from typing import Literal, get_args

from armillary.base.errors import InputError, nearest, one_of
from armillary.workload.models.counts import decoder_inputs, encoder_inputs
from armillary.workload.models.resnet import convolutions, features
from armillary.workload.models.schema import Decoder, Dlrm, Gnmt, Model, Resnet, Stack, Vit

Recomputation = Literal["none", "selective", "full"]

SCORES = "attention scores"
HEAD = "head"


@dataclass(frozen=True)
class Flops:
    """Operations of one batch.

    Attributes:
        parts: Operations of the forward pass, by part of the model.
        recomputed: Operations that the backward pass repeats.
    """

    parts: dict[str, int]
    recomputed: int

    @property
    def forward(self) -> int:
        """Operations of a forward pass."""
        return sum(self.parts.values())

    @property
    def backward(self) -> int:
        """Operations of a backward pass, without recomputation."""
        return 2 * self.forward

    @property
    def training(self) -> int:
        """Operations of a training step: forward, backward and recomputation, without the optimizer."""
        return self.forward + self.backward + self.recomputed


def flops(
    model: Model,
    batch: int,
    sequence: int | None = None,
    *,
    recomputation: Recomputation = "none",
    causal: bool = False,
) -> Flops:
    """Count the operations of one batch.

    Args:
        model: The model.
        batch: Samples.
        sequence: Tokens per sample of a decoder or translator (source and target); if None its own default.
        recomputation: ``selective`` does the attention scores and their GEMM with the values again, ``full``
            everything but the head.
        causal: Count only the scores that a causal mask keeps, as fused kernels do; published formulas count all.

    Raises:
        InputError: a size is not positive, a sequence is longer than the learned positions, or a sequence, causal
            mask or selective recomputation is asked of a model that has none.
    """
    if recomputation not in (choices := get_args(Recomputation)):
        hint = nearest(recomputation, choices)
        raise InputError(f"recomputation '{recomputation}': expected {one_of(choices)}{hint}")
    if causal and not isinstance(model, Decoder):
        raise InputError(f"causal: a model of kind '{model.kind}' has no causal mask")
    # Parts of a model without them, such as experts of a dense one, are left out.
    counted = _forward(model, *_sizes(model, batch, sequence), causal)
    parts = {name: count for name, count in counted.items() if count}
    if recomputation == "selective" and SCORES not in parts:
        raise InputError(
            f"selective recomputation of '{model.name}': it has no attention scores, expected none or full"
        )
    again = {
        "none": 0,
        "selective": parts.get(SCORES, 0),
        # The head's backward pass follows its forward pass at once, so there is nothing to repeat.
        "full": sum(count for part, count in parts.items() if part != HEAD),
    }
    return Flops(parts, again[recomputation])


def layer_flops(
    model: Decoder, layer: int, batch: int, sequence: int | None = None, *, causal: bool = False
) -> dict[str, int]:
    """Count the operations of the forward pass of one layer of a decoder, by part.

    Raises:
        InputError: no such layer, or not a positive number.
    """
    if not 0 <= layer < model.layers:
        raise InputError(f"layer {layer} of '{model.name}': expected 0 to {model.layers - 1}")
    batch, sequence = _sizes(model, batch, sequence)
    return _layer(model, layer, batch, sequence, causal)


def default_sequence(model: Model) -> int | None:
    """Return the tokens per sample that a model is made for; None if it takes no tokens."""
    if isinstance(model, Decoder):
        return model.context
    return model.sequence if isinstance(model, Gnmt) else None


def _sizes(model: Model, batch: int, sequence: int | None) -> tuple[int, int]:
    if batch < 1:
        raise InputError(f"batch {batch}: expected at least 1")
    default = default_sequence(model)
    if default is None:
        if sequence is not None:
            raise InputError(f"sequence {sequence}: a model of kind '{model.kind}' has none")
        return batch, 1
    sequence = default if sequence is None else sequence
    if sequence < 1:
        raise InputError(f"sequence {sequence}: expected at least 1")
    rows = model.learned_positions if isinstance(model, Decoder) else None
    if rows is not None and sequence > rows:
        raise InputError(f"sequence {sequence}: expected at most {rows}, the learned positions")
    return batch, sequence


@singledispatch
def _forward(model: Model, batch: int, sequence: int, causal: bool) -> dict[str, int]:
    raise TypeError(f"not a model: {model!r}")


@_forward.register
def _decoder(model: Decoder, batch: int, sequence: int, causal: bool) -> dict[str, int]:
    parts: Counter[str] = Counter()
    alike: dict[tuple[str, str, bool], list[int]] = {}
    for layer in range(model.layers):
        kind = (model.mixes(layer), model.feeds(layer), layer < model.attention.full_layers)
        alike.setdefault(kind, []).append(layer)
    # Layers of one kind have equal counts, so one of them is counted and multiplied.
    for layers in alike.values():
        for part, operations in _layer(model, layers[0], batch, sequence, causal).items():
            parts[part] += len(layers) * operations
    return dict(parts) | {HEAD: 2 * batch * sequence * model.hidden * model.vocabulary}


def _layer(model: Decoder, layer: int, batch: int, sequence: int, causal: bool) -> dict[str, int]:
    mixer = model.mixes(layer)
    parts = _attention(model, layer, batch, sequence, causal) if mixer == "attention" else {}
    if mixer == "linear":
        parts = _linear(model, batch * sequence)
    return parts | _feeds(model, layer, batch * sequence)


def _linear(model: Decoder, tokens: int) -> dict[str, int]:
    own = model.linear
    assert own is not None
    return {
        "linear projections": 2 * tokens * model.hidden * (own.inputs + own.values),
        "linear states": tokens * own.operations,
    }


def _attention(model: Decoder, layer: int, batch: int, sequence: int, causal: bool) -> dict[str, int]:
    own, hidden, tokens = model.attention, model.hidden, batch * sequence
    if own.latent:
        latent = own.latent
        key, value = latent.plain_size + latent.rotary_size, latent.value_size
        rank = latent.query_rank
        weights = hidden * own.heads * key if rank is None else rank * (hidden + own.heads * key)
        weights += hidden * (latent.kv_rank + latent.rotary_size)
        weights += latent.kv_rank * own.heads * (latent.plain_size + value) + own.heads * value * hidden
    else:
        key = value = model.head_size
        weights = hidden * key * ((3 if own.gate else 2) * own.heads + 2 * model.kv_heads)
    # A window applies after the first full layers.
    reach = own.window if layer >= own.full_layers else None
    index = 0
    if sparse := own.sparse:
        # Of each query, keys that are chosen, as many as a window has; before that, scores of all keys.
        reach = sparse.top
        rank = own.latent.query_rank if own.latent else None
        weights += (rank or 0) * sparse.heads * sparse.size + hidden * (sparse.size + sparse.heads)
        index = 2 * batch * _pairs(sequence, None, causal) * sparse.heads * sparse.size
    pairs = batch * _pairs(sequence, reach, causal)
    return {
        "attention projections": 2 * tokens * weights,
        SCORES: 2 * pairs * own.heads * (key + value) + index,
    }


def _feeds(model: Decoder, layer: int, tokens: int) -> dict[str, int]:
    kind, hidden = model.feeds(layer), model.hidden
    projections = 3 if model.gated else 2
    if kind == "mlp":
        assert model.mlp is not None
        return {"mlp": 2 * tokens * projections * hidden * model.mlp.size}
    experts = model.experts
    if not kind or experts is None:
        return {}
    slots = tokens * experts.top_k
    if experts.capacity_factor is not None:  # buffers of fixed size are computed whole
        slots = experts.count * -int(-experts.capacity_factor * slots // experts.count)
    parts = {
        "router": 2 * tokens * hidden * (experts.count + experts.shared_gate),
        "routed experts": 2 * slots * projections * model.expert_width * experts.size,
    }
    if experts.latent:
        parts["latent projections"] = 2 * tokens * 2 * hidden * experts.latent
    if experts.shared:
        size = experts.shared * (experts.shared_size or experts.size)
        parts["shared experts"] = 2 * tokens * projections * hidden * size
    return parts


def _pairs(sequence: int, window: int | None, causal: bool) -> int:
    """Return the number of (query, key) scores of a sample."""
    seen = min(sequence, window or sequence)
    # The first `seen` - 1 queries have fewer keys before them: 1, 2, ….
    return seen * sequence - (seen * (seen - 1) // 2 if causal else 0)


@_forward.register
def _vit(model: Vit, batch: int, sequence: int, causal: bool) -> dict[str, int]:
    hidden, layers, tokens = model.hidden, model.layers, model.patches + 1
    return {
        "embedding": 2 * batch * model.patches * model.channels * model.patch**2 * hidden,
        "attention projections": 2 * batch * layers * tokens * 4 * hidden**2,
        SCORES: 2 * batch * layers * 2 * tokens**2 * hidden,
        "mlp": 2 * batch * layers * tokens * 2 * hidden * model.mlp,
        HEAD: 2 * batch * (hidden * model.classes + hidden**2 * model.pooler),
    }


@_forward.register
def _resnet(model: Resnet, batch: int, sequence: int, causal: bool) -> dict[str, int]:
    macs = sum(each.weights * each.pixels for _, each in convolutions(model))
    return {"convolution": 2 * batch * macs, HEAD: 2 * batch * features(model) * model.classes}


@_forward.register
def _gnmt(model: Gnmt, batch: int, sequence: int, causal: bool) -> dict[str, int]:
    hidden, tokens = model.hidden, batch * sequence
    # Four gates of an LSTM cell, each on its input and its hidden state.
    gates = sum(4 * hidden * (inputs + hidden) for inputs in encoder_inputs(model) + decoder_inputs(model))
    return {
        "recurrent": 2 * tokens * gates,
        "attention projections": 2 * tokens * 2 * hidden**2,
        SCORES: 2 * tokens * sequence * 2 * hidden,
        HEAD: 2 * tokens * hidden * model.vocabulary,
    }


@_forward.register
def _dlrm(model: Dlrm, batch: int, sequence: int, causal: bool) -> dict[str, int]:
    bottom = pairwise([model.dense_features, *model.bottom])
    top = pairwise([model.top_inputs, *model.top])
    # All pairs, as the batched GEMM computes both triangles.
    dot = model.vectors**2 * model.bottom[-1] if model.interaction == "dot" else 0
    parts = {
        "bottom mlp": sum(inputs * outputs for inputs, outputs in bottom),
        "interaction": dot,
        "top mlp": sum(inputs * outputs for inputs, outputs in top),
    }
    return {name: 2 * batch * macs for name, macs in parts.items()}


@_forward.register
def _stack(model: Stack, batch: int, sequence: int, causal: bool) -> dict[str, int]:
    parts: Counter[str] = Counter()
    for number, layer in enumerate(model.layers):
        if layer.gemm:
            macs = layer.gemm.m * layer.gemm.n * layer.gemm.k
        else:
            assert layer.conv2d is not None
            macs = layer.conv2d.weights * layer.conv2d.pixels
        parts[layer.name or f"layer {number}"] += 2 * batch * layer.repeat * macs
    return dict(parts)
