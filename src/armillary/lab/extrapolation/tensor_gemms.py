"""Finds the dimension of a GEMM that tensor parallelism divides, and divides it."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.expert_axis import Experts, is_gradient
from armillary.lab.extrapolation.kernels import Mask, Nodes, accumulates, terms
from armillary.lab.extrapolation.scaling import SIZE, Scaling
from armillary.lab.extrapolation.tensor_blocks import Blocks, element_bytes, third
from armillary.trace.gemm import Gemm


def divide_gemms(made: Scaling, nodes: Nodes, blocks: Blocks, last: Mask, share: Fraction) -> None:
    """Divide GEMMs: flops by the share, bytes by what of each matrix is divided; `last` ones close a block."""
    whole = blocks.whole
    at = np.flatnonzero(np.array([bool(each) for each in nodes.gemms]) & blocks.divided).tolist()
    if not at:
        return
    element = element_bytes(nodes, [node for node in at if not blocks.experts.inside[node]], whole)
    experts = blocks.experts
    common = _hidden(nodes, experts)
    size = nodes.graph.ints(SIZE)
    factor = np.ones(nodes.graph.n_nodes)
    unknown: Counter[str] = Counter()
    shares: dict[frozenset[int], int] = {}
    mask, padded = np.zeros(nodes.graph.n_nodes, np.bool_), np.zeros(nodes.graph.n_nodes, np.bool_)
    for node in at:
        gemms = nodes.gemms[node]
        moved, changed, total = 0.0, [], 0.0
        for gemm in gemms:
            # Bytes of a node with several GEMMs are divided among these by their elements.
            part = int(size[node]) * gemm.elements // max(1, sum(each.elements for each in gemms))
            left, right, out = terms(gemm, part, int(nodes.operand[node]))
            total += left + right + out
            if experts.inside[node]:
                dims = _of_expert(gemm, is_gradient(nodes, node, gemm, experts), common)
            else:
                # Tokens are never divided by tp: rows of the forward pass, summed over in a gradient of a
                # weight.
                tokens = "k" if accumulates(gemm, part, int(nodes.operand[node])) else "m"
                every = list(third(gemm, whole // element))
                dims = [dim for dim in every if dim != tokens]
                # Bytes of recorded GEMMs may be more than those of their matrices, so that all look like sums.
                dims = ["batch"] if gemm.batch > 1 else dims or every * (not blocks.sequence)
            if not dims and (blocks.sequence or experts.inside[node]):
                dims = _by_place(nodes, node, gemm, last, shares)
            if not dims:
                unknown[nodes.graph.name(node)] += 1
                continue
            # What is summed up after a GEMM was divided in what it sums over itself.
            dim = "k" if last[node] and "k" in dims else dims[0]
            changed.append(_divided(gemm, dim, share, nodes.graph.node(node)))
            padded[node] |= (getattr(gemm, dim) * share).denominator > 1
            # Each matrix shrinks only if it has the divided dimension: left is m k, right k n, the result m
            # n.
            x = float(share)
            moved += left * (x if dim in ("m", "k", "batch") else 1) + right * (
                x if dim in ("k", "n", "batch") else 1
            )
            moved += out * (x if dim in ("m", "n", "batch") else 1)
        factor[node] = moved / total if total else 1.0
        made.gemms[node] = tuple(changed)
        mask[node] = True
    if unknown:
        names = ", ".join(f"'{name}' ({count})" for name, count in unknown.most_common(4))
        raise InputError(
            f"scale tp: it cannot be seen which dimension of {unknown.total()} GEMMs is divided: {names}; "
            "expected a second trace with another tp (--also TRACE --at tp=N)"
        )
    made.assume(
        "tensor: GEMMs inside of divided blocks lose a share of one dimension",
        mask,
        ops=share,
        size=factor,
    )
    made.note("tensor: dimensions that do not divide are padded in GEMMs, not in operations", padded)


def _by_place(
    nodes: Nodes, node: int, gemm: Gemm, last: Mask, shares: dict[frozenset[int], int]
) -> list[str]:
    """Return the dimension of a GEMM that is divided, by what is around it: one that closes a block sums over it.

    So it is where activations are smaller than others (latent attention), or a weight as wide as a token. Gradients of
    weights are divided as the weight was, `shares` keeps what of it that is; of square ones that of the GEMM is,
    whose result was scattered.
    """
    if not accumulates(gemm, int(nodes.graph.ints(SIZE)[node]), int(nodes.operand[node])):
        dim = "k" if last[node] else "n"
        shares[frozenset((gemm.k, gemm.n))] = getattr(gemm, dim)
        return [dim]
    if gemm.m == gemm.n:
        ptr, parents = nodes.graph.parents()
        return ["n"] if last[parents[ptr[node] : ptr[node + 1]]].any() else ["m"]
    divided = shares.get(frozenset((gemm.m, gemm.n)))
    return [dim for dim in "nm" if getattr(gemm, dim) == divided]


def divide_rows(made: Scaling, nodes: Nodes, which: Mask, share: Fraction) -> None:
    """Give GEMMs of weights that every rank has whole a share of the tokens."""
    size, factor = nodes.graph.ints(SIZE), np.ones(nodes.graph.n_nodes)
    for node in np.flatnonzero(which).tolist():
        before, after, changed = int(size[node]), 0.0, []
        for gemm in nodes.gemms[node]:
            part = before * gemm.elements // max(1, sum(each.elements for each in nodes.gemms[node]))
            gradient = accumulates(gemm, part, int(nodes.operand[node]))
            # Tokens are m in forward (left and result have them) and k in a gradient (left and right have
            # them).
            left, right, out = terms(gemm, part, int(nodes.operand[node]))
            x = float(share)
            after += left * x + (right * x + out if gradient else right + out * x)
            changed.append(_divided(gemm, "k" if gradient else "m", share, nodes.graph.node(node)))
        factor[node] = after / before if before else 1.0
        made.gemms[node] = tuple(changed)
    made.assume(
        "tensor: GEMMs outside of divided blocks have a share of the tokens", which, ops=share, size=factor
    )


def _hidden(nodes: Nodes, experts: Experts) -> set[int]:
    """Return the width of a token: what all GEMMs of experts have in common besides their rows."""
    found: set[int] | None = None
    for node in np.flatnonzero(experts.inside).tolist():
        for gemm in nodes.gemms[node]:
            mine = {gemm.m, gemm.n} if is_gradient(nodes, node, gemm, experts) else {gemm.k, gemm.n}
            found = mine if found is None else found & mine
    return found or set()


def _of_expert(gemm: Gemm, gradient: bool, common: set[int]) -> list[str]:
    """Return the dimension of an expert's GEMM that is neither rows nor the width of a token; []: it is not seen."""
    found = [dim for dim in ("mn" if gradient else "nk") if getattr(gemm, dim) not in common]
    return found if len(found) == 1 else []


def _divided(gemm: Gemm, dim: str, share: Fraction, where: str) -> Gemm:
    value = getattr(gemm, dim) * share
    if value < 1:
        raise InputError(f"{where}: {dim} {getattr(gemm, dim)} of its GEMM {gemm} cannot be divided further")
    # A dimension that does not divide is padded.
    return gemm._replace(**{dim: -(-value.numerator // value.denominator)})
