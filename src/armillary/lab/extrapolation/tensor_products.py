"""Which dimension of a product tensor parallelism divides, and what that makes of it."""

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


def divide_products(made: Scaling, nodes: Nodes, blocks: Blocks, last: Mask, share: Fraction) -> None:
    """Divide products: flops by the share, bytes by what of each matrix is divided; `last` ones close a block."""
    whole = blocks.whole
    at = np.flatnonzero(np.array([bool(each) for each in nodes.products]) & blocks.divided).tolist()
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
        products = nodes.products[node]
        moved, changed, total = 0.0, [], 0.0
        for product in products:
            part = int(size[node]) * product.elements // max(1, sum(each.elements for each in products))
            left, right, out = terms(product, part, int(nodes.operand[node]))
            total += left + right + out
            if experts.inside[node]:
                dims = _of_expert(product, is_gradient(nodes, node, product, experts), common)
            else:
                tokens = "k" if accumulates(product, part, int(nodes.operand[node])) else "m"
                every = list(third(product, whole // element))
                dims = [dim for dim in every if dim != tokens]
                # Bytes of recorded products may be more than those of their matrices, so that all look like sums.
                dims = ["batch"] if product.batch > 1 else dims or every * (not blocks.sequence)
            if not dims and (blocks.sequence or experts.inside[node]):
                dims = _by_place(nodes, node, product, last, shares)
            if not dims:
                unknown[nodes.graph.name(node)] += 1
                continue
            # What is summed up after a product was divided in what it sums over itself.
            dim = "k" if last[node] and "k" in dims else dims[0]
            changed.append(_divided(product, dim, share, nodes.graph.node(node)))
            padded[node] |= (getattr(product, dim) * share).denominator > 1
            x = float(share)
            moved += left * (x if dim in ("m", "k", "batch") else 1) + right * (
                x if dim in ("k", "n", "batch") else 1
            )
            moved += out * (x if dim in ("m", "n", "batch") else 1)
        factor[node] = moved / total if total else 1.0
        made.products[node] = tuple(changed)
        mask[node] = True
    if unknown:
        names = ", ".join(f"'{name}' ({count})" for name, count in unknown.most_common(4))
        raise InputError(
            f"scale tp: it cannot be seen which dimension of {unknown.total()} products is divided: {names}; "
            "expected a second trace with another tp (--also TRACE --at tp=N)"
        )
    made.assume(
        "tensor: products inside of divided blocks lose a share of one dimension",
        mask,
        ops=share,
        size=factor,
    )
    made.note("tensor: dimensions that do not divide are padded in products, not in operations", padded)


def _by_place(
    nodes: Nodes, node: int, product: Gemm, last: Mask, shares: dict[frozenset[int], int]
) -> list[str]:
    """Return the dimension of a product that is divided, by what is around it: one that closes a block sums over it.

    So it is where activations are smaller than others (latent attention), or a weight as wide as a token. Gradients of
    weights are divided as the weight was, `shares` keeps what of it that is; of square ones that of the product is,
    whose result was scattered.
    """
    if not accumulates(product, int(nodes.graph.ints(SIZE)[node]), int(nodes.operand[node])):
        dim = "k" if last[node] else "n"
        shares[frozenset((product.k, product.n))] = getattr(product, dim)
        return [dim]
    if product.m == product.n:
        ptr, parents = nodes.graph.parents()
        return ["n"] if last[parents[ptr[node] : ptr[node + 1]]].any() else ["m"]
    divided = shares.get(frozenset((product.m, product.n)))
    return [dim for dim in "nm" if getattr(product, dim) == divided]


def divide_rows(made: Scaling, nodes: Nodes, which: Mask, share: Fraction) -> None:
    """Give products of weights that every rank has whole a share of the tokens."""
    size, factor = nodes.graph.ints(SIZE), np.ones(nodes.graph.n_nodes)
    for node in np.flatnonzero(which).tolist():
        before, after, changed = int(size[node]), 0.0, []
        for product in nodes.products[node]:
            part = before * product.elements // max(1, sum(each.elements for each in nodes.products[node]))
            gradient = accumulates(product, part, int(nodes.operand[node]))
            left, right, out = terms(product, part, int(nodes.operand[node]))
            x = float(share)
            after += left * x + (right * x + out if gradient else right + out * x)
            changed.append(_divided(product, "k" if gradient else "m", share, nodes.graph.node(node)))
        factor[node] = after / before if before else 1.0
        made.products[node] = tuple(changed)
    made.assume(
        "tensor: products outside of divided blocks have a share of the tokens", which, ops=share, size=factor
    )


def _hidden(nodes: Nodes, experts: Experts) -> set[int]:
    """Return the width of a token: what all products of experts have in common besides their rows."""
    found: set[int] | None = None
    for node in np.flatnonzero(experts.inside).tolist():
        for product in nodes.products[node]:
            mine = (
                {product.m, product.n}
                if is_gradient(nodes, node, product, experts)
                else {product.k, product.n}
            )
            found = mine if found is None else found & mine
    return found or set()


def _of_expert(product: Gemm, gradient: bool, common: set[int]) -> list[str]:
    """Return the dimension of an expert's product that is neither rows nor the width of a token; []: it is not seen."""
    found = [dim for dim in ("mn" if gradient else "nk") if getattr(product, dim) not in common]
    return found if len(found) == 1 else []


def _divided(product: Gemm, dim: str, share: Fraction, where: str) -> Gemm:
    value = getattr(product, dim) * share
    if value < 1:
        raise InputError(
            f"{where}: {dim} {getattr(product, dim)} of its product {product} cannot be divided further"
        )
    # A dimension that does not divide is padded.
    return product._replace(**{dim: -(-value.numerator // value.denominator)})
