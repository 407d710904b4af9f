"""The layers of a decoder-only transformer on one rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from armillary.errors import InputError
from armillary.workload.layers.attention import attention_blocks, cache_bytes
from armillary.workload.layers.block import Block, layer, recomputed
from armillary.workload.layers.embedding import embedding, head
from armillary.workload.layers.experts import check_experts, expert_blocks
from armillary.workload.layers.layer import Layer
from armillary.workload.layers.mlp import mlp_blocks
from armillary.workload.layers.pointwise import norm, residual
from armillary.workload.layers.shard import Shard, check_divides, inference_shard, training_shard
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan


@dataclass(frozen=True)
class Kind:
    """How layers of a model differ."""

    experts: bool
    window: int | None

    @property
    def name(self) -> str:
        """For people."""
        words = ["experts"] * self.experts + ["window"] * (self.window is not None)
        return " ".join([*words, "layer"])


def kind_of(model: Decoder, index: int) -> Kind:
    """Return the kind of layer `index`, counted from 0."""
    own = model.attention
    return Kind(model.has_experts(index), own.window if index >= own.full_layers else None)


def decoder_layers(model: Decoder, plan: Plan, expert_rank: int) -> list[Layer]:
    """Return embedding, layers and head of a training step.

    Raises:
        InputError: the model cannot be divided so.
    """
    sequence = plan.sequence or model.context
    _check_positions(model, sequence)
    shard = training_shard(plan, sequence, expert_rank)
    _check(shard, model)
    shares = model.tied and plan.parallel.pp == 1
    middle = _middle(model, lambda kind: transformer_layer(shard, model, kind))
    return [embedding(shard, model), *middle, head(shard, model, shares_table=shares)]


def decoder_inference(model: Decoder, plan: Plan, tokens: int, context: int, batch: int) -> list[Layer]:
    """Return the same layers of a pass that makes a token for each sequence.

    Raises:
        InputError: the model cannot be divided so.
    """
    _check_positions(model, context)
    # Engines reduce after each row-parallel product; only experts whole on a rank need the tokens divided.
    divided = model.experts is not None and plan.parallel.etp not in (None, plan.parallel.tp)
    shard = inference_shard(plan, tokens, context, batch, divided=divided)
    _check(shard, model)
    shares = model.tied and plan.parallel.pp == 1
    middle = _middle(model, lambda kind: transformer_layer(shard, model, kind))
    return [embedding(shard, model), *middle, head(shard, model, shares_table=shares)]


def transformer_layer(shard: Shard, model: Decoder, kind: Kind, *, qkv_bias: bool | None = None) -> Layer:
    """Return a layer: norm, attention, residual; norm, feed-forward block, residual.

    Args:
        shard: The share of this rank.
        model: The model.
        kind: Of the layer.
        qkv_bias: Whether input projections of attention have one; None: as the model says.
    """
    hidden, bias = model.hidden, model.attention.bias
    weights = hidden * (2 if model.norm == "layer" else 1)
    blocks: list[Block] = [
        norm(shard, "attention.norm", hidden, weights),
        *attention_blocks(
            shard,
            model,
            kind.window,
            qkv_bias=bias != "none" if qkv_bias is None else qkv_bias,
            out_bias=bias == "all",
        ),
        residual(shard, "attention.residual", hidden),
        norm(shard, "mlp.norm", hidden, weights),
    ]
    if kind.experts:
        blocks += expert_blocks(shard, model)
    else:
        assert model.mlp is not None
        own = model.mlp
        blocks += mlp_blocks(shard, hidden, own.size, gated=model.gated, bias=own.bias)
    blocks.append(residual(shard, "mlp.residual", hidden))
    boundary = shard.own * hidden * shard.element
    cache = 0 if shard.training else cache_bytes(shard, model, kind.window)
    made = layer(kind.name, shard, blocks, boundary, cache)
    return recomputed(made, boundary) if shard.training and shard.recompute == "full" else made


def _middle(model: Decoder, make: Callable[[Kind], Layer]) -> list[Layer]:
    kinds = [kind_of(model, index) for index in range(model.layers)]
    made = {kind: make(kind) for kind in dict.fromkeys(kinds)}
    return [made[kind] for kind in kinds]


def _check_positions(model: Decoder, sequence: int) -> None:
    rows = model.learned_positions
    if rows is not None and sequence > rows:
        raise InputError(f"sequence {sequence}: expected at most {rows}, the learned positions")


def _check(shard: Shard, model: Decoder) -> None:
    kv = model.attention.heads if model.attention.latent else model.kv_heads
    sizes = {"heads": model.attention.heads}
    if model.mlp and not all(model.has_experts(index) for index in range(model.layers)):
        sizes["mlp size"] = model.mlp.size
    check_divides("tp", shard.tp, sizes, lambda tp: kv % tp == 0 or tp % kv == 0)
    check_experts(shard, model)
