"""The layers of a vision transformer on one rank: those of a decoder without mask, between patches and classes."""

from __future__ import annotations

from dataclasses import replace

from armillary.base.errors import InputError
from armillary.workload.layers.block import Block, layer
from armillary.workload.layers.decoder import Kind, check_width, transformer_layer
from armillary.workload.layers.experts import check_experts
from armillary.workload.layers.layer import Layer, Step
from armillary.workload.layers.linear import gemms, norm
from armillary.workload.layers.shard import Shard, training_shard
from armillary.workload.models.decoder_parts import Attention, Mlp
from armillary.workload.models.schema import Decoder, Vit
from armillary.workload.plan.schema import Plan


def vit_layers(model: Vit, plan: Plan, expert_rank: int) -> list[Layer]:
    """Return patches, layers and head of a training step.

    Raises:
        InputError: the model cannot be divided so, or the plan asks for what it has not.
    """
    if plan.causal:
        raise InputError(f"causal: '{model.name}' has no causal mask, expected false")
    if plan.recompute_every > 1:
        raise InputError(
            f"recompute_every {plan.recompute_every}: of '{model.name}' all layers are alike, expected 1"
        )
    tokens = model.patches + 1
    if plan.sequence not in (None, tokens):
        raise InputError(
            f"sequence {plan.sequence}: '{model.name}' has {tokens} tokens, expected that or none"
        )
    same = _as_decoder(model)
    check_width(plan.parallel.tp, same)
    shard = training_shard(plan, tokens, expert_rank, fixed=True)
    check_experts(shard, same)
    one = transformer_layer(shard, same, Kind(False, None), qkv_bias=model.qkv_bias)
    return [_patches(shard, model), *[one] * model.layers, _head(shard, model)]


def _as_decoder(model: Vit) -> Decoder:
    """Return the decoder that has the same layers."""
    tokens = model.patches + 1
    return Decoder(
        name=model.name,
        layers=model.layers,
        hidden=model.hidden,
        vocabulary=max(1, model.classes),
        context=tokens,
        learned_positions=tokens,
        tied=True,
        norm="layer",
        activation="gelu",
        attention=Attention(heads=model.heads, bias="all"),
        mlp=Mlp(size=model.mlp, bias=True),
    )


def _patches(shard: Shard, model: Vit) -> Layer:
    """Return the projection of patches, without a gradient of the image; ranks of tp each compute their own tokens.

    Its operations are spread evenly over ranks that share the tokens, and rounded up.
    """
    hidden, element = model.hidden, shard.element
    pixels = model.channels * model.patch**2
    share = shard.cp * (shard.tp if shard.sequence else 1)
    # Of patches alone: the class token is a parameter and needs no projection.
    rows = -(-shard.batch * model.patches // share)
    gemm, _, weight = gemms(shard, rows, pixels, hidden)
    held = shard.own * hidden * element
    mask = shard.own * hidden if shard.dropout else 0
    parameters = hidden * (pixels + 1 + 1 + model.patches + 1)  # bias, class token, positions
    block = Block(
        "patches",
        (gemm, Step("positions", bytes=2 * held + mask)),
        (Step("dropout", bytes=2 * held + mask),) if mask else (),
        # There is no input gradient to wait for.
        (replace(weight, after=None),),
        {"dp+cp": parameters},
        parameters * shard.sequence,
        saved=rows * pixels * shard.operand + mask,
        working=held,
    )
    return layer("embedding", shard, [block], held)


def _head(shard: Shard, model: Vit) -> Layer:
    """Return the final norm, and pooler and classifier of the class token, which every rank repeats."""
    hidden, size = model.hidden, shard.batch * shard.element
    blocks = [norm(shard, "norm", hidden, 2 * hidden)]
    for name, wanted, outputs in (
        ("pooler", model.pooler, hidden),
        ("classes", model.classes, model.classes),
    ):
        if wanted:
            gemm, back, weight = gemms(shard, shard.batch, hidden, outputs, precision=shard.high)
            blocks.append(
                Block(
                    name,
                    (gemm,),
                    (back,),
                    (weight,),
                    {"dp+cp": (hidden + 1) * outputs},
                    saved=hidden * size,
                    working=(hidden + outputs) * size,
                )
            )
    return layer("head", shard, blocks, 0)
