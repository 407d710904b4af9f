"""Which dimensions of what an operator reads and writes are the same, for normalisation, attention and images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.lab.extrapolation.recorded.calls import Call, Tensor
from armillary.lab.extrapolation.recorded.dim_rules import rule, same_all
from armillary.lab.extrapolation.recorded.dimensions import Dim, product, regroup, same


@rule("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
def _norm(call: Call) -> None:
    source = call.tensor("input", 0)
    _normalised(call, source, [call.tensor("weight", 2), call.tensor("bias", 3)], call.outputs)


@rule("native_layer_norm_backward", "_fused_rms_norm_backward")
def _norm_backward(call: Call) -> None:
    source, out = call.tensor("input", 1), call.tensor("grad_out", 0)
    weights = [call.tensor("weight", -1), call.tensor("bias", -1), *call.outputs[1:]]
    statistics = [call.tensor("mean", -1), call.tensor("rstd", -1)]
    _normalised(call, source, weights, [out, call.result(), *statistics])


def _normalised(call: Call, source: Tensor | None, weights: Sequence[Any], others: Sequence[Any]) -> None:
    shape = call.value("normalized_shape", 1)
    if source is None or not isinstance(shape, list):
        return
    inner = source.dims[len(source.dims) - len(shape) :]
    for each in weights:
        if each is not None and not isinstance(each, list) and len(each.dims) == len(inner):
            same_all(inner, each.dims)
    for each in others:
        if each is not None and not isinstance(each, list):
            if each.shape == source.shape:
                same_all(source.dims, each.dims)
            else:  # a number of every row, with or without dimensions of 1
                regroup(source.dims[: len(source.dims) - len(inner)], each.dims)


ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_flash_attention_for_cpu",
    "scaled_dot_product_attention",
)


@rule(*ATTENTION, *(name + "_backward" for name in ATTENTION))
def _attention(call: Call) -> None:
    """Take query, key and value as [batch, heads, length, depth]; several heads may share one of key and value."""
    backward = call.name.endswith("_backward")
    query, key, value = (
        call.tensor(name, at + backward) for at, name in enumerate(("query", "key", "value"))
    )
    if (
        query is None
        or key is None
        or value is None
        or any(len(each.dims) != 4 for each in (query, key, value))
    ):
        return
    batch, heads, length, depth = query.dims
    for of in (key, value):
        same(batch, of.dims[0])
        if of.dims[1].size == heads.size:
            same(heads, of.dims[1])
        elif heads.size % of.dims[1].size == 0:
            same(heads, product([of.dims[1], Dim(heads.size // of.dims[1].size, whole=True)]))
    same_all(key.dims[1:3], value.dims[1:3])
    same(depth, key.dims[3])
    # The result has the queries' length and the values' depth.
    wide = (batch, heads, length, value.dims[3])
    # The depth of a head is never divided: tensor parallelism divides heads.
    for leaf in (*depth.leaves(), *value.dims[3].leaves()):
        leaf.whole = True
    if backward:
        for gradient, source in zip(call.outputs[:3], (query, key, value), strict=False):
            if gradient is not None and not isinstance(gradient, list):
                same_all(source.dims, gradient.dims)
        others = [call.tensor(name, -1) for name in ("grad_out", "out")]
        sums = call.tensor("logsumexp", -1)
    else:
        others, sums = [call.result()], call.result(1)
    for each in others:
        if each is not None and len(each.dims) == 4:
            same_all(wide, each.dims)
    if sums is not None:
        # Backends disagree about the order of the statistics; sizes decide.
        for order in ((batch, heads, length), (batch, length, heads)):
            if tuple(dim.size for dim in order) == sums.shape:
                same_all(order, sums.dims)
                break


@rule(
    "convolution",
    "_convolution",
    "conv2d",
    "convolution_overrideable",
    "mkldnn_convolution",
    "cudnn_convolution",
)
def _convolution(call: Call) -> None:
    source, weight, out = call.tensor("input", 0), call.tensor("weight", 1), call.result()
    if source is None or weight is None or out is None:
        return
    same(source.dims[0], out.dims[0])
    same(weight.dims[0], out.dims[1])
    same(source.dims[1], weight.dims[1])
    bias = call.tensor("bias", 2)
    if bias is not None and bias.dims:
        same(bias.dims[0], weight.dims[0])


@rule("convolution_backward")
def _convolution_backward(call: Call) -> None:
    gradient, source, weight = (
        call.tensor(name, at) for at, name in enumerate(("grad_output", "input", "weight"))
    )
    if gradient is None or source is None or weight is None:
        return
    same(gradient.dims[0], source.dims[0])
    same(gradient.dims[1], weight.dims[0])
    for made, of in zip(call.outputs, (source, weight), strict=False):
        if made is not None and not isinstance(made, list):
            same_all(of.dims, made.dims)


@rule("cudnn_batch_norm", "cudnn_batch_norm_backward", "miopen_batch_norm", "miopen_batch_norm_backward",
       "_native_batch_norm_legit", "native_batch_norm", "native_batch_norm_backward",
       "max_pool2d_with_indices", "max_pool2d_with_indices_backward",
       "avg_pool2d", "avg_pool2d_backward", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward",
       "mkldnn_max_pool2d", "upsample_nearest2d", "native_group_norm", "native_group_norm_backward")  # fmt: skip
def _images(call: Call) -> None:
    """Samples and channels come first."""
    tensors = [
        each for each in (*call.inputs, *call.outputs) if each is not None and not isinstance(each, list)
    ]
    first = next((each for each in tensors if len(each.dims) > 2), None)
    for each in tensors:
        if first is None:
            break
        if len(each.dims) == 1 and each.dims[0].size == first.dims[1].size:
            same(each.dims[0], first.dims[1])
        elif len(each.dims) == len(first.dims):
            for a, b in zip(each.dims, first.dims, strict=True):
                if a.size == b.size > 1:
                    same(a, b)
