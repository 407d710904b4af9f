"""Formulas of mixtures of experts, beside `plan_formulas`: what experts exchange, and all that a step moves."""

from __future__ import annotations

from collections import Counter
from math import ceil, comb

from .plan_formulas import Moved, Size, add, losses, norm_of_gradients, partial, pipeline, replicas


def exchanges(size: Size, layers: int) -> Moved:
    """Return what experts exchange: tokens there, results back, gradients there, gradients of tokens back."""
    found: Moved = Counter()
    mix, own = size.model.experts, size.plan.parallel
    assert mix
    etp, again = own.etp or own.tp, size.plan.recompute == "full"
    vector = size.model.hidden * size.element
    low = size.model.hidden * (1 if size.plan.numbers.compute in ("fp8", "fp4") else size.element)
    runs = size.stage * size.microbatches * layers
    slots = size.own * mix.top_k
    domain = size.plan.experts.domain
    if own.ep > 1 and domain and own.ep > domain:
        # Of groups a token chooses some, and of their experts any; a place (node or rank) within a group is missed
        # if its group is not chosen, or none of its experts is.
        reached = mix.count // mix.groups * mix.top_groups
        for axis_set, places in (("ep.across", own.ep // domain), ("ep.inside", own.ep)):
            part = mix.count // places
            chosen = mix.top_groups / mix.groups
            hit = places * chosen * (1 - comb(reached - part, mix.top_k) / comb(reached, mix.top_k))
            copies = round(size.own * hit)
            add(found, "all-to-all", axis_set, runs * (2 + again), copies * low)
            add(found, "all-to-all", axis_set, runs * (2 + again), copies * vector)
    elif own.ep > 1:
        add(found, "all-to-all", "ep", runs * (2 + again), slots * low)
        add(found, "all-to-all", "ep", runs * (2 + again), slots * vector)
    if size.divided and etp > 1:
        # Ranks that share experts gather the tokens of all of them, and reduce and scatter what they make.
        add(found, "all-gather", "etp", runs * (2 + again), slots * low)
        add(found, "reduce-scatter", "etp", runs * (2 + again), etp * slots * vector)
    elif size.tp > 1 and not size.divided:
        add(found, "all-reduce", "tp", runs * (2 + again), size.own * vector)
    return found


def mixture(size: Size) -> Moved:
    """Return all that a mixture of experts moves with replicas that hold whole weights, or ZeRO-1."""
    model, mix, tp, pp = size.model, size.model.experts, size.tp, size.plan.parallel.pp
    own, ep = model.attention, size.plan.parallel.ep
    assert mix
    etp, hidden, scale = size.plan.parallel.etp or tp, model.hidden, 2 if model.norm == "layer" else 1
    gated = 2 if model.activation in ("swiglu", "geglu") else 1
    moe = [model.has_experts(layer) for layer in range(model.layers)]
    if own.latent:
        one = own.latent
        width, rank = one.plain_size + one.rotary_size, one.query_rank
        assert rank
        down = hidden * (rank + one.kv_rank + one.rotary_size)
        small = scale * (rank + one.kv_rank)
        up = (rank * own.heads * width + one.kv_rank * own.heads * (one.plain_size + one.value_size)) // tp
        attention, alone = up + own.heads * one.value_size // tp * hidden + down + small, down + small
        rows = 0
    else:
        head, kv = own.head_size or hidden // own.heads, own.kv_heads or own.heads
        columns = (own.heads + 2 * kv) * head // tp
        heads = 2 * head * scale * own.qk_norm
        rows = hidden * (own.bias == "all")
        attention = (
            hidden * columns + own.heads * head // tp * hidden + heads + columns * (own.bias != "none") + rows
        )
        attention += own.heads // tp * own.sinks
        alone = heads * (tp > 1 and not size.divided) + (heads + rows) * size.divided
    router = mix.count * (hidden + mix.router_bias) + hidden * mix.shared_gate
    shared = mix.shared * (mix.shared_size or mix.size) // tp * hidden * (gated + 1)
    expert = mix.count // ep * (mix.size // etp * hidden * (gated + 1))
    expert += mix.count // ep * mix.bias * (gated * mix.size // etp + hidden)
    feed = [
        router + shared if has else hidden * model.mlp.size // tp * (gated + 1) if model.mlp else 0
        for has in moe
    ]
    partials = [
        (
            (2 * scale * hidden + (router if has else 0)) * size.divided
            + (alone if not own.latent or size.divided else 0)
        )
        for has in moe
    ]
    per = model.layers // pp
    tables = ceil(model.vocabulary / tp) * hidden
    parts, shares, whole = [], [], []
    for k in range(pp):
        which = range(k * per, (k + 1) * per)
        ends = tables * (k == 0) + (tables + scale * hidden) * (k == pp - 1)
        parts.append(sum(attention + 2 * scale * hidden + feed[i] for i in which) + ends)
        shares.append(sum(partials[i] for i in which) + scale * hidden * size.divided * (k == pp - 1))
        whole.append(sum(expert * moe[i] for i in which))
    found = exchanges(size, sum(moe)) + pipeline(size) + norm_of_gradients(size, ep > 1)
    found += replicas(size, parts, 2, "dp+cp", size.stage // tp, size.stage, [])
    found += replicas(size, whole, 2, "edp", size.stage // (etp * ep), size.stage, [])
    found += partial(size, shares, 1, size.stage)
    if tp == 1:
        return found
    # Attention as in a dense layer; an MLP as in one where the layer is dense or has shared experts.
    runs, again = size.stage * size.microbatches, size.plan.recompute == "full"
    mlps = sum(not has or bool(mix.shared) for has in moe)
    e = size.element
    inputs = [hidden] * model.layers
    if own.latent:
        assert own.latent.query_rank
        inputs = [own.latent.query_rank, own.latent.kv_rank] * model.layers
    beside = own.latent.rotary_size if own.latent else 0
    if size.divided:
        for at, width in enumerate(inputs):
            extra = beside if own.latent and at % 2 else 0
            add(found, "all-gather", "tp", runs * (1 + again), size.own * (width + extra) * e)
            add(found, "all-gather", "tp", runs, size.own * width * e)
            add(found, "reduce-scatter", "tp", runs, size.tokens * (width + extra) * e)
        rows_of = model.layers + mlps
        add(found, "reduce-scatter", "tp", runs * rows_of * (1 + again), size.tokens * hidden * e)
        add(found, "all-gather", "tp", runs * rows_of, size.own * hidden * e)
        add(found, "all-gather", "tp", runs * mlps * again, size.own * hidden * e)
        add(found, "all-gather", "tp", runs * mlps, size.own * hidden * e)
        add(found, "all-gather", "tp", runs * mlps, size.own * hidden * e)
        add(found, "reduce-scatter", "tp", runs * mlps, size.tokens * hidden * e)
        add(found, "all-gather", "tp", runs * 3, size.own * hidden * e)
        add(found, "reduce-scatter", "tp", runs * 2, size.tokens * hidden * e)
    else:
        calls = (model.layers + mlps) * (2 + again)
        add(found, "all-reduce", "tp", runs * (calls + 2), size.tokens * hidden * e)
    return found + losses(size)
