"""Experts divided over more or fewer ranks, as Megatron-LM divides them (GShard, arXiv 2006.16668, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.kernels import Mask, Nodes, accumulates, terms
from armillary.lab.extrapolation.scaling import SIZE, Scaling
from armillary.lab.extrapolation.token_axis import over_tokens, token_count
from armillary.trace import CollectiveType
from armillary.trace.gemm import GEMM, Gemm
from armillary.trace.structure import issue_order

GATHER, SCATTER, REDUCE = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_REDUCE


@dataclass(frozen=True)
class Experts:
    """What experts do in a graph.

    Attributes:
        inside: Nodes between the all-to-alls that bring tokens and those that take them back.
        rows: Rows of the GEMMs of one expert.
    """

    inside: Mask
    rows: int


def experts_of(nodes: Nodes) -> Experts:
    """Return the nodes of experts: those that wait for an all-to-all that dispatches, up to the one that combines."""
    inside = _inside(nodes)
    rows = token_count([gemm for node in np.flatnonzero(inside) for gemm in nodes.gemms[node]])
    # Gradients of weights that are made later wait for nothing inside; their GEMMs are known by their dimensions.
    known = {_dimensions(p) for node in np.flatnonzero(inside) for p in nodes.gemms[node]}
    for node, gemms in enumerate(nodes.gemms):
        inside[node] |= bool(gemms) and all(
            _dimensions(p) in known and p.k == rows and _sums(nodes, node, p) for p in gemms
        )
    return Experts(inside, rows)


def expert_part(nodes: Nodes, experts: Experts) -> float:
    """Return the share of experts in a rank's weights, by the bytes of gradients that replicas reduce.

    Where experts have no replicas, their share is that of their GEMMs, in the precision of the others.
    """
    size, batch = nodes.graph.ints("comm_size"), nodes.graph.ints("micro_batch", 0)
    reduces = nodes.reductions & (nodes.collective == REDUCE)
    # Replicas of experts lie outside of ep; all other gradients are reduced over ep, too.
    mine = reduces & ~_over_any(nodes, set(nodes.grid.axes["ep"]))
    own, other = float(size[mine].sum()), float(size[reduces & ~mine].sum())
    if not own:
        gemms = {True: 0.0, False: 0.0}
        for node, each in enumerate(nodes.gemms):
            # One microbatch: the others repeat the same weights.
            if batch[node] == batch.max():
                weights = sum(p.m * p.n * p.batch * p.calls for p in each if _sums(nodes, node, p))
                gemms[bool(experts.inside[node])] += weights
        # Reduced bytes per parameter tell the precision of gradients: 4 if there are at least that many, else
        # 2.
        own = gemms[True] * (4 if other >= 4 * gemms[False] else 2)
    return own / (own + other) if own else 0.0


def scale_experts(nodes: Nodes, mesh_dim: int, factor: Fraction) -> Scaling:
    """Return what changes in a rank when `factor` times the ranks, with as many tokens each, share the experts.

    Each rank has as many tokens, sends each to as many experts, and gets as many from others: all-to-alls keep their
    size, GEMMs of experts their operations. A rank has a share of the experts, each with more rows.

    Args:
        nodes: Of the rank.
        mesh_dim: Of the grid, which grows.
        factor: By how much.

    Raises:
        InputError: the experts cannot be seen or divided so.
    """
    made, share = Scaling(nodes), 1 / factor
    exchange = _exchanges(nodes)
    _check_even(nodes, exchange)
    experts = experts_of(nodes)
    _check_copies(nodes, exchange, experts)
    _gemms(made, nodes, experts, share)
    made.assume("experts: all ranks have as many tokens, and send as many to the experts of others", exchange)
    made.assume(
        "experts: what works on tokens of experts stays",
        experts.inside & nodes.kernel & ~nodes.graph.has(GEMM),
    )
    adds = _adds_up(nodes, experts)
    made.assume("experts: what adds up their gradients has a share of them", adds, ops=share, size=share)
    replicas = nodes.reductions
    own = replicas & ~_over_any(nodes, set(nodes.grid.axes["ep"]))
    made.assume("experts: their weights and gradients are a share", own, comm=share)
    if {SCATTER, REDUCE} <= set(nodes.collective[own].tolist()):
        raise InputError(
            f"scale ep: {nodes.graph.source} all-reduces and reduce-scatters between replicas of experts, so shards "
            "of other layers (hsdp) cannot be told from experts; expected another sharding"
        )
    gathers = replicas & ~own & nodes.over_mesh_dim(mesh_dim) & (nodes.collective == GATHER)
    made.assume("experts: replicas of other layers grow with them, whose gathers shrink", gathers, comm=share)
    if np.isin(nodes.collective[replicas], (GATHER, SCATTER)).any():
        made.assume("experts: a rank updates a share of sharded weights", nodes.update, ops=share, size=share)
    else:
        part = expert_part(nodes, experts)
        kept = 1 - part + part * float(share)
        text = f"experts: a rank updates a share of them, which are {part:.1%} of its weights"
        made.assume(text, nodes.update, ops=kept, size=kept)
    return made


def _exchanges(nodes: Nodes) -> Mask:
    found: Mask = nodes.over("ep") & (nodes.collective == CollectiveType.ALL_TO_ALL)
    return found


def _halves(nodes: Nodes) -> Mask:
    """Return a mask of all-to-alls in two hops, across nodes and inside: a token goes to a node once (DeepEP)."""
    exchange = _exchanges(nodes)
    groups = nodes.graph.strings("pg_name")[0]
    ptr, parents = nodes.graph.parents()
    found: Mask = np.zeros(nodes.graph.n_nodes, np.bool_)
    for node in np.flatnonzero(exchange).tolist():
        own = parents[ptr[node] : ptr[node + 1]]
        other = own[exchange[own] & (groups[own] != groups[node])]
        found[other] = True
        found[node] |= len(other) > 0
    return found


def _over_any(nodes: Nodes, mesh_dims: set[int]) -> Mask:
    found: Mask = np.zeros(nodes.graph.n_nodes, np.bool_)
    for mesh_dim in mesh_dims:
        found |= nodes.over_mesh_dim(mesh_dim)
    return found


def _inside(nodes: Nodes) -> Mask:
    """Return a mask of the nodes after an odd number of all-to-alls: every other one dispatches, the next combines.

    Two halves, across nodes and inside of them, count as one.
    """
    # A whole all-to-all counts 2, a half 1, so that two halves make one; dispatched tokens have an odd number
    # of wholes behind them: 2 modulo 4.
    exchange = (2 * _exchanges(nodes).astype(int) - _halves(nodes)).tolist()
    ptr, parents = nodes.graph.parents()
    # Edges through gradients, stages or the update join unrelated layers and would break the parity.
    ignored = nodes.gradients | nodes.along("pp") | nodes.update
    passed = [0] * nodes.graph.n_nodes
    for node in issue_order(nodes.graph).tolist():
        before = [each for each in parents[ptr[node] : ptr[node + 1]].tolist() if not ignored[each]]
        passed[node] = max((passed[each] + exchange[each] for each in before), default=0)
    found: Mask = (np.array(passed) % 4 == 2) & ~_exchanges(nodes) & ~ignored
    return found


def _dimensions(gemm: Gemm) -> tuple[int, ...]:
    return (*sorted((gemm.m, gemm.n, gemm.k)), gemm.batch, gemm.calls)


def _sums(nodes: Nodes, node: int, gemm: Gemm) -> bool:
    return accumulates(gemm, int(nodes.graph.ints(SIZE)[node]), int(nodes.operand[node]))


def _adds_up(nodes: Nodes, experts: Experts) -> Mask:
    """Return a mask of the kernels without GEMMs that add up gradients of experts: they follow GEMMs over tokens."""
    ptr, parents = nodes.graph.parents()
    found = np.zeros(nodes.graph.n_nodes, np.bool_)
    plain = experts.inside & nodes.kernel & ~nodes.graph.has(GEMM)
    for node in np.flatnonzero(plain).tolist():
        found[node] = any(
            experts.inside[each] and any(is_gradient(nodes, each, p, experts) for p in nodes.gemms[each])
            for each in parents[ptr[node] : ptr[node + 1]].tolist()
        )
    return found


def is_gradient(nodes: Nodes, node: int, gemm: Gemm, experts: Experts) -> bool:
    """Say whether a GEMM of an expert is for the gradient of its weight: it sums over rows."""
    return over_tokens(gemm, experts.rows, _sums(nodes, node, gemm))


def _check_even(nodes: Nodes, exchange: Mask) -> None:
    codes, lists = nodes.graph.int_lists("comm_splits")
    for node in np.flatnonzero(exchange & (codes >= 0)).tolist():
        if len(set(lists[codes[node]])) > 1:
            raise InputError(
                f"scale ep: {nodes.graph.node(node)} has uneven parts, of all experts of a rank together, so how many "
                "tokens each of them gets is not seen; expected a trace in which all experts get as many, or dp"
            )


def _check_copies(nodes: Nodes, exchange: Mask, experts: Experts) -> None:
    """Check that a token goes to each of its experts, and not once to a node of several (DeepEP)."""
    graph = nodes.graph
    lost = (
        "how many experts of a token are on one node depends on where ranks are, which is not in the trace; "
        "expected a token to be sent to each of its experts, or dp to be scaled"
    )
    halves = np.flatnonzero(_halves(nodes)).tolist()
    if halves:
        raise InputError(
            f"scale ep: {graph.node(halves[0])} and {graph.node(halves[1])} send tokens on together, across nodes and "
            f"inside of them: {lost}"
        )
    groups = {1}
    codes, names = graph.strings("pg_name")
    # Tokens may be gathered over tp before the experts: rows are then a multiple of what was sent.
    for code in set(codes[experts.inside & (nodes.collective >= 0)].tolist()):
        groups.add(prod(nodes.grid.sizes[mesh_dim] for mesh_dim in nodes.grid.mesh_dims(names[code])))
    at = np.flatnonzero(experts.inside & graph.has(GEMM) & nodes.multiplies)
    opens = np.flatnonzero(exchange)
    if not len(at) or not len(opens) or not nodes.gemms[at[0]]:
        return
    first = nodes.gemms[at[0]][0]
    rows = int(nodes.operations[at[0]]) // (2 * first.n * first.k)
    sent = int(graph.ints("comm_size")[opens[opens < at[0]][-1]]) if (opens < at[0]).any() else 0
    # In bf16, fp32 or fp8: the precision of the dispatch is not recorded.
    copies = [rows * first.k * element for element in (2, 4, 1)]
    if sent and not any(each == sent * group for each in copies for group in groups):
        raise InputError(
            f"scale ep: {graph.node(int(opens[0]))} sends {sent} bytes, but experts work on {rows} rows of {first.k}: "
            f"{lost}"
        )


def _gemms(made: Scaling, nodes: Nodes, experts: Experts, share: Fraction) -> None:
    """Give a rank fewer experts with more rows: operations stay, bytes of weights are a share."""
    graph = nodes.graph
    at = np.flatnonzero(experts.inside & graph.has(GEMM)).tolist()
    if not at:
        raise InputError(
            f"scale ep: {graph.source} has no GEMMs with shapes (attribute gemm) between its all-to-alls, so what "
            "the weights of experts are is not seen; expected them, or a second trace with another ep "
            "(--also TRACE --at ep=N)"
        )
    size, moved = graph.ints(SIZE), np.ones(graph.n_nodes)
    mask = np.zeros(graph.n_nodes, np.bool_)
    for node in at:
        changed = []
        before = after = int(size[node])
        for gemm in nodes.gemms[node]:
            operand = int(nodes.operand[node])
            count = gemm.batch * gemm.calls
            fewer = count * share
            if fewer.denominator > 1:
                raise InputError(
                    f"scale ep: {graph.node(node)} has the GEMMs of {count} experts, which cannot be divided by "
                    f"{float(1 / share):g}; expected at most {count} times the ranks"
                )
            grouped = "batch" if gemm.batch > 1 or fewer > 1 else "calls"
            one = gemm._replace(batch=1, calls=1)
            sums = is_gradient(nodes, node, gemm, experts)
            # What is summed up is added to, in a precision of its own.
            weights = (gemm.m * gemm.n if sums else gemm.k * gemm.n) * count
            element = operand
            if sums:
                element = max(1, round(terms(gemm, before, operand)[2] / weights))
            after -= int(weights * element * (1 - share))
            # With a single GEMM the operations of the node give the total rows exactly; its own m may be
            # rounded up.
            whole = (
                Fraction(int(nodes.operations[node]), one.operations)
                if len(nodes.gemms[node]) == 1
                else count
            )
            rows = (one.k if sums else one.m) * whole / fewer
            changed.append(one._replace(**{"k" if sums else "m": -(-rows.numerator // rows.denominator),
                                           grouped: int(fewer)}))  # fmt: skip
        moved[node] = after / before
        made.gemms[node] = tuple(changed)
        mask[node] = True
    made.assume(
        "experts: GEMMs have a share of the experts, each with more rows; operations stay",
        mask,
        size=moved,
    )
