"""Every matrix divided over more or fewer ranks, as Megatron-LM divides them (arXiv 1909.08053, 2205.05198)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from armillary.errors import InputError
from armillary.trace import CollectiveType
from armillary.trace.attention import ATTENTION, Attention
from armillary.trace.gemm import GEMM, Gemm
from armillary.trace.order import issue_order
from armillary.workload.divisors import divisors, near
from armillary.workload.extrapolation.kernels import Mask, Nodes, accumulates, terms
from armillary.workload.extrapolation.scaling import SIZE, Scaling
from armillary.workload.extrapolation.token_axis import token_count

ELEMENTS = (2, 4, 1)
GATHER, SCATTER, REDUCE = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_REDUCE


@dataclass(frozen=True)
class Blocks:
    """What is divided in a graph: nodes, bytes of a whole activation, and whether there is sequence parallelism."""

    divided: Mask
    whole: int
    sequence: bool


def blocks_of(nodes: Nodes) -> Blocks:
    """Return what is divided in a graph.

    Raises:
        InputError: it has experts.
    """
    own = nodes.over("tp", only=True)
    if (own & (nodes.collective == CollectiveType.ALL_TO_ALL)).any() or nodes.over("ep").any():
        raise InputError("scale tp: the trace has experts, whose division cannot be seen in one trace; expected a "
                         "second one with another tp (--also TRACE --at tp=N)")  # fmt: skip
    size = nodes.graph.ints("comm_size")
    sequence = bool((own & (nodes.collective == SCATTER)).any())
    whole = int(size[own & (nodes.collective == (SCATTER if sequence else REDUCE))].max(initial=0))
    return Blocks(_inside(nodes, own) if sequence else _between(nodes, own, whole), whole, sequence)


def divided_part(ranks: Sequence[Nodes]) -> float:
    """Return which part of the weights of all products of these graphs is divided."""
    inside = outside = 0.0
    for nodes in ranks:
        divided = blocks_of(nodes).divided
        sizes = np.array([sum(p.k * p.n * p.batch for p in each) for each in nodes.products], float)
        outside += float(sizes[~divided & ~nodes.update].sum())
        inside += float(sizes[divided].sum())
    return inside / (inside + outside) if inside else 1.0


def scale_tensor(nodes: Nodes, old: int, new: int, part: float = 1.0) -> Scaling:
    """Return what changes in a rank when tp goes from `old` to `new`.

    Kernels between the collectives that open and close a divided block do ``old / new`` of the work. Of a product
    two dimensions are those of the activation that the collective moves; the third is the divided one. Outside, with
    sequence parallelism (gathers and scatters instead of reductions), each rank has its share of the tokens.

    Args:
        nodes: Of the rank.
        old: Ranks before.
        new: Ranks after.
        part: Of all weights that is divided, see `divided_part`.

    Raises:
        InputError: it cannot be seen how a product is divided, or ranks would have copies of heads.
    """
    made, share = Scaling(nodes), Fraction(old, new)
    _check_heads(nodes, old, new)
    own = nodes.over("tp", only=True)
    blocks = blocks_of(nodes)
    divided, whole, sequence = blocks.divided, blocks.whole, blocks.sequence
    x = float(share)
    closes = (
        own
        & (nodes.collective == (SCATTER if sequence else REDUCE))
        & (2 * nodes.graph.ints("comm_size") >= whole)
    )
    _products(made, nodes, blocks, _parents(nodes, closes), share)
    counted = (nodes.operations > 1) | (nodes.graph.ints(SIZE) > 0)
    plain = nodes.kernel & ~nodes.graph.has(GEMM) & ~nodes.update & counted
    full = plain & (_children(nodes, own & (nodes.collective == GATHER)) | _whole(nodes, own))
    divided = divided & ~full
    made.assume(
        "tensor: kernels inside of divided blocks do a share of the work", plain & divided, ops=x, size=x
    )
    made.attend(divided, heads=share, kv_heads=share)
    outside = plain & ~divided
    if sequence:
        made.assume(
            "tensor: kernels outside of divided blocks have a share of the tokens",
            outside & ~full,
            ops=x,
            size=x,
        )
        made.assume("tensor: kernels that read what was gathered, or whose result is scattered, stay", full)
    else:
        made.assume("tensor: kernels outside of divided blocks are repeated on every rank", outside)
    kept = 1 - part + part * x
    text = "tensor: weights, their gradients and what updates them are divided"
    text += "" if part == 1 else f", {part:.0%} of them as of the products"
    made.assume(text, nodes.update | (nodes.gradients & ~own), ops=kept, size=kept, comm=kept)
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


def _inside(nodes: Nodes, own: Mask) -> Mask:
    """Return which nodes are inside of blocks that a gather opens and a scatter closes (sequence parallelism)."""
    opens = own & (nodes.collective == GATHER)
    ends = (own & (nodes.collective == SCATTER)) | nodes.along("pp")
    ignored = nodes.gradients | nodes.over("dp") | nodes.memory
    ptr, parents = nodes.graph.parents()
    state = np.zeros(nodes.graph.n_nodes, np.bool_)
    for node in issue_order(nodes.graph).tolist():
        before = [each for each in parents[ptr[node] : ptr[node + 1]].tolist() if not ignored[each]]
        state[node] = opens[node] or (
            not ends[node]
            and (
                any(opens[each] for each in before) or (bool(before) and all(state[each] for each in before))
            )
        )
    return state & ~nodes.update


def _between(nodes: Nodes, own: Mask, whole: int) -> Mask:
    """Return which nodes are inside of blocks that a reduction closes.

    Such a block begins with the last product of whole rows of tokens before the reduction. Gradients of weights are
    inside where their weight is that of a product inside.
    """
    size = nodes.graph.ints("comm_size")
    closes = own & (nodes.collective == REDUCE) & (2 * size >= whole)
    tokens = token_count([p for each in nodes.products for p in each if p.batch == 1])
    products = [p for each in nodes.products for p in each]
    element = _element(products, whole)
    order = issue_order(nodes.graph)
    found = np.zeros(nodes.graph.n_nodes, np.bool_)
    since: list[int] = []
    weights = set()
    for node in order.tolist():
        since.append(node)
        if not closes[node]:
            continue
        starts = [
            i
            for i, each in enumerate(since)
            if any(_opens(p, tokens, whole // element) for p in nodes.products[each])
        ]
        # The last product before a reduction ends its block, whatever its shape.
        closing = max(
            (i for i, each in enumerate(since) if any(p.m == tokens for p in nodes.products[each])),
            default=-1,
        )
        starts = [i for i in starts if i != closing] or starts
        if starts:
            found[since[starts[-1] :]] = True
            inside = [p for each in since[starts[-1] :] for p in nodes.products[each] if p.m == tokens]
            weights |= {frozenset((p.k, p.n)) for p in inside}
        since = []
    for node, each in enumerate(nodes.products):
        sums = [frozenset((p.m, p.n)) for p in each if p.k == tokens and p.batch == 1]
        found[node] = found[node] or (bool(sums) and all(weight in weights for weight in sums))
    return found & (nodes.kernel | nodes.along("cp")) & ~nodes.update


def _opens(product: Gemm, tokens: int, activation: int) -> bool:
    return product.m == tokens and product.m * product.k == activation and product.batch == 1


def _whole(nodes: Nodes, own: Mask) -> Mask:
    """Say which kernels without products make what is scattered, so that they have all tokens."""
    return _parents(nodes, own & (nodes.collective == SCATTER)) & nodes.kernel & ~nodes.multiplies


def _parents(nodes: Nodes, which: Mask) -> Mask:
    """Return what some nodes wait for."""
    ptr, parents = nodes.graph.parents()
    found = np.zeros(nodes.graph.n_nodes, np.bool_)
    for node in np.flatnonzero(which).tolist():
        found[parents[ptr[node] : ptr[node + 1]]] = True
    return found


def _children(nodes: Nodes, which: Mask) -> Mask:
    """Return what waits for some nodes."""
    ptr, parents = nodes.graph.parents()
    waited: Mask = np.concatenate([[0], np.cumsum(which[parents])])
    found: Mask = np.diff(waited[ptr]) > 0
    return found


def _products(made: Scaling, nodes: Nodes, blocks: Blocks, last: Mask, share: Fraction) -> None:
    """Divide products: flops by the share, bytes by what of each matrix is divided; `last` ones close a block."""
    whole = blocks.whole
    at = np.flatnonzero(np.array([bool(each) for each in nodes.products]) & blocks.divided).tolist()
    known = [(node, product) for node in at for product in nodes.products[node]]
    if not known:
        return
    element = _element([product for _, product in known], whole)
    size = nodes.graph.ints(SIZE)
    factor = np.ones(nodes.graph.n_nodes)
    unknown: Counter[str] = Counter()
    mask, padded = np.zeros(nodes.graph.n_nodes, np.bool_), np.zeros(nodes.graph.n_nodes, np.bool_)
    for node in at:
        products = nodes.products[node]
        moved, changed, total = 0.0, [], 0.0
        for product in products:
            part = int(size[node]) * product.elements // max(1, sum(each.elements for each in products))
            left, right, out = terms(product, part, int(nodes.operand[node]))
            total += left + right + out
            dims = ["batch"] if product.batch > 1 else list(_third(product, whole // element))
            if len(dims) > 1:
                tokens = "k" if accumulates(product, part, int(nodes.operand[node])) else "m"
                dims = [dim for dim in dims if dim != tokens]
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


def _element(products: list[Gemm], whole: int) -> int:
    """Return the bytes of an element: those with which most products have `whole` bytes as one matrix."""
    return max(ELEMENTS, key=lambda each: sum(bool(list(_third(p, whole // each))) for p in products))


def _third(product: Gemm, activation: int) -> Iterator[str]:
    """Yield the dimensions that are left when the other two are those of the activation."""
    for dim, (a, b) in {
        "n": (product.m, product.k),
        "k": (product.m, product.n),
        "m": (product.k, product.n),
    }.items():
        if a * b * product.calls == activation:
            yield dim


def _divided(product: Gemm, dim: str, share: Fraction, where: str) -> Gemm:
    value = getattr(product, dim) * share
    if value < 1:
        raise InputError(
            f"{where}: {dim} {getattr(product, dim)} of its product {product} cannot be divided further"
        )
    # A dimension that does not divide is padded.
    return product._replace(**{dim: -(-value.numerator // value.denominator)})
