"""Operators for which PyTorch has no rule on tensors without memory: what they give, as far as sizes and types go.

CUDA has them and the CPU has not, or they are of `c10d`. Signatures are those of PyTorch's ``native_functions.yaml``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _statistics(x: Any, *_: Any) -> tuple[Any, Any]:
    """Mean and inverse deviation of each channel, in fp32 for 16-bit types."""
    single = x.dtype.itemsize < 4
    kept = {"dtype": x.new_empty(0).float().dtype} if single else {}
    return x.new_empty(x.shape[1], **kept), x.new_empty(x.shape[1], **kept)


def _gathered(x: Any, mean: Any, *_: Any) -> tuple[Any, Any]:
    return mean.new_empty(x.shape[1]), mean.new_empty(x.shape[1])


def _reduced(_: Any, x: Any, mean: Any, invstd: Any, weight: Any, *wanted: bool) -> tuple[Any, ...]:
    """Sums over the gradient, and the gradients of weight and bias, each where it is wanted."""
    own = weight if weight is not None else mean
    kinds = (mean, mean, own, own)
    needed = (wanted[0], wanted[0], wanted[1], wanted[2])
    return tuple(
        each.new_empty(x.shape[1]) if need else None for each, need in zip(kinds, needed, strict=True)
    )


def _rms_norm(x: Any, normalized: Any, *_: Any) -> tuple[Any, Any]:
    """Return the norm, and 1 / root mean square of each row, in fp32 for 16-bit types."""
    rows = (*x.shape[: x.dim() - len(normalized)], *(1 for _ in normalized))
    single = {"dtype": x.new_empty(0).float().dtype} if x.dtype.itemsize < 4 else {}
    return x.new_empty(x.shape), x.new_empty(rows, **single)


def _gru_cell(gates: Any, _: Any, state: Any, *__: Any) -> tuple[Any, Any]:
    rows, width = state.shape
    return state.new_empty(rows, width), gates.new_empty(rows, 5 * width)


def _gru_cell_backward(gradient: Any, _: Any, has_bias: bool) -> tuple[Any, ...]:
    rows, width = gradient.shape
    gates = [gradient.new_empty(rows, 3 * width) for _ in range(2)]
    biases = [gradient.new_empty(3 * width) if has_bias else None for _ in range(2)]
    return (*gates, gradient.new_empty(rows, width), *biases)


def _ctc(x: Any, targets: Any, *_: Any) -> tuple[Any, Any]:
    """Losses and log alpha of (time, batch, classes); as many targets as the widest of the batch has."""
    steps, batch = x.shape[:2]
    most = targets.shape[1] if targets.dim() == 2 else -(-targets.numel() // batch)
    return x.new_empty(batch), x.new_empty(batch, steps, 2 * most + 1)


def _like(at: int) -> Callable[..., Any]:
    return lambda *args, **_: args[at].new_empty(args[at].shape)


def _no(*_: Any) -> bool:
    return False


def _nothing(*_: Any, **__: Any) -> None:
    """In place: nothing is given back."""


def rules(torch: Any) -> dict[str, Callable[..., Any]]:
    """Return what gives the results of an operator, by its name; called with its arguments in FakeTensorMode."""
    c10d = torch.ops.c10d

    def work(name: str) -> Callable[..., Any]:
        """Ask for one of several collectives: its `Work` stands for that of all."""
        one = getattr(c10d, name)
        if name == "allreduce_":
            return lambda tensors, group, operation, *rest: one(tensors[:1], group, operation, None, *rest)[1]
        if name == "allgather_":
            return lambda outputs, inputs, *rest: one(outputs[:1], inputs[:1], *rest)[1]
        return lambda outputs, inputs, *rest: one(outputs[0], inputs[0], *rest)[1]

    fused = ("sgd", "adagrad", "adam", "adamw")
    return {
        "aten::batch_norm_stats": _statistics,
        "aten::batch_norm_update_stats": _statistics,
        "aten::batch_norm_gather_stats": _gathered,
        "aten::batch_norm_gather_stats_with_counts": _gathered,
        "aten::batch_norm_elemt": _like(0),
        "aten::batch_norm_backward_reduce": _reduced,
        "aten::batch_norm_backward_elemt": _like(1),
        "aten::_fused_rms_norm": _rms_norm,
        "aten::_thnn_fused_gru_cell": _gru_cell,
        "aten::_thnn_fused_gru_cell_backward": _gru_cell_backward,
        "aten::_ctc_loss.Tensor": _ctc,
        "aten::_ctc_loss": _ctc,
        "aten::_ctc_loss_backward": _like(1),
        "aten::_ctc_loss_backward.Tensor": _like(1),
        **{
            f"aten::_use_{library}_ctc_loss{kind}": _no
            for library in ("cudnn", "miopen")
            for kind in ("", ".Tensor")
        },
        "aten::multi_margin_loss_backward": _like(1),
        "aten::multilabel_margin_loss_backward": _like(1),
        "aten::_standard_gamma_grad": _like(0),
        **{f"aten::_fused_{name}_{kind}": _nothing for name in fused for kind in ("", ".tensor_lr")},
        "c10d::allreduce_coalesced_": work("allreduce_"),
        "c10d::allgather_into_tensor_coalesced_": work("_allgather_base_"),
        "c10d::reduce_scatter_tensor_coalesced_": work("_reduce_scatter_base_"),
        "c10d::allgather_coalesced_": work("allgather_"),
    }
