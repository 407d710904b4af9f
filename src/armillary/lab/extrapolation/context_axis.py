"""Every sequence divided over more or fewer ranks: context parallelism by rings or by all-gathers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.kernels import Mask, Nodes
from armillary.lab.extrapolation.rings import with_rounds
from armillary.lab.extrapolation.scaling import SIZE, Scaling
from armillary.lab.extrapolation.token_axis import scale_tokens
from armillary.trace import CollectiveType
from armillary.trace.attention import ATTENTION
from armillary.trace.grid import RankGrid
from armillary.workload.layers.shard import divisors, near

GATHER, SCATTER = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER


def scale_context(nodes: Nodes, mesh_dim: int, new: int) -> Scaling:
    """Return what changes in a rank when `new` ranks share every sequence.

    A rank has a share of the queries, and of what is linear in the tokens. All keys and values still pass it: round by
    round in a ring (arXiv 2310.01889), which has as many rounds as ranks, or gathered at once (Llama 3, arXiv
    2407.21783, section 3.3.2). Ranks of cp are replicas, too: they reduce gradients and share weights as those of dp.

    Raises:
        InputError: messages along cp are those of no known ring, or the sequence cannot be divided so.
    """
    grid = nodes.grid
    old = grid.size("cp")
    ring = bool(nodes.along("cp").any())
    _check(nodes, old, new, ring=ring)
    # The ring is rebuilt first, at the total of old operations; the rules below then give a rank its share.
    nodes = Nodes(with_rounds(nodes, new), grid)
    share = Fraction(old, new)
    made = scale_tokens(nodes, "ring" if ring else "context", share)
    made.note("context: a ring has a round for each of its ranks", nodes.along("cp"))
    _gathered(made, nodes, float(share), old)
    # Experts that are divided over cp have as many replicas more.
    own = nodes.reductions & (nodes.over_mesh_dim(mesh_dim) | nodes.over("edp"))
    made.assume("context: reductions of gradients keep their size", own, comm=1.0)
    gathers = own & (nodes.collective == GATHER)
    made.assume("context: gathers of weights, whose size is of a rank's share, shrink", gathers, comm=share)
    if np.isin(nodes.collective[own], (GATHER, SCATTER)).any():
        made.assume(
            "context: a rank updates its share of sharded weights", nodes.update, ops=share, size=share
        )
    return made


def experts_apart(grid: RankGrid, mesh_dim: int, new: int) -> RankGrid:
    """Return the grid with `new` ranks along a mesh dimension of cp; where experts go over it they stay as many.

    Raises:
        InputError: they go over no other ranks of which they could leave some.
    """
    factor = Fraction(new, grid.sizes[mesh_dim])
    sizes = {mesh_dim: Fraction(new)}
    if mesh_dim in grid.axes.get("ep", ()):
        inner = [d for d in grid.axes["ep"] if d in grid.axes["dp"]]
        outer = [d for d in grid.axes["dp"] if d not in grid.axes["ep"]]
        # The innermost ranks that experts share with dp shrink and the outermost replicas grow, so that ep
        # and dp both stay.
        sizes |= {d: grid.sizes[d] / factor for d in inner[-1:]} | {
            d: grid.sizes[d] * factor for d in outer[-1:]
        }
        if len(sizes) < 3 or any(each.denominator > 1 for each in sizes.values()):
            raise InputError(
                f"scale cp: ep {grid.size('ep')} goes over the {grid.size('cp')} ranks of cp and over others, and of "
                f"these a part cannot take the place of {float(factor):g} times the ranks of cp; expected a trace "
                "whose ep is 1 or larger, or with replicas of experts, or dp, ep or sequence to be scaled"
            )
    return replace(grid, sizes=tuple(int(sizes.get(d, each)) for d, each in enumerate(grid.sizes)))


def _check(nodes: Nodes, old: int, new: int, *, ring: bool) -> None:
    if ring and new < 2:
        raise InputError(
            "scale cp: got 1, which is no ring: attention would be one kernel, whose bytes its rounds do not show; "
            "expected 2 or more"
        )
    # Field 3 of `Attention` is the queries of a rank; times the ranks of cp it is the length.
    for tokens in {numbers[3] * old for numbers in nodes.graph.int_lists(ATTENTION)[1]}:
        if tokens % new:
            best = near(new, divisors(tokens))
            raise InputError(f"scale cp: got {new}, expected a divisor of {tokens} tokens (nearest: {best})")


def _gathered(made: Scaling, nodes: Nodes, share: float, old: int) -> None:
    """Keep the work on all keys and values: the bytes that attention reads, and the scatters of their gradients."""
    graph = nodes.graph
    around = nodes.over("cp", only=True) & ~nodes.gradients & nodes.large
    made.assume(
        "context: gradients of all keys and values are scattered, as many as before",
        around & (nodes.collective == SCATTER),
        comm=1.0,
    )
    size, sent = graph.ints(SIZE), graph.ints("comm_size")
    ptr, parents = graph.parents()
    factor = np.full(graph.n_nodes, share)
    reads: Mask = np.zeros(graph.n_nodes, np.bool_)
    for node in np.flatnonzero(nodes.kernel).tolist():
        gathers = [
            each
            for each in parents[ptr[node] : ptr[node + 1]].tolist()
            if around[each] and nodes.collective[each] == GATHER
        ]
        if gathers and size[node]:
            # Bytes of all keys and values: an all-gather's size is one rank's share. They stay; only the rest
            # shrinks.
            whole = min(old * sum(int(sent[each]) for each in gathers), int(size[node]))
            factor[node] = share + (1 - share) * whole / int(size[node])
            reads[node] = True
    made.assume("context: attention reads all keys and values", reads, size=factor)
