"""Normalisations: FLOPs for each element of the input.

Forward: mean 1, variance 3 (subtract, square, add), normalise 2, scale and shift 2: 8. Without statistics to find
(evaluation) 4. Root mean square: square, add, scale, weight: 4. Backward: normalise 2, gradient times weight 1, the two
sums 3, input's gradient 5, gradients of weight and bias 3: 14; of root mean square 9.
"""

from __future__ import annotations

from armillary.convert.pytorch.operators.registry import Operator, rule

FAMILY = "normalization"


def _each(op: Operator, flops: int, name: str = "input", position: int = 0) -> int:
    return flops * op.size(name, position)[0]


@rule(FAMILY, "native_layer_norm", "layer_norm", "native_group_norm", "group_norm", "instance_norm")
def statistics(op: Operator) -> int:
    """Return the FLOPs of a norm that finds mean and variance."""
    return _each(op, 8)


@rule(
    FAMILY,
    "native_batch_norm",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "batch_norm",
    "_batch_norm_impl_index",
)
@rule(FAMILY, "_native_batch_norm_legit", "_native_batch_norm_legit_functional")
def batch_norm(op: Operator) -> int:
    """Return the FLOPs of a norm that finds mean and variance only in training."""
    # In evaluation the running statistics are given.
    return _each(op, 8 if op.value("training", 5) else 4)


@rule(FAMILY, "_batch_norm_with_update", "_batch_norm_with_update_functional")
def batch_norm_update(op: Operator) -> int:
    """Return the FLOPs of a batch norm in training."""
    return _each(op, 8)


@rule(FAMILY, "_batch_norm_no_update", "_native_batch_norm_legit_no_training", "batch_norm_elemt")
def batch_norm_fixed(op: Operator) -> int:
    """Return the FLOPs of a batch norm with known statistics."""
    return _each(op, 4)


@rule(FAMILY, "batch_norm_stats", "batch_norm_update_stats")
def batch_norm_stats(op: Operator) -> int:
    """Return the FLOPs of mean and variance."""
    return _each(op, 4)


@rule(FAMILY, "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts")
def batch_norm_gather_stats(op: Operator) -> int:
    """Return the FLOPs of joining mean and variance of several devices."""
    return _each(op, 8, "mean", 1)


@rule(FAMILY, "rms_norm", "_fused_rms_norm")
def rms_norm(op: Operator) -> int:
    """Return the FLOPs of a norm by the root mean square."""
    return _each(op, 4)


@rule(FAMILY, "_fused_rms_norm_backward")
def rms_norm_backward(op: Operator) -> int:
    """Return the FLOPs of its gradients."""
    return _each(op, 9, "grad_out", 0)


@rule(FAMILY, "native_layer_norm_backward", "native_group_norm_backward", "native_batch_norm_backward")
@rule(FAMILY, "cudnn_batch_norm_backward", "miopen_batch_norm_backward", "batch_norm_backward")
@rule(FAMILY, "_batch_norm_impl_index_backward")
def backward(op: Operator) -> int:
    """Return the FLOPs of the gradients of input, weight and bias."""
    return _each(op, 14, "input", 1)


@rule(FAMILY, "batch_norm_backward_reduce", "batch_norm_backward_elemt")
def backward_part(op: Operator) -> int:
    """Return half of them: the backward pass across devices is done in two."""
    return _each(op, 7, "input", 1)


@rule(FAMILY, "_weight_norm_interface", "_weight_norm")
def weight_norm(op: Operator) -> int:
    """Return 3 FLOPs for each element: square, add, scale."""
    return 3 * op.size("v", 0)[0]
