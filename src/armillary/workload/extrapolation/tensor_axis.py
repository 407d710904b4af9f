"""Every matrix divided over more or fewer ranks, as Megatron-LM divides them (arXiv 1909.08053, 2205.05198)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from armillary.errors import InputError
from armillary.trace import CollectiveType
from armillary.trace.gemm import Gemm
from armillary.workload.extrapolation.kernels import Mask, Nodes, terms
from armillary.workload.extrapolation.scaling import SIZE, Scaling

ELEMENTS = (2, 4, 1)
GATHER, SCATTER, REDUCE = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_REDUCE


def scale_tensor(nodes: Nodes, old: int, new: int) -> Scaling:
    """Return what changes in a rank when tp goes from `old` to `new`.

    Kernels between the collectives that open and close a divided block do ``old / new`` of the work. Of a product
    two dimensions are those of the activation that the collective moves; the third is the divided one. Outside, with
    sequence parallelism (gathers and scatters instead of reductions), each rank has its share of the tokens.

    Raises:
        InputError: it cannot be seen how a product is divided.
    """
    made, share = Scaling(nodes), Fraction(old, new)
    own = nodes.over("tp", only=True)
    if (own & (nodes.collective == CollectiveType.ALL_TO_ALL)).any() or nodes.over("ep").any():
        raise InputError("scale tp: the trace has experts, whose division cannot be seen in one trace; expected a "
                         "second one with another tp (--also TRACE --at tp=N)")  # fmt: skip
    divided, sequence = _inside(nodes, own)
    size = nodes.graph.ints("comm_size")
    closing = SCATTER if sequence else REDUCE
    whole = int(size[own & (nodes.collective == closing)].max(initial=0))
    x = float(share)
    _products(made, nodes, divided, whole, share)
    plain = nodes.kernel & ~nodes.graph.has("gemm") & ~nodes.update
    made.assume("tensor: kernels inside of divided blocks do a share of the work", plain & divided, ops=x, size=x)
    outside = plain & ~divided
    if sequence:
        full = outside & _whole(nodes, own)
        made.assume("tensor: kernels outside of divided blocks have a share of the tokens", outside & ~full, ops=x, size=x)
        made.assume("tensor: kernels that read what was gathered, or whose result is scattered, stay", full)
    else:
        made.assume("tensor: kernels outside of divided blocks are repeated on every rank", outside)
    made.assume("tensor: weights and what updates them are divided", nodes.update, ops=x, size=x)
    made.assume("tensor: collectives of weights and gradients are divided", nodes.gradients & ~own, comm=x)
    made.assume("tensor: all-gathers shrink, whose size is of a rank's share", own & (nodes.collective == GATHER), comm=x)
    made.assume("tensor: reductions keep their size, which is of the whole", own & (nodes.collective != GATHER))
    stages = nodes.along("pp")
    made.assume("tensor: messages between stages " + ("are of a share of the tokens" if sequence else "keep their size"),
                stages, comm=x if sequence else 1.0)  # fmt: skip
    made.assume("tensor: messages round cp are of a share of the heads", nodes.along("cp"), comm=x)
    return made


def _inside(nodes: Nodes, own: Mask) -> tuple[Mask, bool]:
    """Return which nodes are inside of divided blocks, and whether there is sequence parallelism."""
    kind = nodes.collective
    sequence = bool((own & (kind == SCATTER)).any())
    size = nodes.graph.ints("comm_size")
    largest = int(size[own].max(initial=0))
    opens = own & (kind == GATHER) if sequence else np.zeros_like(own)
    closes = own & (kind == SCATTER) if sequence else own & (kind == REDUCE) & (2 * size >= largest)
    apart = nodes.along("pp")
    ignored = nodes.gradients | nodes.over("dp") | nodes.memory
    ptr, parents = nodes.graph.parents()
    state = np.zeros(nodes.graph.n_nodes, np.bool_)
    from armillary.trace.order import issue_order

    for node in issue_order(nodes.graph).tolist():
        if opens[node]:
            state[node] = True
        elif closes[node] or apart[node]:
            continue
        else:
            before = [each for each in parents[ptr[node] : ptr[node + 1]].tolist() if not ignored[each]]
            if any(opens[each] for each in before):
                state[node] = True
            else:
                state[node] = bool(before) and all(state[each] for each in before)
                state[node] |= not sequence and bool(nodes.multiplies[node])
    return state & ~nodes.update, sequence


def _whole(nodes: Nodes, own: Mask) -> Mask:
    """Say which kernels without products make what is scattered, so that they have all tokens."""
    ptr, parents = nodes.graph.parents()
    found = np.zeros(nodes.graph.n_nodes, np.bool_)
    for node in np.flatnonzero(own & (nodes.collective == SCATTER)).tolist():
        found[parents[ptr[node] : ptr[node + 1]]] = True
    return found & nodes.kernel & ~nodes.multiplies


def _products(made: Scaling, nodes: Nodes, divided: Mask, whole: int, share: Fraction) -> None:
    """Divide products: flops by the share, bytes by what of each matrix is divided."""
    at = np.flatnonzero(np.array([bool(each) for each in nodes.products]) & divided).tolist()
    known = [(node, product) for node in at for product in nodes.products[node]]
    if not known:
        return
    element = max(ELEMENTS, key=lambda each: sum(bool(list(_third(p, whole // each))) for _, p in known))
    size = nodes.graph.ints(SIZE)
    factor = np.ones(nodes.graph.n_nodes)
    unknown: Counter[str] = Counter()
    mask = np.zeros(nodes.graph.n_nodes, np.bool_)
    for node in at:
        products = nodes.products[node]
        moved, changed, total = 0.0, [], 0.0
        for product in products:
            part = int(size[node]) * product.elements // max(1, sum(each.elements for each in products))
            left, right, out = terms(product, part, int(nodes.operand[node]))
            total += left + right + out
            dims = ["batch"] if product.batch > 1 else list(_third(product, whole // element))
            if not dims:
                unknown[nodes.graph.name(node)] += 1
                continue
            dim = dims[-1] if nodes.graph.name(node).endswith(("down.gemm", "out.gemm")) and len(dims) > 1 else dims[0]
            changed.append(_divided(product, dim, share, nodes.graph.node(node)))
            x = float(share)
            moved += left * (x if dim in ("m", "k", "batch") else 1) + right * (x if dim in ("k", "n", "batch") else 1)
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
    made.assume("tensor: products inside of divided blocks lose a share of one dimension", mask, ops=share, size=factor)


def _third(product: Gemm, activation: int) -> Iterator[str]:
    """Yield the dimensions that are left when the other two are those of the activation."""
    for dim, (a, b) in {"n": (product.m, product.k), "k": (product.m, product.n), "m": (product.k, product.n)}.items():
        if a * b * product.calls == activation:
            yield dim


def _divided(product: Gemm, dim: str, share: Fraction, where: str) -> Gemm:
    value = getattr(product, dim) * share
    if value < 1:
        raise InputError(f"{where}: {dim} {getattr(product, dim)} of its product {product} cannot be divided further")
    # A dimension that does not divide is padded.
    return product._replace(**{dim: -(-value.numerator // value.denominator)})
