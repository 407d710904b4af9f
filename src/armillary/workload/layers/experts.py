"""A mixture of experts on one rank, as Megatron-LM runs it: route, exchange tokens, grouped GEMMs, exchange back.

Tokens are sent over ep to the ranks of their experts (`dispatcher`), and there to all ranks of etp, which share every
expert by columns and rows. Without sequence parallelism ranks of tp have the same tokens; then etp must equal tp, and
their results are summed.
"""

from __future__ import annotations

from dataclasses import replace

from armillary.base.errors import InputError
from armillary.workload.layers.block import Block
from armillary.workload.layers.dispatcher import PROBABILITY, exchanges
from armillary.workload.layers.expert_load import Load, load
from armillary.workload.layers.layer import Step
from armillary.workload.layers.linear import (
    activation,
    gemms,
    made,
    mlp_blocks,
    projections,
    replicated,
)
from armillary.workload.layers.shard import Shard, check_divides
from armillary.workload.models.decoder_parts import Experts
from armillary.workload.models.schema import Decoder, Model
from armillary.workload.plan.experts import ExpertLoad
from armillary.workload.plan.schema import Plan

EXPERT_KEYS = {name: field.default for name, field in ExpertLoad.model_fields.items()}
"""Key of a plan about experts -> its value where nothing is said."""


def check_keys(plan: Plan, model: Model) -> None:
    """Check that a plan says nothing about experts of a model without.

    Raises:
        InputError: it does.
    """
    if isinstance(model, Decoder) and model.experts:
        return
    for name, absent in EXPERT_KEYS.items():
        value = getattr(plan.experts, name)
        if value != absent:
            expected = "none" if absent is None else absent if isinstance(absent, str) else f"{absent:g}"
            raise InputError(f"experts.{name} {value}: '{model.name}' has no experts, expected {expected}")


def check_experts(shard: Shard, model: Decoder) -> None:
    """Check that the experts can be divided over ep and etp.

    Raises:
        InputError: they cannot.
    """
    own = model.experts
    if own is None:
        if shard.ep > 1:
            raise InputError(f"ep {shard.ep}: '{model.name}' has no experts, expected 1")
        if shard.etp != shard.tp:
            raise InputError(f"etp {shard.etp}: '{model.name}' has no experts, expected none")
        return
    check_divides("ep", shard.ep, "experts", own.count)
    check_divides("etp", shard.etp, "size of an expert", own.size)
    if shard.domain and shard.ep > shard.domain:
        check_divides("experts.domain", shard.domain, "ep", shard.ep)
    if not shard.distinct and shard.etp != shard.tp:
        raise InputError(
            f"etp {shard.etp}: without sequence parallelism ranks of tp have the same tokens, expected tp {shard.tp} "
            "(or parallel.sequence: true)"
        )


def expert_blocks(shard: Shard, model: Decoder) -> list[Block]:
    """Return the blocks after the normed residual: router, routed experts, shared experts."""
    own, hidden = model.experts, model.hidden
    assert own is not None
    loads = load(own, shard.own, shard.ep, shard.expert_rank, shard.skew)
    router = own.count * (hidden + own.router_bias) + hidden * own.shared_gate
    columns = own.count + own.shared_gate
    choose = replicated(shard, "router", hidden, columns, precision=shard.high, parameters=router)
    choose = replace(choose, saved=choose.saved + shard.own * own.count * PROBABILITY)
    routed = _routed(shard, model, own, loads)
    if own.latent:
        # Every rank of tp has both whole (Megatron-core, `moe_latent_size`); the router reads the residual.
        to = replicated(shard, "latent.in", hidden, own.latent)
        routed = [to, *routed, replicated(shard, "latent.out", own.latent, hidden)]
    blocks = [choose, *routed]
    if own.shared:
        size = own.shared * (own.shared_size or own.size)
        shared = mlp_blocks(shard, hidden, size, gated=model.gated, bias=own.bias, name="shared", keep=False)
        # Several shared experts run as one wide block, but each has an output bias of its own.
        others = own.bias * (own.shared - 1) * hidden
        last = replace(
            shared[-1],
            parameters={"dp+cp": shared[-1].parameters["dp+cp"] + others},
            partial=shared[-1].partial + others * shard.sequence,
        )
        blocks += [*shared[:-1], last]
    return blocks


