"""The feed-forward block of a dense layer, and of shared experts."""

from __future__ import annotations

from armillary.workload.layers.block import Block
from armillary.workload.layers.linear import column, row
from armillary.workload.layers.pointwise import activation
from armillary.workload.layers.shard import Shard


def mlp_blocks(
    shard: Shard, hidden: int, size: int, *, gated: bool, bias: bool, name: str = "mlp", keep: bool = True
) -> list[Block]:
    """Return the blocks of hidden -> size -> hidden; up and gate are one product.

    Args:
        shard: The share of this rank.
        hidden: Inputs and outputs.
        size: Inner size over all ranks of tp.
        gated: Whether there are two input projections.
        bias: Whether projections have one.
        name: Prefix of the names of the blocks.
        keep: Whether no other block keeps the input.
    """
    inner = size // shard.tp
    wide = inner * (2 if gated else 1)
    return [
        column(shard, f"{name}.up", hidden, wide, bias=bias, keep=keep),
        activation(shard, f"{name}.activation", shard.tokens, wide, inner),
        row(shard, f"{name}.down", inner, hidden, bias=bias),
    ]
