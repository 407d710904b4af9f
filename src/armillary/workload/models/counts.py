"""Exact parameter counts, by part."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import singledispatch
from itertools import pairwise

from armillary.workload.models.resnet import convolutions, features
from armillary.workload.models.schema import Decoder, Dlrm, Gnmt, Model, Resnet, Stack, Vit


@dataclass(frozen=True)
class Parameters:
    """Trainable parameters of a model by part.

    Attributes:
        embedding: Tables of tokens, positions, patches, classes or features.
        attention: Projections with their biases.
        linear: Linear mixers in place of attention.
        mlp: Dense blocks.
        experts: Routed and shared experts.
        router: Weights and biases that choose experts, and gates of shared ones.
        convolution: Convolutions.
        recurrent: LSTM layers.
        norms: Weights and biases of norms.
        head: Output layer; 0 if it is the embedding.
        idle: Those of `experts` that one token does not visit.
    """

    embedding: int = 0
    attention: int = 0
    linear: int = 0
    mlp: int = 0
    experts: int = 0
    router: int = 0
    convolution: int = 0
    recurrent: int = 0
    norms: int = 0
    head: int = 0
    idle: int = 0

    @property
    def parts(self) -> dict[str, int]:
        """Parameters by part, for the parts that the model has."""
        counts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: count for name, count in counts.items() if count and name != "idle"}

    @property
    def total(self) -> int:
        """All parameters."""
        return sum(self.parts.values())

    @property
    def active(self) -> int:
        """Parameters in use for one token: all except idle experts; the whole embedding counts."""
        return self.total - self.idle


def parameters(model: Model) -> Parameters:
    """Count the parameters of a model, exactly."""
    return _count(model)


@singledispatch
def _count(model: Model) -> Parameters:
    raise TypeError(f"not a model: {model!r}")


@_count.register
def _decoder(model: Decoder) -> Parameters:
    hidden, norm = model.hidden, 2 if model.norm == "layer" else 1
    attention, small_norms = _attention(model)
    every = range(model.layers)
    mixers, feeds = [model.mixes(layer) for layer in every], [model.feeds(layer) for layer in every]
    moe, dense, full = feeds.count("experts"), feeds.count("mlp"), mixers.count("attention")
    projections = 3 if model.gated else 2
    mlp, linear = model.mlp, model.linear
    experts = routed = shared = router = idle = 0
    if model.experts:
        own = model.experts
        routed = _block(model.expert_width, own.size, projections, own.bias)
        shared = own.shared * _block(hidden, own.shared_size or own.size, projections, own.bias)
        router = own.count * (hidden + own.router_bias) + hidden * own.shared_gate
        # A token visits top_k routed experts and all shared ones.
        experts, idle = own.count * routed + shared, (own.count - own.top_k) * routed
        experts += 2 * hidden * (own.latent or 0)
    # One norm before each block, and the final one.
    norms = sum(map(bool, (*mixers, *feeds))) + 1
    return Parameters(
        embedding=hidden * (model.vocabulary + (model.learned_positions or 0)),
        attention=full * attention,
        linear=mixers.count("linear") * (hidden * (linear.inputs + linear.values) + linear.small)
        if linear
        else 0,
        mlp=dense * _block(hidden, mlp.size, projections, mlp.bias) if mlp else 0,
        experts=moe * experts,
        router=moe * router,
        # Besides the small ones inside attention.
        norms=norm * (norms * hidden + full * small_norms),
        head=0 if model.tied else hidden * model.vocabulary,
        idle=moe * idle,
    )


def _attention(model: Decoder) -> tuple[int, int]:
    """Return the parameters of the projections of a layer, and the elements that its inner norms scale."""
    own, hidden = model.attention, model.hidden
    if own.latent:
        latent, heads = own.latent, own.heads
        query = heads * (latent.plain_size + latent.rotary_size)
        rank = latent.query_rank
        index = 0
        if sparse := own.sparse:
            # Queries, one key with a norm of weight and bias, and a weight of each head.
            index = (rank or 0) * sparse.heads * sparse.size + hidden * (sparse.size + sparse.heads)
            index += 2 * sparse.size
        return (
            # Queries, down to the small vectors, up to keys and values, and the output, in this order.
            index
            + (hidden * query if rank is None else rank * (hidden + query))
            + hidden * (latent.kv_rank + latent.rotary_size)
            + latent.kv_rank * heads * (latent.plain_size + latent.value_size)
            + heads * latent.value_size * hidden,
            (rank or 0) + latent.kv_rank,
        )
    query, kv = own.heads * model.head_size, model.kv_heads * model.head_size
    bias = {"none": 0, "qkv": query + 2 * kv, "all": query + 2 * kv + hidden}[own.bias]
    sinks = own.heads * own.sinks
    normed = query + kv if own.qk_norm_over == "all" else 2 * model.head_size
    return hidden * ((3 if own.gate else 2) * query + 2 * kv) + bias + sinks, normed * own.qk_norm


def _block(hidden: int, size: int, projections: int, bias: bool) -> int:
    """Return the parameters of a feed-forward block: `projections` - 1 into `size`, one back."""
    return projections * hidden * size + bias * ((projections - 1) * size + hidden)


@_count.register
def _vit(model: Vit) -> Parameters:
    hidden = model.hidden
    tokens = model.patches + 1
    return Parameters(
        embedding=hidden * (model.channels * model.patch**2 + 1 + 1 + tokens),  # bias, class token, positions
        attention=model.layers * (4 * hidden**2 + hidden + 3 * hidden * model.qkv_bias),
        mlp=model.layers * _block(hidden, model.mlp, 2, True),
        norms=2 * hidden * (2 * model.layers + 1),
        # Pooler and classifier both have biases.
        head=model.pooler * (hidden**2 + hidden) + model.classes * (hidden + 1),
    )


@_count.register
def _resnet(model: Resnet) -> Parameters:
    found = [each for _, each in convolutions(model)]
    return Parameters(
        convolution=sum(each.weights for each in found),
        # Scale and shift of each channel; running statistics are not trained.
        norms=2 * sum(each.outputs for each in found),
        head=model.classes * (features(model) + 1),
    )


@_count.register
def _gnmt(model: Gnmt) -> Parameters:
    hidden = model.hidden
    # nn.LSTM has two biases for each of its four gates.
    layers = [*encoder_inputs(model), *decoder_inputs(model)]
    return Parameters(
        embedding=hidden * model.vocabulary * (1 if model.shared_embedding else 2),
        recurrent=sum(4 * hidden * (inputs + hidden + 2) for inputs in layers),
        attention=2 * hidden**2 + 2 * hidden + 1,  # query, key, score and its bias, scale
        head=model.vocabulary * (hidden + 1),
    )


def encoder_inputs(model: Gnmt) -> list[int]:
    """Return the input sizes of the encoder's LSTMs; the two directions of the first are two of them."""
    hidden = model.hidden
    return [hidden, hidden, 2 * hidden, *[hidden] * (model.encoder_layers - 2)]


def decoder_inputs(model: Gnmt) -> list[int]:
    """Return the input sizes of the decoder's LSTMs; later ones take the attention's context, too."""
    return [model.hidden, *[2 * model.hidden] * (model.decoder_layers - 1)]


@_count.register
def _dlrm(model: Dlrm) -> Parameters:
    def mlp(sizes: list[int]) -> int:
        return sum((inputs + model.bias) * outputs for inputs, outputs in pairwise(sizes))

    return Parameters(
        # Tables of unknown rows count 0; `summary.unknown_rows` says how many these are.
        embedding=sum(table.count * (table.rows or 0) * table.size for table in model.tables),
        mlp=mlp([model.dense_features, *model.bottom]) + mlp([model.top_inputs, *model.top]),
    )


@_count.register
def _stack(model: Stack) -> Parameters:
    gemms = [(layer.repeat, layer.gemm) for layer in model.layers if layer.gemm]
    images = [(layer.repeat, layer.conv2d) for layer in model.layers if layer.conv2d]
    return Parameters(
        mlp=sum(repeat * (each.k + each.bias) * each.n for repeat, each in gemms),
        convolution=sum(repeat * (each.weights + each.bias * each.outputs) for repeat, each in images),
    )
