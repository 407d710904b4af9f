"""Every matrix divided over more or fewer ranks, as Megatron-LM divides them (arXiv 1909.08053, 2205.05198)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.kernels import Mask, Nodes
from armillary.lab.extrapolation.scaling import SIZE, Scaling
from armillary.lab.extrapolation.tensor_blocks import blocks_of, children_of, parents_of
from armillary.lab.extrapolation.tensor_gemms import divide_gemms, divide_rows
from armillary.trace import CollectiveType
from armillary.trace.attention import ATTENTION, Attention
from armillary.trace.gemm import GEMM
from armillary.workload.layers.shard import divisors, near

GATHER, SCATTER, REDUCE = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_REDUCE


@dataclass(frozen=True)
class Parts:
    """The divided part of a rank's weights, by its GEMMs.

    Attributes:
        dense: Divided share of the weights that are not of experts.
        experts: Share of experts in all weights that a rank updates.
    """

    dense: float = 1.0
    experts: float = 0.0

    def kept(self, share: float) -> tuple[float, float]:
        """Return the remaining shares of weights other than experts and of all updated weights, at a `share` of tp."""
        dense = 1 - self.dense + self.dense * share
        return dense, (1 - self.experts) * dense + self.experts * share


def divided_part(ranks: Sequence[Nodes]) -> Parts:
    """Return which part of the weights of all GEMMs of these graphs is divided."""
    inside = outside = own = 0.0
    shared = 1.0
    for nodes in ranks:
        blocks = blocks_of(nodes)
        divided, experts = blocks.divided, blocks.experts.inside
        # k n is the size of a weight in forward; gradients count in the same proportion on both sides of the
        # ratio.
        sizes = np.array([sum(p.k * p.n * p.batch for p in each) for each in nodes.gemms], float)
        outside += float(sizes[~divided & ~experts & ~nodes.update].sum())
        inside += float(sizes[divided & ~experts].sum())
        own += float(sizes[experts].sum())
        if np.isin(nodes.collective[nodes.gradients], (GATHER, SCATTER)).any() and "ep" in nodes.grid.axes:
            shared = prod(nodes.grid.sizes[d] for d in {*nodes.grid.axes["ep"]} & {*nodes.grid.axes["dp"]})
    # Replicas of experts are fewer, so that each updates more of theirs where they share weights.
    total = inside + outside + own * shared
    return Parts(inside / (inside + outside) if inside else 1.0, own * shared / total if total else 0.0)


def scale_tensor(nodes: Nodes, old: int, new: int, parts: Parts | None = None) -> Scaling:
    """Return what changes in a rank when tp goes from `old` to `new`.

    Kernels between the collectives that open and close a divided block do ``old / new`` of the work. Of a GEMM
    two dimensions are those of the activation that the collective moves; the third is the divided one. Outside, with
    sequence parallelism (gathers and scatters instead of reductions), each rank has its share of the tokens.

    Args:
        nodes: Of the rank.
        old: Ranks before.
        new: Ranks after.
        parts: Of the weights that are divided, see `divided_part`; absent: all.

    Raises:
        InputError: it cannot be seen how a GEMM is divided, or ranks would have copies of heads.
    """
    made, share = Scaling(nodes), Fraction(old, new)
    _check_heads(nodes, old, new)
    own = nodes.over("tp", only=True)
    blocks = blocks_of(nodes)
    divided, whole, sequence = blocks.divided, blocks.whole, blocks.sequence
    x = float(share)
    exchange = nodes.over("ep") & (nodes.collective == CollectiveType.ALL_TO_ALL)
    closes = own & (nodes.collective == (SCATTER if sequence else REDUCE))
    # Without sequence parallelism, smaller reductions over tp are those of the loss or of a vocabulary's
    # maxima.
    closes &= sequence | (2 * nodes.graph.ints("comm_size") >= whole)
    last = parents_of(nodes, closes) | (parents_of(nodes, exchange) & blocks.experts.inside)
    divide_gemms(made, nodes, blocks, last, share)
    counted = (nodes.operations > 1) | (nodes.graph.ints(SIZE) > 0)
    plain = nodes.kernel & ~nodes.graph.has(GEMM) & ~nodes.update & counted
    full = _whole(nodes, own, plain, divided)
    divided = divided & ~full
    made.assume(
        "tensor: kernels inside of divided blocks do a share of the work", plain & divided, ops=x, size=x
    )
    made.attend(divided, heads=share, kv_heads=share)
    outside = plain & ~divided
    if sequence:
        divide_rows(made, nodes, nodes.kernel & nodes.graph.has(GEMM) & ~divided & ~nodes.update, share)
        made.assume(
            "tensor: kernels outside of divided blocks have a share of the tokens",
            outside & ~full,
            ops=x,
            size=x,
        )
        made.assume("tensor: kernels that read what was gathered, or whose result is scattered, stay", full)
    else:
        made.assume("tensor: kernels outside of divided blocks are repeated on every rank", outside)
    parts = parts or Parts()
    kept, updated = parts.kept(x)
    text = "tensor: weights, their gradients and what updates them are divided"
    text += "" if parts.dense == 1 else f", {parts.dense:.0%} of them as of the GEMMs"
    weights = nodes.gradients & ~own
    made.assume(text, weights, comm=kept)
    made.assume(text, nodes.update, ops=updated, size=updated)
    if blocks.experts.inside.any():
        mine = weights & ~nodes.over("ep") & ~nodes.ends()
        made.assume("tensor: experts are divided as other weights are", mine, comm=x)
        law = "exchange a share of the tokens" if sequence else "exchange all tokens, each of them"
        made.assume(f"tensor: ranks {law}", exchange, comm=x if sequence else 1.0)
    made.assume(
        "tensor: all-gathers shrink, whose size is of a rank's share",
        own & (nodes.collective == GATHER),
        comm=x,
    )
    made.assume(
        "tensor: reductions keep their size, which is of the whole", own & (nodes.collective != GATHER)
    )
    stages = nodes.along("pp")
    law = "are of a share of the tokens" if sequence else "keep their size"
    made.assume(f"tensor: messages between stages {law}", stages, comm=x if sequence else 1.0)
    around = nodes.along("cp") | (nodes.over("cp", only=True) & nodes.attended)
    made.assume("tensor: keys and values round cp are of a share of the heads", around, comm=x)
    return made


def _check_heads(nodes: Nodes, old: int, new: int) -> None:
    """Check that every rank has heads of keys and values of its own."""
    for numbers in nodes.graph.int_lists(ATTENTION)[1]:
        heads = Attention(*numbers).kv_heads * old
        if heads % new:
            raise InputError(
                f"scale tp: got {new}, but attention has {heads} heads of keys and values, or copies of them, of which "
                f"ranks would have copies; expected a divisor of {heads} (nearest: {near(new, divisors(heads))}), or a "
                "second trace with another tp (--also TRACE --at tp=N)"
            )


def _whole(nodes: Nodes, own: Mask, plain: Mask, divided: Mask) -> Mask:
    """Return a mask of kernels without GEMMs that have all tokens on every rank: their work does not depend on tp.

    They lie between a gather and the first GEMM, or between the last GEMM and a scatter.
    """
    plain = plain & ~nodes.multiplies
    found = np.zeros_like(plain)
    for ends, beside in ((GATHER, children_of), (SCATTER, parents_of)):
        reached, inside = own & (nodes.collective == ends), plain
        while reached.any():
            reached = beside(nodes, reached) & inside & ~found
            found |= reached
            # Further kernels only while they stay in the block.
            inside = plain & divided
    return found
