"""The first and the last layer of a decoder; ranks of tp share their tables by rows of the vocabulary.

A vocabulary that tp does not divide is rounded up with unused rows, as many as whole loads of GEMMs need.
"""

from __future__ import annotations

from dataclasses import replace

from armillary.workload.layers.block import Block, layer
from armillary.workload.layers.layer import Layer, Step
from armillary.workload.layers.linear import column, gather, norm, reduce, scatter
from armillary.workload.layers.lora import with_adapters
from armillary.workload.layers.shard import Shard
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.numbers import stored

TOKEN, STATISTIC = 8, 4
"""Bytes of a token id, and of a sum over the vocabulary."""
ROWS = 8
"""Rows of a table that GEMMs in 16 bits read with whole loads, see `armillary.compute.gpu.gemm.UNALIGNED`."""


def rows_of(shard: Shard, model: Decoder) -> int:
    """Return the rows of the vocabulary on one rank."""
    return share_of(model.vocabulary, shard.tp)


def share_of(vocabulary: int, tp: int) -> int:
    """Return the rows of a vocabulary on one of `tp` ranks."""
    whole, rest = divmod(vocabulary, tp)
    # Software that must pad pads to at least that: Megatron-LM to 128 rows on each rank.
    return -(-(whole + 1) // ROWS) * ROWS if rest else whole


def embedding(shard: Shard, model: Decoder) -> Layer:
    """Return the tables of tokens and of positions."""
    hidden, element = model.hidden, shard.element
    whole, own = shard.tokens * hidden * element, shard.own * hidden * element
    # One byte per element.
    mask = shard.own * hidden if shard.dropout else 0
    read = stored(shard.tokens * hidden, shard.stores.embeddings) if shard.stores else whole
    forward = [Step("lookup", bytes=read + whole)]
    backward = []
    # A rank finds only the tokens whose rows it has, so the sum over tp gives the vectors of all.
    if shard.sequence:
        forward.append(scatter("scatter", "tp", whole))
        backward.append(gather("gather", "tp", own))
    elif shard.tp > 1:
        forward.append(reduce("reduce", "tp", whole))
    if model.learned_positions or mask:
        forward.append(Step("positions", bytes=2 * own + mask))
    if mask:
        backward.insert(0, Step("dropout", bytes=2 * own + mask))
    # Reads the gradients of the tokens, and reads and writes their rows.
    added = whole + 2 * shard.tokens * hidden * shard.gradient
    # Megatron-LM adds positions before it scatters, so every rank of tp has their whole gradient: nothing is partial.
    block = Block(
        "embedding",
        tuple(forward),
        tuple(backward),
        (Step("weight", bytes=added),),
        {"dp+cp": hidden * (rows_of(shard, model) + (model.learned_positions or 0))},
        saved=shard.tokens * TOKEN + mask,
        working=whole,
    )
    if shard.lora:
        # Nothing below needs a gradient.
        block = replace(block, backward=(), weight=(), parameters={}, frozen=block.parameters)
    return layer("embedding", shard, [block], own)


def head(shard: Shard, model: Decoder, *, shares_table: bool) -> Layer:
    """Return the final norm, the GEMM with the vocabulary, and the loss, each divided over ranks of tp.

    Args:
        shard: The share of this rank.
        model: The model.
        shares_table: Whether its weight is that of the embedding on the same rank.
    """
    hidden, rows = model.hidden, rows_of(shard, model)
    weights = hidden * (2 if model.norm == "layer" else 1)
    # A shared table was counted with the embedding.
    parameters = 0 if shares_table else hidden * rows
    final = norm(shard, "norm", hidden, weights)
    output = column(shard, "output", hidden, rows, precision=shard.high, parameters=parameters)
    if not shard.training:
        return _next_token(shard, model, final, output)
    if shard.dummies:
        # Of autograd, for the gradient of the vocabulary's table; Megatron-LM makes it anew each time.
        assert output.back is not None
        output = replace(output, back=output.back + hidden * rows * shard.element)
    blocks = [final, output, _loss(shard, rows)]
    made = layer("head", shard, with_adapters(shard, blocks), 0)
    return replace(made, shapes=frozenset())


def _loss(shard: Shard, rows: int) -> Block:
    """Return the cross entropy of this rank's part of the vocabulary.

    Vocabulary-parallel (Megatron-LM): the maximum for stability, then the target's logit and the sum of exponentials,
    each a number per token. Fused (Transformer Engine): one kernel for these three, whose results are gathered, and one
    that writes the gradient over the logits.
    """
    logits, sums = shard.tokens * rows, shard.tokens * STATISTIC
    held, wide = logits * shard.element, logits * STATISTIC
    if shard.loss == "fused":
        first = [Step("sums", bytes=held)]
        if shard.tp > 1:
            first.append(gather("gather sums", "tp", 3 * sums))
        # The backward pass multiplies by the gradient of each token's loss.
        return Block(
            "loss",
            (*first, Step("gradient", bytes=2 * held)),
            (Step("loss", bytes=2 * held),),
            saved=held,
            working=held,
            back=0,
        )
    if shard.loss == "eager":
        return _eager_loss(shard, held, wide, sums)
    steps = [Step("max", bytes=held)]
    if shard.tp > 1:
        steps.append(reduce("reduce max", "tp", sums))
    steps.append(Step("exponents", bytes=held + wide))
    if shard.tp > 1:
        steps += [reduce("reduce target", "tp", sums), reduce("reduce sum", "tp", sums)]
    # Probabilities are kept in fp32 (arXiv 2205.05198, section 4.3), computed in place of a copy of the logits.
    # PyTorch, which goes with FSDP, makes them apart, and has two gradients besides: of the loss, and of these.
    copies = 1 if shard.loss == "softmax" else 2
    narrow = held if shard.element < STATISTIC else 0
    return Block(
        "loss",
        tuple(steps),
        (Step("loss", bytes=wide + held),),
        saved=wide,
        working=narrow + copies * wide,
        back=held if shard.loss == "softmax" else narrow + 2 * wide,
    )


def _eager_loss(shard: Shard, held: int, wide: int, sums: int) -> Block:
    """Return PyTorch's cross entropy of logits of `held` bytes, `wide` in fp32, with `sums` bytes of a number each.

    A cast, the logarithms of probabilities, of which the loss reads those of the targets; backward a gradient of zeros
    but for these, that of the logits, and a cast. With tp, DTensor makes the logarithms of operations: maximum,
    difference, exponentials, their sum, difference; and that gradient of exponentials, a sum and a product.
    """
    narrow = held if shard.element < STATISTIC else 0
    first, last = [Step("float", bytes=held + wide)], [Step("half", bytes=held + wide)]
    if shard.tp == 1:
        first.append(Step("logarithms", bytes=2 * wide))
        back = [Step("targets", bytes=wide), Step("loss", bytes=3 * wide)]
    else:
        first += [
            Step("max", bytes=wide), reduce("reduce max", "tp", sums), Step("shift", bytes=2 * wide),
            Step("exponents", bytes=2 * wide), Step("sum", bytes=wide), reduce("reduce sum", "tp", sums),
            Step("logarithms", bytes=2 * wide), reduce("reduce target", "tp", sums),
        ]  # fmt: skip
        back = [
            Step("targets", bytes=wide), Step("exponents", bytes=2 * wide), Step("sum", bytes=3 * wide),
            Step("loss", bytes=2 * wide),
        ]  # fmt: skip
    return Block(
        "loss",
        tuple(first),
        (*back, *last),
        saved=wide,
        working=narrow + 2 * wide,
        back=narrow + 2 * wide,
    )


def _next_token(shard: Shard, model: Decoder, final: Block, output: Block) -> Layer:
    """Return the head of inference, for the last token of each sequence; every rank gets all logits."""
    hidden, rows, element = model.hidden, rows_of(shard, model), shard.element
    # Only the last token of a sequence predicts the next one.
    last = replace(shard, queries=1, sequence=False)
    first = norm(last, "norm", hidden, 0)
    held = shard.stores.embeddings if shard.stores else None
    gemm = column(last, "output", hidden, rows, precision=shard.high, weights=held)
    steps = list(gemm.forward)
    if shard.tp > 1:
        steps.append(gather("gather logits", "tp", shard.batch * rows * element))
    blocks = [
        replace(first, parameters=final.parameters),
        replace(gemm, forward=tuple(steps), parameters=output.parameters),
    ]
    # The last tokens lie on one rank each, so all are gathered first.
    if shard.sequence:
        before = gather("gather", "tp", shard.own * hidden * element)
        blocks.insert(0, Block("tokens", (before,)))
    return layer("head", shard, blocks, 0)
