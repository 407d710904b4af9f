"""Reductions and pooling: FLOPs for each element read, or for each element of a window."""

from __future__ import annotations

from math import prod
from typing import Any

from armillary.convert.pytorch.arguments import MalformedError
from armillary.convert.pytorch.operators.registry import Operator, Work, rule

FAMILY = "reduction"

ONCE = """
sum nansum mean nanmean prod max min amax amin aminmax _aminmax argmax argmin all any count_nonzero equal
trace sum_to_size cumsum cumprod cummax cummin _cummax_helper _cummin_helper
topk sort argsort kthvalue median nanmedian mode _unique2 unique_consecutive
unique_dim histc bincount searchsorted bucketize isin nonzero nonzero_static
_amp_foreach_non_finite_check_and_unscale masked_select adaptive_avg_pool1d adaptive_avg_pool2d
adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d mkldnn_adaptive_avg_pool2d adaptive_max_pool1d
adaptive_max_pool2d adaptive_max_pool3d segment_reduce
"""
TWICE = "norm linalg_vector_norm frobenius_norm native_norm logsumexp dist powsum logcumsumexp"
SPREAD = "var std var_mean std_mean"


def reads(op: Operator) -> int:
    """Return the elements of the first argument."""
    return op.size("self", 0)[0]


@rule(FAMILY, *ONCE.split(), "fbgemm::asynchronous_complete_cumsum", "fbgemm::asynchronous_exclusive_cumsum")
def once(op: Operator) -> int:
    """Return one FLOP for each element read: an addition or a comparison. Sorting counts like one pass."""
    return reads(op)


@rule(FAMILY, *TWICE.split())
def twice(op: Operator) -> int:
    """Return two FLOPs for each element read, such as square and add."""
    return 2 * reads(op)


@rule(FAMILY, *SPREAD.split())
def spread(op: Operator) -> int:
    """Return four FLOPs for each element read: add for the mean, then subtract, square, add."""
    return 4 * reads(op)


@rule(FAMILY, "nll_loss", "nll_loss_nd", "nll_loss_forward", "nll_loss2d_forward")
def nll_loss(op: Operator) -> Work:
    """Return one FLOP for each target, and bytes: of all scores it reads those of the targets."""
    targets = op.size("target", 1)[0]
    scores, read = op.size("self", 0)
    taken = targets * (read // scores) if scores else 0
    return Work(targets, op.bytes - read + taken)


@rule(FAMILY, "nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(op: Operator) -> Work:
    """Return one FLOP for each target, and bytes: the rest of the gradient is zeros, and no score is read."""
    return Work(op.size("target", 2)[0], op.bytes - op.size("self", 1)[1])


@rule(FAMILY, "max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "max_pool2d_with_indices")
@rule(FAMILY, "max_pool3d_with_indices", "mkldnn_max_pool2d", "mkldnn_max_pool3d")
@rule(FAMILY, "avg_pool1d", "avg_pool2d", "avg_pool3d")
def pool(op: Operator) -> int:
    """Return one FLOP for each element of the window of each element written."""
    # A window given as one size is as wide in every spatial dimension, which the name alone tells.
    spatial = 3 if "3d" in op.name else 2 if "2d" in op.name else 1
    return op.elements * _window(op.value("kernel_size", 1), spatial)


@rule(FAMILY, "avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(op: Operator) -> int:
    """Return one FLOP for each element of the window of each gradient read."""
    return reads(op) * _window(op.value("kernel_size", 2), 3 if "3d" in op.name else 2)


@rule(FAMILY, "max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", "max_pool2d_backward")
@rule(FAMILY, "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def max_pool_backward(op: Operator) -> int:
    """Return one FLOP for each gradient read: it is added where the maximum was."""
    return reads(op)


@rule(
    FAMILY, "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", "adaptive_avg_pool3d_backward"
)
@rule(FAMILY, "mkldnn_adaptive_avg_pool2d_backward")
def adaptive_backward(op: Operator) -> int:
    """Return one FLOP for each element written."""
    return op.elements


@rule(FAMILY, "upsample_bilinear2d", "_upsample_bilinear2d_aa", "upsample_bilinear2d_backward")
@rule(FAMILY, "grid_sampler_2d")
def bilinear(op: Operator) -> int:
    """Return 8 FLOPs for each element written: four GEMMs, and weights times their sum."""
    return 8 * op.elements


def _window(sizes: Any, spatial: int) -> int:
    """Return the elements of a window; one size stands for all dimensions."""
    if type(sizes) is not list or not sizes or any(type(size) is not int or size < 0 for size in sizes):
        raise MalformedError(sizes)
    window: int = prod(sizes)
    return window if len(sizes) > 1 else window**spatial
