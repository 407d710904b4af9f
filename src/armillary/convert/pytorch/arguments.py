"""Tensors among the recorded arguments of an operator.

The trace writes a tensor as ``[tensor id, storage id, offset, elements, bytes of an element, device]``, its shape
as a list, and its type as ``Tensor(float)``; lists nest all three, the type as ``GenericList[Tensor(float),None]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

UNKNOWN, UNDEFINED = -1, -2

Kind = int | tuple[Any, ...] | None
"""Bytes per element of a tensor; UNKNOWN; UNDEFINED for an absent tensor; a tuple of kinds for a list; else None."""


class MalformedError(ValueError):
    """A recorded argument does not have the form that the trace format prescribes."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Values, shapes and types of the inputs or of the outputs, as recorded."""

    values: list[Any]
    shapes: list[Any]
    types: list[str]
    strides: list[Any] | None = None
    """Recorded since schema 1.1.1, in elements."""


@lru_cache(maxsize=1 << 14)
def kind_of(text: str) -> Kind:
    """Return the kind of the recorded type `text`; None if it holds no tensor."""
    if "Tensor" not in text:
        return None
    if text.startswith("GenericList[") and text.endswith("]"):
        return tuple(kind_of(part) for part in _parts(text[12:-1]))
    if not text.startswith("Tensor"):
        return None
    inner = text[7:-1]
    # An optional tensor that the caller did not pass is recorded as ``Tensor(nullptr (uninitialized))``.
    return UNDEFINED if inner.startswith("nullptr") else element_bytes(inner) or UNKNOWN


def _parts(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for at, character in enumerate(text):
        # Lists nest, so only a comma outside all brackets separates two types.
        if character in "[(<":
            depth += 1
        elif character in "])>":
            depth -= 1
        elif character == "," and not depth:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


def elements_of(shape: Any) -> int:
    """Return the number of elements of a tensor of this recorded shape.

    Raises:
        MalformedError: the shape is not a list of non-negative integers.
    """
    if type(shape) is not list:
        raise MalformedError(shape)
    count = 1
    for size in shape:
        if type(size) is not int or size < 0:
            raise MalformedError(shape)
        count *= size
    return count


def held(shape: Any, strides: Any) -> Any:
    """Return the shape of what a tensor holds: 1 along what is expanded, whose elements are one in memory."""
    if type(strides) is not list or type(shape) is not list or 0 not in strides or len(shape) != len(strides):
        return shape
    # A size of 0 stays: there is nothing.
    return [size and 1 if step == 0 else size for size, step in zip(shape, strides, strict=True)]


def measure(kind: Kind, value: Any, shape: Any) -> tuple[int, int]:
    """Return the elements and the bytes of all tensors in one argument.

    Raises:
        MalformedError: the shape is not valid, or the bytes per element are unknown.
    """
    if kind is None or kind == UNDEFINED:
        return 0, 0
    if isinstance(kind, tuple):
        if type(shape) is not list or len(shape) != len(kind):
            raise MalformedError(shape)
        # The values matter only where the type does not give the bytes per element, so they may be missing.
        values = value if type(value) is list and len(value) == len(kind) else [None] * len(kind)
        elements = size = 0
        for inner, each, part in zip(kind, values, shape, strict=True):
            if inner is not None:
                more = measure(inner, each, part)
                elements += more[0]
                size += more[1]
        return elements, size
    count = elements_of(shape)
    if kind == UNKNOWN:
        # The record itself holds the bytes per element in its fifth place.
        kind = value[4] if type(value) is list and len(value) > 4 else UNKNOWN
        if type(kind) is not int or kind < 0:
            raise MalformedError(value)
    return count, count * kind


# Every spelling is lower case without punctuation, as `element_bytes` reduces it.
_BYTES = {
    "bool": 1, "byte": 1, "int8": 1, "uint8": 1, "qint8": 1, "quint8": 1, "quint4x2": 1, "quint2x4": 1, "bits8": 1,
    "bits1x8": 1, "bits2x4": 1, "bits4x2": 1, "float4e2m1fnx2": 1,
    "half": 2, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "bits16": 2,
    "float": 4, "float32": 4, "int32": 4, "uint32": 4, "qint32": 4, "complexhalf": 4, "complex32": 4,
    "double": 8, "float64": 8, "int64": 8, "uint64": 8, "complexfloat": 8, "complex64": 8,
    "complexdouble": 16, "complex128": 16,
}  # fmt: skip
_WORDS = frozenset(("signed", "unsigned", "char", "short", "int", "long"))
"""C++ spells one integer in several ways: long, long int, unsigned long, long unsigned int, long long."""


@lru_cache(maxsize=256)
def element_bytes(dtype: object) -> int:
    """Return the bytes of one element of a dtype as PyTorch's profilers name it; 0 if unknown."""
    text = re.sub(r"\b(c10|at|torch|std)(::|\.)", "", str(dtype).strip().lower())
    words = set(text.split())
    if words and words <= _WORDS:
        # The size words decide; what has none of them is ``int`` or ``unsigned``, of 4 bytes.
        return next((size for word, size in (("char", 1), ("short", 2), ("long", 8)) if word in words), 4)
    bare = re.sub(r"[^a-z0-9]", "", text)
    # Float8_e4m3fn, Float8_e5m2fnuz, Float8_e8m0fnu, …: new formats appear, all of one byte.
    return 1 if re.match(r"float8e\d", bare) else _BYTES.get(bare, 0)


# A greater id, offset or size marks a damaged record; below it, sums of sizes stay within int64.
_LIMIT = 1 << 48


def tensors(value: Any, depth: int = 0) -> Iterator[list[Any]]:
    """Yield the tensor records in one input or output, which may be a nested list of them."""
    if not isinstance(value, list) or depth > 4:
        return
    if is_tensor(value):
        yield value
        return
    for item in value:
        yield from tensors(item, depth + 1)


def is_tensor(value: list[Any]) -> bool:
    """Whether `value` is one tensor record; see the module."""
    return (
        5 <= len(value) <= 7
        and all(type(part) is int and 0 <= part < _LIMIT for part in value[:5])
        and value[3] * value[4] < _LIMIT
        # The device ends a record; without this test a list of five sizes would be taken for a tensor.
        and not isinstance(value[-1], int)
    )


def size(value: Any) -> int:
    """Return the bytes of all tensors in one input or output."""
    return sum(record[3] * record[4] for record in tensors(value))


def elements(value: Any) -> int:
    """Return the elements of all tensors in one input or output."""
    return sum(record[3] for record in tensors(value))
