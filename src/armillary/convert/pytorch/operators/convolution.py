"""Convolutions: each weight meets each point of the output, of a transposed one each point of the input.

As for GEMMs a bias is not counted. Padding counts like data, as kernels do not skip it.
"""

from __future__ import annotations

from math import prod

from armillary.convert.pytorch.operators.registry import Operator, rule

FAMILY = "convolution"


def passes(points: list[int], channels: int, weight: list[int]) -> int:
    """Return the FLOPs of using `weight` at each of `points`, a shape with `channels` among its sizes."""
    # A weight of [out, in / groups, …] already counts each input channel of its group once.
    return 2 * (prod(points) // channels if channels else 0) * prod(weight)


def forward(op: Operator, *, transposed: bool) -> int:
    """Return the FLOPs of a convolution with weight [out, in / groups, …], transposed [in, out / groups, …]."""
    weight = op.shape("weight", 1)
    return passes(op.shape("input", 0) if transposed else op.result_shape(), weight[0], weight)


@rule(FAMILY, "convolution", "_convolution", "convolution_overrideable")
def convolution(op: Operator) -> int:
    """Return the FLOPs of a convolution with an argument ``transposed``."""
    return forward(op, transposed=bool(op.value("transposed", 6)))


@rule(FAMILY, "conv1d", "conv2d", "conv3d", "_convolution_mode", "thnn_conv2d", "_slow_conv2d_forward")
@rule(FAMILY, "slow_conv3d", "slow_conv3d_forward", "slow_conv_dilated2d", "slow_conv_dilated3d")
@rule(FAMILY, "cudnn_convolution", "cudnn_convolution_relu", "cudnn_convolution_add_relu")
@rule(FAMILY, "miopen_convolution", "miopen_convolution_relu", "miopen_convolution_add_relu")
@rule(FAMILY, "mkldnn_convolution", "_nnpack_spatial_convolution", "_mps_convolution")
@rule(FAMILY, "_conv_depthwise2d", "conv_depthwise3d", "miopen_depthwise_convolution")
def plain(op: Operator) -> int:
    """Return the FLOPs of a convolution that is not transposed."""
    return forward(op, transposed=False)


@rule(FAMILY, "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cudnn_convolution_transpose")
@rule(FAMILY, "slow_conv_transpose2d", "slow_conv_transpose3d", "miopen_convolution_transpose")
@rule(FAMILY, "_mps_convolution_transpose")
def transposed(op: Operator) -> int:
    """Return the FLOPs of a transposed convolution."""
    return forward(op, transposed=True)


@rule(FAMILY, "convolution_backward", "convolution_backward_overrideable")
def convolution_backward(op: Operator) -> int:
    """Return the FLOPs of the gradients of a convolution with an argument ``transposed``."""
    return gradients(op, transposed=bool(op.value("transposed", 7)))


@rule(FAMILY, "_slow_conv2d_backward", "cudnn_convolution_backward", "miopen_convolution_backward")
@rule(FAMILY, "mkldnn_convolution_backward")
def plain_backward(op: Operator) -> int:
    """Return the FLOPs of the gradients of a convolution that is not transposed."""
    return gradients(op, transposed=False)


def gradients(op: Operator, *, transposed: bool) -> int:
    """Return the FLOPs of what ``output_mask`` asks for: gradients of input and weight cost one forward each.

    Groups divide the gradient of the weight too; `torch.utils.flop_counter` (2.13) leaves that out.
    """
    weight = op.shape("weight", 2)
    points = op.shape("input", 1) if transposed else op.shape("grad_output", 0)
    # The last argument in all variants; its third flag asks for the bias, whose sum is not counted.
    mask = op.value("output_mask", len(op.inputs.values) - 1)
    return sum(map(bool, mask[:2])) * passes(points, weight[0], weight)
