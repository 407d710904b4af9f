"""The nodes that tensor parallelism divides: those between the collectives that open and close a block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.expert_axis import Experts, experts_of
from armillary.lab.extrapolation.kernels import Mask, Nodes
from armillary.lab.extrapolation.scaling import SIZE
from armillary.lab.extrapolation.token_axis import token_count
from armillary.trace import CollectiveType
from armillary.trace.attention import ATTENTION
from armillary.trace.gemm import GEMM, Gemm
from armillary.trace.structure import issue_order

GATHER, SCATTER, REDUCE = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_REDUCE
ELEMENTS = (2, 4, 1)


@dataclass(frozen=True)
class Blocks:
    """The divided part of a graph.

    Attributes:
        divided: Nodes.
        whole: Bytes of a whole activation.
        sequence: Whether there is sequence parallelism.
        experts: Of the nodes those of experts.
    """

    divided: Mask
    whole: int
    sequence: bool
    experts: Experts


def blocks_of(nodes: Nodes) -> Blocks:
    """Return the divided part of a graph.

    Raises:
        InputError: it has experts that cannot be told from other GEMMs.
    """
    own = nodes.over("tp", only=True)
    exchange = nodes.over("ep") & (nodes.collective == CollectiveType.ALL_TO_ALL)
    # Where attention is fused, nothing else than experts comes in batches.
    grouped = np.array([any(p.batch > 1 for p in each) for each in nodes.gemms], np.bool_)
    grouped &= nodes.graph.has(ATTENTION).any()
    experts = experts_of(nodes) if exchange.any() else Experts(np.zeros(nodes.graph.n_nodes, np.bool_), 0)
    if (own & exchange).any() or (grouped & ~experts.inside).any():
        raise InputError(
            f"scale tp: {nodes.graph.source} has experts, but not between all-to-alls (ep), so what ranks of tp have "
            "of them is not seen; expected a second trace with another tp (--also TRACE --at tp=N)"
        )
    size = nodes.graph.ints("comm_size")
    sequence = bool((own & (nodes.collective == SCATTER)).any())
    moved = own & (nodes.collective == (SCATTER if sequence else REDUCE)) & ~experts.inside
    whole = int(size[moved].max(initial=0))
    divided = _inside(nodes, own) if sequence else _between(nodes, own, whole) | experts.inside
    return Blocks(divided, whole, sequence, experts)


def _inside(nodes: Nodes, own: Mask) -> Mask:
    """Return which nodes are inside of blocks that a gather opens and a scatter closes (sequence parallelism)."""
    opens = own & (nodes.collective == GATHER)
    ends = (own & (nodes.collective == SCATTER)) | nodes.along("pp")
    ignored = nodes.gradients | nodes.over("dp") | nodes.memory
    ptr, parents = nodes.graph.parents()
    state = np.zeros(nodes.graph.n_nodes, np.bool_)
    for node in issue_order(nodes.graph).tolist():
        before = [each for each in parents[ptr[node] : ptr[node + 1]].tolist() if not ignored[each]]
        # Inside is what follows a gather, or has all predecessors inside: a node that also waits for
        # something outside, such as a residual, is outside.
        state[node] = opens[node] or (
            not ends[node]
            and (
                any(opens[each] for each in before) or (bool(before) and all(state[each] for each in before))
            )
        )
    # Blocks may be side by side (latent attention): what is scattered comes out of one.
    state |= parents_of(nodes, own & (nodes.collective == SCATTER)) & nodes.kernel & nodes.graph.has(GEMM)
    return state & ~nodes.update


def _between(nodes: Nodes, own: Mask, whole: int) -> Mask:
    """Return which nodes are inside of blocks that a reduction closes.

    Such a block begins with the last GEMM of whole rows of tokens before the reduction. Gradients of weights are
    inside where their weight is that of a GEMM inside.
    """
    size = nodes.graph.ints("comm_size")
    # Half an activation or more: smaller ones are sums of the loss or of norms.
    closes = own & (nodes.collective == REDUCE) & (2 * size >= whole)
    tokens = token_count([p for each in nodes.gemms for p in each if p.batch == 1])
    element = element_bytes(nodes, np.flatnonzero([bool(each) for each in nodes.gemms]).tolist(), whole)
    order = issue_order(nodes.graph)
    exchange = nodes.over("ep") & (nodes.collective == CollectiveType.ALL_TO_ALL)
    found = np.zeros(nodes.graph.n_nodes, np.bool_)
    # Nodes since the last closing reduction: a block lies within them, in issue order.
    since: list[int] = []
    weights = set()
    for node in order.tolist():
        since.append(node)
        if not closes[node]:
            continue
        if exchange[since].any():
            since = []  # what is divided there is experts
            continue
        starts = [
            i
            for i, each in enumerate(since)
            if any(_opens(p, tokens, whole // element) for p in nodes.gemms[each])
        ]
        # The last GEMM before a reduction ends its block, whatever its shape.
        closing = max(
            (i for i, each in enumerate(since) if any(p.m == tokens for p in nodes.gemms[each])),
            default=-1,
        )
        starts = [i for i in starts if i != closing] or starts
        if starts:
            found[since[starts[-1] :]] = True
            inside = [p for each in since[starts[-1] :] for p in nodes.gemms[each] if p.m == tokens]
            weights |= {frozenset((p.k, p.n)) for p in inside}
        since = []
    for node, each in enumerate(nodes.gemms):
        # A gradient sums over tokens (k) and has the shape of its weight, so it is matched by that shape.
        sums = [frozenset((p.m, p.n)) for p in each if p.k == tokens and p.batch == 1]
        found[node] = found[node] or (bool(sums) and all(weight in weights for weight in sums))
    return found & (nodes.kernel | nodes.along("cp")) & ~nodes.update


def _opens(gemm: Gemm, tokens: int, activation: int) -> bool:
    return gemm.m == tokens and gemm.m * gemm.k == activation and gemm.batch == 1


def parents_of(nodes: Nodes, which: Mask) -> Mask:
    """Return a mask of the direct predecessors of some nodes."""
    ptr, parents = nodes.graph.parents()
    found = np.zeros(nodes.graph.n_nodes, np.bool_)
    for node in np.flatnonzero(which).tolist():
        found[parents[ptr[node] : ptr[node + 1]]] = True
    return found


def children_of(nodes: Nodes, which: Mask) -> Mask:
    """Return a mask of the direct successors of some nodes."""
    ptr, parents = nodes.graph.parents()
    waited: Mask = np.concatenate([[0], np.cumsum(which[parents])])
    found: Mask = np.diff(waited[ptr]) > 0
    return found


def element_bytes(nodes: Nodes, at: list[int], whole: int) -> int:
    """Return the bytes per element with which most GEMMs have a matrix of `whole` bytes.

    Ties are broken by the bytes that the GEMMs of the nodes `at` move per element.
    """
    gemms = [gemm for node in at for gemm in nodes.gemms[node]]
    moved = int(nodes.graph.ints(SIZE)[at].sum()) / max(1, sum(gemm.elements for gemm in gemms))
    return max(
        ELEMENTS,
        key=lambda each: (sum(bool(list(third(p, whole // each))) for p in gemms), -abs(each - moved)),
    )


def third(gemm: Gemm, activation: int) -> Iterator[str]:
    """Yield the dimensions that are left when the other two are those of the activation."""
    for dim, (a, b) in {
        "n": (gemm.m, gemm.k),
        "k": (gemm.m, gemm.n),
        "m": (gemm.k, gemm.n),
    }.items():
        if a * b * gemm.calls == activation:
            yield dim
