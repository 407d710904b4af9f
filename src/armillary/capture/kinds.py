"""Operators that were recorded, each different one once: what it computes and moves, and which kernel it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from armillary.convert.pytorch.arguments import held
from armillary.convert.pytorch.flops import Arguments, family, gemm, work
from armillary.trace.attention import Attention
from armillary.trace.gemm import Gemm

PRECISIONS = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}
"""Type of the operands of a GEMM -> the precision whose peak it has."""
Shaped = tuple[tuple[int, ...], str]
"""Shape and type of a tensor."""


@dataclass(frozen=True)
class Kind:
    """An operator with the shapes of its tensors.

    Attributes:
        name: Such as ``aten::mm``.
        inputs: Its tensors; lists are flattened.
        outputs: Its results.
        flops: Operations, 2 per multiply-add; of causal attention those that the mask keeps.
        size: Bytes read and written.
        family: ``matmul``, ``attention``, ``elementwise``, …; "": no rule knows the operator.
        precision: Of a GEMM or attention.
        gemm: The GEMM that it is.
        attention: The attention that it is.
    """

    name: str
    inputs: tuple[Shaped, ...]
    outputs: tuple[Shaped, ...]
    flops: int
    size: int
    family: str
    precision: str = "bf16"
    gemm: Gemm | None = None
    attention: Attention | None = None

    @property
    def products(self) -> bool:
        """Whether it multiplies matrices."""
        return self.family in ("matmul", "attention", "convolution")


def kind_of(torch: Any, func: Any, args: Any, kwargs: Any, out: Any) -> Kind | None:
    """Return what a call of an operator is; None if it launches nothing, as a view."""
    name = func._schema.name
    inputs, shapes_in = _arguments(torch, func, args, kwargs)
    outputs, shapes_out = _results(torch, out)
    schema = str(func._schema)
    found = work(name, schema, inputs, outputs)
    known = family(name) or ""
    if found is None:
        # No rule: its tensors are read and written once, and the report names it.
        size = sum(map(_bytes, (*shapes_in, *shapes_out)))
        return Kind(name, shapes_in, shapes_out, 0, size, "") if size else None
    if not found.bytes and not found.flops:
        return None
    flops, attends = found.flops, None
    if known == "attention":
        attends = _attention(name, args, shapes_in)
        flops = _kept(func, args, kwargs, flops, attends)
    types = [type_ for _, type_ in shapes_in if type_ in PRECISIONS]
    precision = PRECISIONS[types[0]] if types else "bf16"
    return Kind(
        name,
        shapes_in,
        shapes_out,
        flops,
        found.bytes,
        known,
        precision,
        gemm(name, schema, inputs, outputs),
        attends,
    )


def _bytes(shaped: Shaped) -> int:
    from armillary.convert.pytorch.arguments import element_bytes, elements_of

    return elements_of(list(shaped[0])) * element_bytes(shaped[1])


def shaped(tensor: Any) -> Shaped:
    """Return shape and type of a tensor."""
    return tuple(map(int, tensor.shape)), str(tensor.dtype).removeprefix("torch.")


def strides_of(tensor: Any) -> list[int]:
    """Return the strides of a tensor, in elements; of one that is sparse or nested none."""
    strided = str(tensor.layout) == "torch.strided" and not tensor.is_nested
    return [int(each) for each in tensor.stride()] if strided else []


def described(tensor: Any) -> tuple[Shaped, tuple[int, ...]]:
    """Return what counts of a tensor for the work of an operator: shape, type, and dimensions that are expanded."""
    return shaped(tensor), tuple(at for at, step in enumerate(strides_of(tensor)) if not step)


def bytes_of(tensor: Any) -> int:
    """Return the bytes of a tensor's elements."""
    return int(tensor.numel()) * int(tensor.element_size())


def bytes_held(tensor: Any) -> int:
    """Return the bytes of a tensor's elements, of expanded ones once."""
    shape = held(list(tensor.shape), strides_of(tensor))
    return math.prod(map(int, shape)) * int(tensor.element_size())


def plain(value: Any) -> Any:
    """Return what tells two calls apart by an argument that is no tensor."""
    if value is None or isinstance(value, bool | int | str):
        return value
    return "nan" if isinstance(value, float) and math.isnan(value) else str(value)[:80]


def _arguments(torch: Any, func: Any, args: Any, kwargs: Any) -> tuple[Arguments, tuple[Shaped, ...]]:
    values: list[Any] = []
    for at, argument in enumerate(func._schema.arguments):
        given = args[at] if at < len(args) else kwargs.get(argument.name, argument.default_value)
        values.append(given)
    return _described(torch, values)


def _results(torch: Any, out: Any) -> tuple[Arguments, tuple[Shaped, ...]]:
    return _described(torch, list(out) if isinstance(out, tuple) else [out])


def _described(torch: Any, values: list[Any]) -> tuple[Arguments, tuple[Shaped, ...]]:
    """Return values as an execution trace writes them, and their tensors."""
    found = Arguments([], [], [], [])
    assert found.strides is not None
    tensors: list[Shaped] = []

    def describe(value: Any) -> tuple[Any, Any, str]:
        if isinstance(value, torch.Tensor):
            tensors.append(shaped(value))
            return [], list(tensors[-1][0]), f"Tensor({tensors[-1][1]})"
        if isinstance(value, list | tuple) and any(isinstance(each, torch.Tensor | None) for each in value):
            parts = [describe(each) for each in value]
            return [], [part[1] for part in parts], f"GenericList[{','.join(part[2] for part in parts)}]"
        return value, [], "None"

    for value in values:
        recorded, shape, kind = describe(value)
        found.values.append(recorded)
        found.shapes.append(shape)
        found.types.append(kind)
        found.strides.append(strides_of(value) if isinstance(value, torch.Tensor) else [])
    return found, tuple(tensors)


def _attention(name: str, args: Any, shapes: tuple[Shaped, ...]) -> Attention | None:
    """Return the shape of attention on [batch, heads, tokens, elements]."""
    backward = "backward" in name
    # The gradient of the result stands first in backward.
    found = [shape for shape, _ in shapes[backward : 3 + backward]]
    if "scaled_dot_product" not in name or len(found) < 3 or any(len(shape) != 4 for shape in found):
        return None
    query, key, value = found
    return Attention(query[0], query[1], key[1], query[2], key[2], query[3], value[3], int(backward))


def _kept(func: Any, args: Any, kwargs: Any, flops: int, attends: Attention | None) -> int:
    """Return the operations that a causal mask leaves of those of the full square."""
    names = [argument.name for argument in func._schema.arguments]
    at = names.index("is_causal") if "is_causal" in names else -1
    causal = at >= 0 and (args[at] if at < len(args) else kwargs.get("is_causal", False))
    if not causal or attends is None or not attends.keys:
        return flops
    return kept(flops, attends)


def kept(flops: int, attends: Attention) -> int:
    """Return what is left of the operations of the full square where a query meets the keys up to its own place."""
    queries, keys = min(attends.queries, attends.keys), attends.keys
    pairs = (
        queries * keys - queries * (queries - 1) // 2 if attends.queries != keys else keys * (keys + 1) // 2
    )
    return flops * pairs // (attends.queries * keys)
