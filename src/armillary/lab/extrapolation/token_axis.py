"""More samples in a microbatch, or longer sequences."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Literal

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.kernels import FUSED, WEIGHTS, Mask, Nodes, accumulates, terms
from armillary.lab.extrapolation.scaling import SIZE, Scaling
from armillary.lab.extrapolation.shapes import Sizes, has_shapes, shape_factors, token_sizes
from armillary.trace.attention import ATTENTION
from armillary.trace.gemm import GEMM, Gemm

Axis = Literal["batch", "sequence", "context", "ring"]
"""What grows: samples, their length, or the queries of a rank, with all keys at once or, in a ring, some at a time."""
GROWS = {
    "batch": ("batch",),
    "sequence": ("queries", "keys"),
    "context": ("queries",),
    "ring": ("queries", "keys"),
}
"""Dimensions of fused attention."""
SHARED = {"batch": "samples", "context": "queries", "ring": "queries"}


def scale_tokens(nodes: Nodes, axis: Axis, factor: Fraction, sizes: Sizes | None = None) -> Scaling:
    """Return what changes in a rank with `factor` times as many samples, or samples `factor` times as long.

    Activations and GEMMs with weights are linear in the tokens; scores of attention are quadratic in the length;
    weights, their gradients and the optimizer stay. Operators that name the shapes of their tensors follow these.

    Args:
        nodes: Of the rank.
        axis: What grows.
        factor: By how much.
        sizes: Samples of a microbatch and tokens of a sample; absent: as the shapes of token ids say.
    """
    made, f = Scaling(nodes), float(factor)
    codes, distinct = nodes.graph.name_codes()
    by_name = np.array([bool(WEIGHTS.search(name)) for name in distinct], np.bool_)[codes]
    constant = nodes.update | (by_name & nodes.memory)
    made.assume("tokens: weights and what updates them stay", constant | nodes.gradients)
    activations = nodes.large & ~nodes.gradients
    made.assume("tokens: collectives of activations are linear in the tokens", activations, comm=f)
    made.assume("tokens: messages are linear in the tokens", nodes.message, comm=f)
    scores = _gemms(made, nodes, axis, factor, constant)
    counted = (nodes.operations > 1) | (nodes.graph.ints(SIZE) > 0)
    plain = (nodes.kernel | nodes.memory) & ~nodes.graph.has(GEMM) & ~constant & counted
    shaped = plain & has_shapes(nodes.graph)
    attends = np.array([bool(FUSED.search(name)) for name in distinct], np.bool_)[codes]
    core = plain & nodes.multiplies & (attends | ~shaped)
    # A longer sequence has more queries and more keys; more samples are as many more independent products.
    square = f * f if axis == "sequence" else f
    law = "quadratic in the length" if axis == "sequence" else f"linear in the {SHARED[axis]}"
    made.assume(
        f"tokens: operations of fused attention are {law}, its bytes linear", core, ops=square, size=f
    )
    made.attend(core, **dict.fromkeys(GROWS[axis], factor))
    # Softmax, mask and dropout between the two GEMMs of unfused attention work on scores.
    between = plain & ~core & _between(nodes, scores)
    made.assume(f"tokens: what reads and writes scores is {law}", between, ops=square, size=square)
    rest = plain & ~core & ~between
    shaped &= rest
    if shaped.any():
        sizes = sizes or token_sizes(nodes.graph)
        if sizes is None:
            raise InputError(
                f"scale {axis}: {nodes.graph.source} has {int(shaped.sum())} operators with shapes, but no token ids "
                "that show the batch and the length; expected --sizes batch=N,sequence=N"
            )
        ops, size = shape_factors(nodes.graph, sizes, axis, f)
        text = f"tokens: operators grow by their tensors that have a batch of {sizes[0]} or a length of {sizes[1]}"
        made.assume(text, shaped, ops=ops, size=size)
    made.assume("tokens: other kernels are linear in the tokens", rest & ~shaped, ops=f, size=f)
    return made


def _gemms(made: Scaling, nodes: Nodes, axis: Axis, factor: Fraction, constant: Mask) -> Mask:
    """Scale GEMMs; return which are of scores."""
    n = nodes.graph.n_nodes
    # Batched GEMMs are left out: they are scores or experts, which do not have all tokens as a dimension.
    tokens = token_count([p for each in nodes.gemms for p in each if p.batch == 1])
    size = nodes.graph.ints(SIZE)
    scores, others = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    ops, moved = np.ones(n), np.ones(n)
    unfused = not nodes.graph.has(ATTENTION).any()  # else what comes in batches are experts
    named = any(name.endswith("weight") for name in nodes.graph.name_codes()[1])
    for node, gemms in enumerate(nodes.gemms):
        if not gemms or constant[node]:
            continue
        by_name = nodes.graph.name(node).endswith("weight")
        dims: list[tuple[str, ...]] = []
        for gemm in gemms:
            if unfused and gemm.batch > 1 and (pair := _pair(gemm)):
                scores[node] = True
                dims.append(("batch",) if axis == "batch" else pair)
            else:
                others[node] = True
                wide = accumulates(gemm, int(size[node]), int(nodes.operand[node]))
                if axis == "sequence" and gemm.calls > 1 and gemm.calls * gemm.m == tokens:
                    dims.append(("calls",))  # one call for each token of a sample: a recurrence
                else:
                    dims.append(("k",) if over_tokens(gemm, tokens, by_name if named else wide) else ("m",))
        before = sum(gemm.operations for gemm in gemms)
        changed = tuple(_grown(p, d, factor) for p, d in zip(gemms, dims, strict=True))
        ops[node] = sum(gemm.operations for gemm in changed) / before
        total = after = 0.0
        for gemm, dim in zip(gemms, dims, strict=True):
            part = int(size[node]) * gemm.elements // sum(each.elements for each in gemms)
            for term, own in zip(
                terms(gemm, part, int(nodes.operand[node])), ("mk", "kn", "mn"), strict=True
            ):
                total += term
                times = sum(d in own or d in ("batch", "calls") for d in dim)
                after += term * float(factor) ** times
        # Each of the three matrices grows by the dimensions that it has.
        moved[node] = after / total if total else 1.0
        if scores[node] and axis == "sequence":
            moved[node] = _with_scores(gemms, int(size[node]), int(nodes.operand[node]), float(factor))
        made.gemms[node] = changed
    text = "tokens: GEMMs with weights are linear in the tokens; the bytes of the weights stay"
    made.assume(text, others, ops=ops, size=moved)
    law = "the samples" if axis == "batch" else "the square of the length"
    made.assume(f"tokens: GEMMs of scores grow by {law}", scores, ops=ops, size=moved)
    return scores


def _with_scores(gemms: tuple[Gemm, ...], size: int, operand: int, factor: float) -> float:
    """Return by what the bytes of GEMMs of scores grow: the scores by the square, queries, keys and values not.

    Of several GEMMs of a kernel as many read or write scores as its bytes have room for.
    """
    # Bytes of one matrix of scores, batch included.
    each = max(getattr(p, a) * getattr(p, b) * p.batch for p in gemms for a, b in [_pair(p)]) * operand
    square = min(each * min(len(gemms), size // each), size) if size >= each else size
    return (square * factor**2 + (size - square) * factor) / size if size else 1.0


def token_count(gemms: list[Gemm]) -> int:
    """Return the dimension of GEMMs that counts tokens: rows, or summed over for the gradient of a weight.

    It is never the number of columns of a GEMM or of one of its two gradients.
    """
    # A GEMM and its two gradients have the same three dimensions in different roles.
    groups: dict[tuple[int, ...], list[Gemm]] = {}
    for gemm in gemms:
        groups.setdefault(tuple(sorted((gemm.m, gemm.n, gemm.k))), []).append(gemm)
    votes: Counter[int] = Counter()
    for each in groups.values():
        columns = {gemm.n for gemm in each}
        left = {value for gemm in each for value in (gemm.m, gemm.k)} - columns
        # Over the three, the tokens are m, m and k; weights' dimensions are n at least once. What is never n
        # is the tokens.
        if len(each) > 1 and len(left) == 1:
            votes[left.pop()] += len(each)
    # Forward only, or fused: the most common row or sum dimension is the best guess.
    if not votes:
        votes.update(value for gemm in gemms for value in {gemm.m, gemm.k})
    return votes.most_common(1)[0][0] if votes else 0


def over_tokens(gemm: Gemm, tokens: int, otherwise: bool) -> bool:
    """Say whether a GEMM sums over tokens: the gradient of a weight does."""
    if (gemm.m == tokens) != (gemm.k == tokens):
        return gemm.k == tokens
    return otherwise


def _pair(gemm: Gemm) -> tuple[str, ...]:
    """Return the two dimensions of a batched GEMM that are the length of a sequence; () where it has none."""
    for pair in (("m", "n"), ("m", "k"), ("n", "k")):
        if getattr(gemm, pair[0]) == getattr(gemm, pair[1]):
            return pair
    return ()


def _grown(gemm: Gemm, dims: tuple[str, ...], factor: Fraction) -> Gemm:
    values = {dim: getattr(gemm, dim) * factor for dim in dims}
    return gemm._replace(
        **{dim: max(1, -(-value.numerator // value.denominator)) for dim, value in values.items()}
    )


def _between(nodes: Nodes, scores: Mask) -> Mask:
    """Return a mask of the kernels between two GEMMs of scores, such as a softmax."""
    ptr, parents = nodes.graph.parents()
    found = np.zeros(len(scores), np.bool_)
    for node in np.flatnonzero(scores).tolist():
        for parent in parents[ptr[node] : ptr[node + 1]].tolist():
            found[parent] |= bool(scores[parents[ptr[parent] : ptr[parent + 1]]].any())
    return found & nodes.kernel & ~scores
