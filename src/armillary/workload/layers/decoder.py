"""The layers of a decoder-only transformer on one rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import Literal

from armillary.base.errors import InputError
from armillary.workload.layers.again import made_again
from armillary.workload.layers.attention import attention_blocks, cache_bytes
from armillary.workload.layers.block import Block, layer, recomputed
from armillary.workload.layers.embedding import embedding, head
from armillary.workload.layers.experts import check_experts, expert_blocks
from armillary.workload.layers.layer import Layer
from armillary.workload.layers.linear import mlp_blocks, norm, residual
from armillary.workload.layers.lora import check_lora, with_adapters
from armillary.workload.layers.mixer import check_mixer, mixer_blocks, state_bytes
from armillary.workload.layers.scaling import with_scaling
from armillary.workload.layers.shard import Shard, divisors, inference_shard, near, training_shard
from armillary.workload.layers.sparse import check_sparse
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan


@dataclass(frozen=True)
class Kind:
    """The properties in which layers of a model differ."""

    experts: bool
    window: int | None
    kept: bool = False
    """Whether it keeps all that recomputation of other layers drops."""
    mixes: Literal["attention", "linear", ""] = "attention"
    feeds: bool = True
    """Whether it has a feed-forward block, or experts."""

    @property
    def name(self) -> str:
        """For people."""
        words = ["experts"] * self.experts + ["window"] * (self.window is not None) + ["kept"] * self.kept
        words += ["linear"] * (self.mixes == "linear")
        # Layers of one block.
        words += ["mixer"] * (not self.feeds) + ["feed-forward"] * (not self.mixes and not self.experts)
        return " ".join([*words, "layer"])


def kind_of(model: Decoder, index: int) -> Kind:
    """Return the kind of layer `index`, counted from 0."""
    own = model.attention
    # The first `full_layers` are without the window.
    mixes, feeds = model.mixes(index), model.feeds(index)
    window = own.window if index >= own.full_layers and mixes == "attention" else None
    return Kind(feeds == "experts", window, mixes=mixes, feeds=bool(feeds))


def decoder_layers(model: Decoder, plan: Plan, expert_rank: int) -> list[Layer]:
    """Return embedding, layers and head of a training step.

    Raises:
        InputError: the model cannot be divided so.
    """
    sequence = plan.sequence or model.context
    _check_positions(model, sequence)
    check_width(plan.parallel.tp, model)
    shard = training_shard(plan, sequence, expert_rank, longest=model.learned_positions)
    check_experts(shard, model)
    check_mixer(shard, model)
    check_sparse(shard, model)
    if plan.lora:
        check_lora(model, plan.lora)
    return _all(shard, model, shares_table=model.tied and plan.parallel.pp == 1)


def decoder_inference(model: Decoder, plan: Plan, tokens: int, context: int, batch: int) -> list[Layer]:
    """Return embedding, layers and head of an inference pass, which makes one token per sequence.

    Raises:
        InputError: the model cannot be divided so.
    """
    _check_positions(model, context, "prompt and answer of")
    check_width(plan.parallel.tp, model)
    # Engines reduce after each row-parallel GEMM; only experts whole on a rank need the tokens divided.
    divided = model.experts is not None and plan.parallel.etp not in (None, plan.parallel.tp)
    shard = inference_shard(plan, tokens, context, batch, divided=divided)
    check_experts(shard, model)
    check_mixer(shard, model)
    return _all(shard, model, shares_table=model.tied and plan.parallel.pp == 1)


def transformer_layer(shard: Shard, model: Decoder, kind: Kind, *, qkv_bias: bool | None = None) -> Layer:
    """Return a layer: norm, attention, residual; norm, feed-forward block, residual.

    Args:
        shard: The share of this rank.
        model: The model.
        kind: Of the layer.
        qkv_bias: Whether input projections of attention have one; None: as the model says.
    """
    if kind.kept:
        shard = replace(shard, recompute="none")
    blocks: list[Block] = []
    if kind.mixes:
        blocks += _mixing(shard, model, kind, qkv_bias)
    if kind.feeds:
        blocks += _feeding(shard, model, kind)
    hidden = model.hidden
    blocks = with_scaling(shard, with_adapters(shard, blocks))
    boundary = shard.own * hidden * shard.element
    cache = 0
    if not shard.training and kind.mixes:
        of_tokens = kind.mixes == "attention"
        cache = cache_bytes(shard, model, kind.window) if of_tokens else state_bytes(shard, model)
    made = layer(kind.name, shard, blocks, boundary, cache, made_again(shard, blocks))
    if not shard.training or shard.recompute != "full":
        return made
    # Nothing of the backward pass works on what the last GEMM and residual make.
    idle = (1 if kind.experts else 2) if shard.early_stop else 0
    return recomputed(made, shard, blocks[: len(blocks) - idle], boundary)


def _mixing(shard: Shard, model: Decoder, kind: Kind, qkv_bias: bool | None) -> list[Block]:
    """Return norm, attention or a linear mixer, and residual."""
    hidden, bias = model.hidden, model.attention.bias
    mixer = (
        mixer_blocks(shard, model)
        if kind.mixes == "linear"
        else attention_blocks(
            shard,
            model,
            kind.window,
            qkv_bias=bias != "none" if qkv_bias is None else qkv_bias,
            out_bias=bias == "all",
        )
    )
    return [
        norm(shard, "attention.norm", hidden, hidden * (2 if model.norm == "layer" else 1)),
        *mixer,
        residual(shard, "attention.residual", hidden),
    ]


def _feeding(shard: Shard, model: Decoder, kind: Kind) -> list[Block]:
    """Return norm, feed-forward block or experts, and residual."""
    hidden = model.hidden
    blocks = [norm(shard, "mlp.norm", hidden, hidden * (2 if model.norm == "layer" else 1))]
    if kind.experts:
        blocks += expert_blocks(shard, model)
    else:
        assert model.mlp is not None
        own = model.mlp
        blocks += mlp_blocks(shard, hidden, own.size, gated=model.gated, bias=own.bias)
    return [*blocks, residual(shard, "mlp.residual", hidden)]


def _all(shard: Shard, model: Decoder, *, shares_table: bool) -> list[Layer]:
    kinds = [kind_of(model, index) for index in range(model.layers)]
    if shard.recompute != "none" and shard.recompute_every > 1:
        # torchtitan counts layers from 1: of every two the second is recomputed.
        kinds = [replace(kind, kept=bool((at + 1) % shard.recompute_every)) for at, kind in enumerate(kinds)]
    # Layers of one kind are one object, so that everything downstream does its work once.
    made = {kind: transformer_layer(shard, model, kind) for kind in dict.fromkeys(kinds)}
    first, last = embedding(shard, model), head(shard, model, shares_table=shares_table)
    return [first, *(made[kind] for kind in kinds), last]


def _check_positions(model: Decoder, sequence: int, what: str = "sequence") -> None:
    rows = model.learned_positions
    if rows is not None and sequence > rows:
        raise InputError(f"{what} {sequence}: expected at most {rows}, the learned positions")


def check_width(tp: int, model: Decoder) -> None:
    """Check that ranks of tp can divide heads and feed-forward blocks.

    Raises:
        InputError: they cannot; it names the nearest tp that divides them all.
    """
    own, experts = model.attention, model.experts
    sizes = {"heads": own.heads}
    if model.mlp and any(model.feeds(index) == "mlp" for index in range(model.layers)):
        sizes["mlp size"] = model.mlp.size
    if experts and experts.shared:
        sizes["size of shared experts"] = experts.shared * (experts.shared_size or experts.size)
    # Key heads may be fewer than ranks: then several ranks share one, which also works out evenly.
    kv = own.heads if own.latent else model.kv_heads
    fits = [each for each in divisors(gcd(*sizes.values())) if kv % each == 0 or each % kv == 0]
    for name, size in sizes.items():
        if size % tp:
            raise InputError(f"tp {tp}: expected a divisor of {name} {size} (nearest: {near(tp, fits)})")
    if tp not in fits:
        raise InputError(
            f"tp {tp}: expected a divisor or a multiple of kv_heads {kv} (nearest: {near(tp, fits)})"
        )
