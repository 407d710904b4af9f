"""Self-attention on one rank: multi-head, grouped, multi-query, latent."""

from __future__ import annotations

from dataclasses import replace

from armillary.trace.gemm import Gemm
from armillary.workload.layers.attention_core import Heads, core
from armillary.workload.layers.block import Block
from armillary.workload.layers.layer import Step
from armillary.workload.layers.linear import column, gather, norm, reduce, replicated, row
from armillary.workload.layers.shard import Shard
from armillary.workload.layers.sparse import chosen, index_blocks, key_bytes
from armillary.workload.models.decoder_parts import Latent
from armillary.workload.models.schema import Decoder


def heads_of(shard: Shard, model: Decoder, window: int | None) -> Heads:
    """Return the heads of a rank; with more ranks of tp than kv_heads, several ranks hold a copy of one."""
    own, heads = model.attention, model.attention.heads // shard.tp
    # Latent attention expands its small vector to a key and a value for every query head.
    if own.latent:
        latent = own.latent
        return Heads(heads, heads, latent.plain_size + latent.rotary_size, latent.value_size, window)
    return Heads(heads, max(1, model.kv_heads // shard.tp), model.head_size, model.head_size, window)


def attention_blocks(
    shard: Shard, model: Decoder, window: int | None, *, qkv_bias: bool, out_bias: bool
) -> list[Block]:
    """Return the blocks of attention, from the projections of the normed residual to the output projection."""
    heads = heads_of(shard, model, window)
    latent = model.attention.latent
    out = row(shard, "out", heads.query * heads.value, model.hidden, bias=out_bias)
    if latent:
        first = _latent_in(shard, model, latent, heads)
        if model.attention.sparse:
            first[-1:-1] = index_blocks(shard, model)
            heads = replace(heads, window=model.attention.sparse.top)
        # With a cache. Prefill sees no earlier tokens, so expanding its own once is cheaper.
        if not shard.training and (shard.queries < shard.keys or chosen(shard, model)):
            return [*first[:-1], *_absorbed(shard, latent, heads, first[-1]), out]
        return [*first, core(shard, heads), out]
    gate = model.attention.gate
    queries = heads.query * heads.key * (2 if gate else 1)
    width = queries + heads.kv_size
    columns = {"q": queries, "k": heads.kv * heads.key, "v": heads.kv * heads.value}
    blocks = [column(shard, "qkv", model.hidden, width, bias=qkv_bias, results=columns)]
    # Learned positions were added in the embedding; rotary ones turn queries and keys here.
    if model.attention.qk_norm or model.learned_positions is None:
        blocks.append(_positions(shard, model, heads))
    attend = core(shard, heads)
    sinks = (
        {"dp+cp": heads.query} if model.attention.sinks else {}
    )  # their gradient comes from the same kernel
    blocks.append(replace(attend, parameters=sinks))
    if gate:
        # Of queries' size: read with the output, which is written again.
        held = shard.tokens * heads.query * heads.key * shard.element
        blocks.append(
            Block(
                "gate",
                (Step("apply", bytes=3 * held),),
                (Step("apply", bytes=5 * held),),
                saved=2 * held,
                working=3 * held,
            )
        )
    return [*blocks, out]


def _positions(shard: Shard, model: Decoder, heads: Heads) -> Block:
    """Return the block that norms the heads of queries and keys and applies rotary positions."""
    normed = model.attention.qk_norm
    held = shard.tokens * (heads.query + heads.kv) * heads.key * shard.element
    # Each of the two reads and writes the heads; rotary positions that are not compiled cast to fp32, turn and cast.
    passes = 2 * normed + (2 if shard.compiled else 10) * (model.learned_positions is None)
    whole = model.attention.qk_norm_over == "all"
    # One norm for queries and one for keys, shared by all heads or over all of them.
    normed_by = (heads.query + heads.kv if whole else 2) * heads.key
    weights = normed_by * (2 if model.norm == "layer" else 1) if normed else 0
    # Ranks of tp sum the squares of their heads, in fp32, one of queries and one of keys for each token.
    sums = (
        (Step("squares", bytes=held), reduce("reduce", "tp", shard.tokens * 2 * 4))
        if whole and shard.tp > 1
        else ()
    )
    return Block(
        "positions",
        (*sums, Step("turn", bytes=passes * held)),
        # A norm's backward pass also reads its saved input.
        (*sums, Step("turn", bytes=(passes + normed) * held)),
        parameters={"dp+cp": weights},
        partial=weights * (shard.tp > 1 and not whole),  # each rank norms other heads
        saved=held if normed else 0,
        working=2 * held,
    )


def _latent_in(shard: Shard, model: Decoder, latent: Latent, heads: Heads) -> list[Block]:
    """Return the projections of latent attention (DeepSeek-V2, arXiv 2405.04434).

    Every rank of tp holds the projections to the small vectors whole and gathers their results, as Megatron-LM does.
    """
    hidden, rank, scale = model.hidden, latent.query_rank or 0, 2 if model.norm == "layer" else 1
    small, queries = latent.kv_rank + latent.rotary_size, heads.query * heads.key
    blocks = [replicated(shard, "down", hidden, rank + small)]
    # Without a query rank, queries come straight from the residual.
    if rank:
        blocks.append(norm(shard, "down.norm", rank + latent.kv_rank, scale * (rank + latent.kv_rank)))
        blocks.append(column(shard, "q.up", rank, queries, results={"q": queries}))
    else:
        blocks.append(norm(shard, "down.norm", latent.kv_rank, scale * latent.kv_rank))
        blocks.append(column(shard, "q", hidden, queries, keep=False, results={"q": queries}))
    # The shared rotary key is gathered with the small vector and needs no projection up.
    width = heads.kv * (latent.plain_size + latent.value_size)
    columns = {"k": heads.kv * latent.plain_size, "v": heads.kv * latent.value_size}
    # One linear layer in all models, whose result is split.
    made = column(
        shard, "kv.up", latent.kv_rank, width, beside=latent.rotary_size, results=columns, whole=True
    )
    blocks.append(made)
    turned = shard.tokens * heads.query * latent.rotary_size * shard.element
    turn = (Step("turn", bytes=2 * turned),)
    blocks.insert(-1, Block("positions", turn, turn, working=2 * turned))
    return blocks


def _absorbed(shard: Shard, latent: Latent, heads: Heads, up: Block) -> list[Block]:
    """Return attention that reads the small vectors of earlier tokens without expanding them.

    The projections to keys and values become ones of queries and of outputs (arXiv 2405.04434, section 2.1.2).
    """
    element, tokens, rank = shard.element, shard.tokens, latent.kv_rank
    # Multi-query attention over the small vectors: one key for all heads, and the value is a part of it.
    key = Heads(heads.query, 1, rank + latent.rotary_size, rank, heads.window)
    steps: list[Step] = []
    if shard.sequence:
        steps.append(gather("gather", "tp", shard.own * (rank + latent.rotary_size) * element))
    # One small GEMM per head: queries into the space of the small vectors, and outputs back from it.
    for name, size in (("keys", latent.plain_size), ("values", latent.value_size)):
        moved = (rank * size + tokens * (rank + size)) * heads.query * element
        shape = (size, rank) if name == "values" else (rank, size)
        steps.append(
            Step(
                name,
                2 * tokens * heads.query * size * rank,
                moved,
                shard.high,
                gemms=(Gemm(tokens, *shape, heads.query),),
            )
        )
    attend = core(replace(shard, flash=True), key).forward[0]
    reach = min(shard.keys, heads.window or shard.keys)
    shared = shard.cached(shard.batch * reach * rank)  # values are a part of the keys
    attend = Step("attend", attend.flops, attend.bytes - shared, attend.precision)
    # Between the two: its inputs are absorbed queries, and its outputs go through the values.
    steps.insert(-1, attend)
    working = 2 * tokens * heads.query * (2 * rank + latent.rotary_size) * element
    return [Block("absorbed", tuple(steps), parameters=up.parameters, working=working)]


def cache_bytes(shard: Shard, model: Decoder, window: int | None) -> int:
    """Return the bytes that a layer keeps of earlier tokens: keys and values, or their latent vector whole.

    Sparse attention keeps a small key besides.
    """
    heads, latent = heads_of(shard, model, window), model.attention.latent
    size = latent.kv_rank + latent.rotary_size if latent else heads.kv_size
    kept = shard.cached(shard.batch * min(shard.keys, window or shard.keys) * size)
    return kept + key_bytes(shard, model)
