"""Results of operators that are remembered, against PyTorch's FakeTensorMode."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.capture.leaves import leaves_of
from armillary.capture.results import Results

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
CALLS: dict[str, Any] = {
    "mm.default": lambda x, y: ((x, y.t()), {}),
    "add.Tensor": lambda x, y: ((x, y), {"alpha": 2}),
    "add_.Tensor": lambda x, y: ((x, y), {}),
    "mul.Scalar": lambda x, y: ((x, 3), {}),
    "t.default": lambda x, y: ((x,), {}),
    "view.default": lambda x, y: ((x, [-1]), {}),
    "view.dtype": lambda x, y: ((x, y.dtype), {}),
    "slice.Tensor": lambda x, y: ((x, 0, 1), {}),
    "select.int": lambda x, y: ((x, 0, 1), {}),
    "split.Tensor": lambda x, y: ((x, 2), {}),
    "unbind.int": lambda x, y: ((x,), {}),
    "expand.default": lambda x, y: ((x, [3, *x.shape]), {}),
    "as_strided.default": lambda x, y: ((x, [2], [1], 1), {}),
    "detach.default": lambda x, y: ((x,), {}),
    "clone.default": lambda x, y: ((x,), {}),
    "cat.default": lambda x, y: (([x, y, x],), {}),
    "stack.default": lambda x, y: (([x, y], 1), {}),
    "sum.dim_IntList": lambda x, y: ((x, [0]), {}),
    "max.dim": lambda x, y: ((x, 0), {}),
    "native_layer_norm.default": lambda x, y: ((x, [x.shape[-1]], None, None, 1e-5), {}),
    "zeros_like.default": lambda x, y: ((x,), {}),
    "new_empty.default": lambda x, y: ((x, [5]), {"dtype": y.dtype}),
    "_foreach_add.List": lambda x, y: (([x, x], [y, y]), {}),
    "_foreach_add_.Scalar": lambda x, y: (([x, y], 1), {}),
    "squeeze_.default": lambda x, y: ((x,), {}),
    "t_.default": lambda x, y: ((x,), {}),
    "resize_.default": lambda x, y: ((x, [2, 2]), {}),
    "_scaled_dot_product_flash_attention.default": lambda x, y: ((x[None, None], y[None, None], y[None, None]), {}),
}  # fmt: skip


def told(part: Any, leaves: Any, out: Any, given: list[Any]) -> list[Any]:
    """Return all that a program sees of results: which arguments they are or share memory with, and what they are."""
    memory = [each.untyped_storage()._cdata for each in given if isinstance(each, part.FakeTensor)]
    found: list[Any] = [type(out) if isinstance(out, list | tuple) else None]
    for each in leaves(out):
        if not isinstance(each, part.FakeTensor):
            found.append(each)
            continue
        storage = each.untyped_storage()
        found.append((
            next((at for at, other in enumerate(given) if other is each), None), each.shape, each.stride(), each.dtype,
            each.device, each.storage_offset(), storage.nbytes(), each.requires_grad, each.is_inference(),
            memory.index(storage._cdata) if storage._cdata in memory else None,
        ))  # fmt: skip
    return found


@given(
    st.sampled_from(sorted(CALLS)),
    st.sampled_from([(4, 6), (6, 4), (1, 8), (4, 1), (7, 3)]),
    st.sampled_from(["float32", "bfloat16", "int64"]),
    st.sampled_from(["float32", "bfloat16"]),
    st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_results_that_are_remembered_are_those_of_pytorch(
    name: str, shape: tuple[int, int], dtype: str, other: str, turned: bool
) -> None:
    import torch
    from torch._subclasses import fake_tensor as part

    leaves, mode = leaves_of(torch), part.FakeTensorMode()
    results = Results(torch, mode)
    packet, _, overload = name.partition(".")
    func = getattr(getattr(torch.ops.aten, packet), overload)

    def arguments() -> tuple[Any, Any]:
        with mode:
            x = (
                torch.empty(shape[::-1], dtype=getattr(torch, dtype)).t()
                if turned
                else torch.empty(shape, dtype=getattr(torch, dtype))
            )
            return CALLS[name](x, torch.empty(shape, dtype=getattr(torch, other)))  # type: ignore[no-any-return]

    def asked() -> tuple[Any, Any, Any]:
        args, kwargs = arguments()
        key = results.key(func, args, kwargs)
        with mode:
            return args, kwargs, (key, func(*args, **kwargs))

    try:
        args, kwargs, (key, out) = asked()
    except (RuntimeError, TypeError, ValueError, IndexError):
        return  # PyTorch refuses it, and nothing is remembered
    results.keep(key, func, args, kwargs, leaves((args, kwargs)), out)
    if packet in ("resize_", "t_") and shape != (2, 2) and shape[0] != shape[1]:
        assert not results.has(key)  # it has changed its argument
    args, kwargs, (_, wanted) = asked()
    expected = told(part, leaves, wanted, leaves((args, kwargs)))
    if results.has(key):
        args, kwargs = arguments()
        given = leaves((args, kwargs))
        assert told(part, leaves, results.made(key, given), given) == expected


def test_what_is_usual_is_remembered() -> None:
    import torch
    from torch._subclasses import fake_tensor as part

    mode, leaves = part.FakeTensorMode(), leaves_of(torch)
    results = Results(torch, mode)
    with mode:
        x = torch.empty(4, 8)
    for name in (
        "mm.default",
        "add_.Tensor",
        "view.default",
        "split.Tensor",
        "cat.default",
        "_foreach_add_.Scalar",
    ):
        packet, _, overload = name.partition(".")
        func, (args, kwargs) = getattr(getattr(torch.ops.aten, packet), overload), CALLS[name](x, x)
        key = results.key(func, args, kwargs)
        with mode:
            out = func(*args, **kwargs)
        results.keep(key, func, args, kwargs, leaves((args, kwargs)), out)
        assert results.has(key), name


def test_numbers_of_other_types_are_other_arguments() -> None:
    import torch
    from torch._subclasses import fake_tensor as part

    mode = part.FakeTensorMode()
    results, add = Results(torch, mode), torch.ops.aten.add.Tensor
    with mode:
        x = torch.empty(4, dtype=torch.int64)
    assert len({results.key(add, (x, each), {}) for each in (1, 1.0, True)}) == 3


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_tensors_without_memory_are_those_that_pytorch_makes(device: str) -> None:
    import torch
    from torch._subclasses import fake_tensor as part

    mode = part.FakeTensorMode(allow_non_fake_inputs=True)
    mode.allow_meta = True
    results = Results(torch, mode)
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        meta = torch.empty_strided((4, 6), (1, 4), dtype=dtype, device="meta")
        made = results._without_memory(meta, torch.device(device))
        wanted = part.FakeTensor(mode, meta, torch.device(device))
        assert type(made) is type(wanted) and vars(made) == vars(wanted)
        assert torch._C._dispatch_keys(made) == torch._C._dispatch_keys(wanted)
        for name in ("shape", "dtype", "device", "layout", "requires_grad", "is_leaf", "_version"):
            assert getattr(made, name) == getattr(wanted, name), name
        assert made.stride() == wanted.stride() and made.is_inference() == wanted.is_inference()
        assert made.untyped_storage()._cdata == wanted.untyped_storage()._cdata
