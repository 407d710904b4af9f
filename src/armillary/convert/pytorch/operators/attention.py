"""Fused attention: two GEMMs forward, five backward, one of which recomputes the scores.

A causal mask does not halve them, and softmax is not counted, in agreement with `torch.utils.flop_counter`.
"""

from __future__ import annotations

from math import prod

from armillary.convert.pytorch.operators.registry import Operator, rule

FAMILY = "attention"
DENSE = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_flash_attention_for_cpu",
)


def gemms(pairs: int, depth: int, depth_value: int, *, backward: bool) -> int:
    """Return the FLOPs for `pairs` of a query and a key in all heads.

    Forward: scores and output. Backward: scores, gradients of query and key over `depth`; gradients of the
    probabilities and of the values over `depth_value`.
    """
    return 2 * pairs * (3 * depth + 2 * depth_value if backward else depth + depth_value)


def dense(op: Operator, first: int, *, backward: bool) -> int:
    """Return the FLOPs for query, key and value [batch, heads, length, depth] from position `first` on."""
    # Grouped-query attention: all heads of the query count, as `prod` takes them from the query alone.
    query, key = op.shape("query", first), op.shape("key", first + 1)
    value = op.shape("value", first + 2)
    return gemms(prod(query[:-1]) * key[-2], query[-1], value[-1], backward=backward)


@rule(FAMILY, "scaled_dot_product_attention", "_scaled_dot_product_attention_math", *DENSE)
def forward(op: Operator) -> int:
    """Return the FLOPs of attention with the heads before the length."""
    return dense(op, 0, backward=False)


@rule(FAMILY, *(name + "_backward" for name in DENSE))
def backward(op: Operator) -> int:
    """Return the FLOPs of its gradients."""
    return dense(op, 1, backward=True)


def packed(op: Operator, first: int, *, backward: bool) -> int:
    """Return the FLOPs for query, key and value [batch, length, heads, depth] or [tokens, heads, depth].

    With cumulative lengths the batch is packed; the trace has no values of tensors, so its sequences are taken
    to be equally long.
    """
    query, key = op.shape("query", first), op.shape("key", first + 1)
    value = op.shape("value", first + 2)
    names = ("cum_seq_q", "cu_seqlens_q", "cu_seqlens")
    lengths = [op.shape(name, -1) for name in names if name in op.schema.position]
    # Cumulative lengths have one entry more than there are sequences. A token meets only keys of its own sequence.
    sequences = lengths[0][0] - 1 if lengths and lengths[0] else 1
    pairs = prod(query[:-1]) * key[-3] // max(sequences, 1)
    return gemms(pairs, query[-1], value[-1], backward=backward)


@rule(FAMILY, "_flash_attention_forward", "_efficient_attention_forward", "_cudnn_attention_forward")
def packed_forward(op: Operator) -> int:
    """Return the FLOPs of attention with the length before the heads."""
    return packed(op, 0, backward=False)


@rule(FAMILY, "_flash_attention_backward", "_efficient_attention_backward", "_cudnn_attention_backward")
def packed_backward(op: Operator) -> int:
    """Return the FLOPs of its gradients."""
    return packed(op, 1, backward=True)