def _routed(shard: Shard, model: Decoder, own: Experts, loads: Load) -> list[Block]:
    hidden, element = model.expert_width, shard.element
    local, inner = own.count // shard.ep, own.size // shard.etp
    wide = inner * (2 if model.gated else 1)
    # Members of etp gather each other's tokens; without sequence parallelism they have the same ones.
    rows = loads.rows(local, shard.etp if shard.distinct else 1, shard.align)
    read = min(local, rows)  # kernels skip the weights of experts without tokens
    up = gemms(shard, rows, hidden, wide, count=read)
    down = gemms(shard, rows, inner, hidden, count=read)
    dispatch, combine = exchanges(shard, own, loads, hidden)
    return [
        dispatch,
        Block(
            "experts.up",
            up[:1],
            up[1:2],
            up[2:],
            {"edp": local * wide * (hidden + own.bias)},
            saved=rows * hidden * shard.operand,
            operand=rows * hidden * shard.operand,
            working=rows * (2 * hidden + wide) * element,
            results=made(shard, rows, projections(inner, model.gated)),
            back=rows * (hidden + wide) * element,
        ),
        _active(shard, own, rows, wide, inner),
        Block(
            "experts.down",
            down[:1],
            down[1:2],
            down[2:],
            {"edp": local * hidden * (inner + own.bias)},
            saved=rows * inner * shard.operand,
            operand=rows * inner * shard.operand,
            working=rows * (2 * hidden + inner) * element,
            results=made(shard, rows, {"down": hidden}),
            back=rows * (hidden + inner) * element,
        ),
        *([_biased(shard, rows, hidden, local)] if own.bias and shard.training else []),
        combine,
    ]


def _active(shard: Shard, own: Experts, rows: int, wide: int, inner: int) -> Block:
    """Return the activation of the experts, of inputs that are held to a limit if the model has one.

    Megatron-core compiles only what follows the limit (``weighted_bias_quick_geglu_impl``): both halves of the input
    are clamped and joined by kernels of their own, and backward each has a mask, and their gradients are joined. The
    offset of the linear half is a number that the CPU copies to the device, which waits for what was issued.
    """
    block = activation(shard, "experts.activation", rows, wide, inner)
    if own.limit is None or not shard.training:
        return block
    whole = rows * wide * shard.element
    return replace(
        block,
        forward=(
            Step("clamp", bytes=2 * whole),
            Step("join", bytes=2 * whole),
            replace(block.forward[0], synchronises=True),
            *block.forward[1:],
        ),
        backward=(*block.backward, Step("mask", bytes=3 * whole), Step("join back", bytes=2 * whole)),
        saved=block.saved + whole,
        working=block.working + whole,
        # Its backward pass needs as much, as `activation` has it.
        back=block.working + whole,
    )


def _biased(shard: Shard, rows: int, hidden: int, local: int) -> Block:
    """Return the addition of the experts' biases to what they make, each expert's times the probability of a token.

    Megatron-core has no kernel for it (``TEGroupedMLP._apply_bias``): probabilities in fp32 widen the product and the
    sum, whose parts are copied into one tensor and made narrow again. The bias of the first GEMM is added by the
    activation's kernel.
    """
    count, element = rows * hidden, shard.element
    wide = 4 * count
    return Block(
        "experts.bias",
        (
            Step("product", bytes=wide, looped=local),
            Step("sum", bytes=2 * wide + count * element, looped=local),
            Step("join", bytes=2 * wide),
            Step("narrow", bytes=wide + count * element),
        ),
        # Gradients: made wide; of biases the sum over tokens, of probabilities that over columns, of two products that
        # are written and read; made narrow, and those of all experts joined.
        (
            Step("widen", bytes=wide + count * element),
            Step("products", bytes=4 * wide, looped=2 * local),
            Step("sums", bytes=2 * wide, looped=2 * local),
            Step("narrow", bytes=wide + count * element, looped=local),
            Step("join back", bytes=2 * count * element),
        ),
        working=2 * wide,
    )
