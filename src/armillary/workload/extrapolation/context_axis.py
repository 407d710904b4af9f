"""Every sequence divided over more or fewer ranks: context parallelism by rings or by all-gathers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from armillary.errors import InputError
from armillary.trace import CollectiveType
from armillary.workload.extrapolation.kernels import Mask, Nodes
from armillary.workload.extrapolation.rings import with_rounds
from armillary.workload.extrapolation.scaling import SIZE, Scaling
from armillary.workload.extrapolation.token_axis import scale_tokens

GATHER, SCATTER = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER


def scale_context(nodes: Nodes, digit: int, new: int) -> Scaling:
    """Return what changes in a rank when `new` ranks share every sequence.

    A rank has a share of the queries, and of what is linear in the tokens. All keys and values still pass it: round by
    round in a ring (arXiv 2310.01889), which has as many rounds as ranks, or gathered at once (Llama 3, arXiv
    2407.21783, section 3.3.2). Ranks of cp are replicas, too: they reduce gradients and share weights as those of dp.

    Raises:
        InputError: messages along cp are those of no known ring, or experts go over the ranks of cp.
    """
    grid = nodes.grid
    if set(grid.axes.get("ep", ())) & set(grid.axes["cp"]):
        raise InputError(
            f"scale cp: experts are divided over the {grid.size('cp')} ranks of cp, too, and what others would have is "
            "not in the trace; expected a trace whose ep is 1, or dp, ep or sequence to be scaled"
        )
    old = grid.size("cp")
    ring = bool(nodes.along("cp").any())
    nodes = Nodes(with_rounds(nodes, new), grid)
    share = Fraction(old, new)
    made = scale_tokens(nodes, "ring" if ring else "context", share)
    made.note("context: a ring has a round for each of its ranks", nodes.along("cp"))
    _gathered(made, nodes, float(share), old)
    own = nodes.gradients & nodes.over_digit(digit)
    made.assume("context: reductions of gradients keep their size", own, comm=1.0)
    gathers = own & (nodes.collective == GATHER)
    made.assume("context: gathers of weights, whose size is of a rank's share, shrink", gathers, comm=share)
    if np.isin(nodes.collective[own], (GATHER, SCATTER)).any():
        made.assume("context: a rank updates its share of sharded weights", nodes.update, ops=share, size=share)
    return made


def _gathered(made: Scaling, nodes: Nodes, share: float, old: int) -> None:
    """Keep all keys and values: what attention reads of them, and what is scattered of their gradients."""
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
            whole = min(old * sum(int(sent[each]) for each in gathers), int(size[node]))
            factor[node] = share + (1 - share) * whole / int(size[node])
            reads[node] = True
    made.assume("context: attention reads all keys and values", reads, size=factor)
