"""Tensors among the recorded arguments of an operator.

The trace writes a tensor as ``[tensor id, storage id, offset, elements, bytes of an element, device]``, its shape
as a list, and its type as ``Tensor(float)``; lists nest all three, the type as ``GenericList[Tensor(float),None]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from armillary.convert.pytorch.element_types import element_bytes

UNKNOWN, UNDEFINED = -1, -2

Kind = int | tuple[Any, ...] | None
"""Bytes of a tensor's element, UNKNOWN, UNDEFINED for no tensor in its place, a tuple for a list, else None."""


class MalformedError(ValueError):
    """A recorded argument is not what the trace's format says."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Values, shapes and types of the inputs or of the outputs, as the trace has them."""

    values: list[Any]
    shapes: list[Any]
    types: list[str]
    strides: list[Any] | None = None
    """Recorded since schema 1.1.1, in elements."""


@lru_cache(maxsize=1 << 14)
def kind_of(text: str) -> Kind:
    """Return what the recorded type `text` is; None for what holds no tensor."""
    if "Tensor" not in text:
        return None
    if text.startswith("GenericList[") and text.endswith("]"):
        return tuple(kind_of(part) for part in _parts(text[12:-1]))
    if not text.startswith("Tensor"):
        return None
    inner = text[7:-1]
    return UNDEFINED if inner.startswith("nullptr") else element_bytes(inner) or UNKNOWN


def _parts(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for at, character in enumerate(text):
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
        MalformedError: it is no list of numbers from 0.
    """
    if type(shape) is not list:
        raise MalformedError(shape)
    count = 1
    for size in shape:
        if type(size) is not int or size < 0:
            raise MalformedError(shape)
        count *= size
    return count


def measure(kind: Kind, value: Any, shape: Any) -> tuple[int, int]:
    """Return the elements and the bytes of all tensors in one argument.

    Raises:
        MalformedError: the shape is none, or the bytes of an element are unknown.
    """
    if kind is None or kind == UNDEFINED:
        return 0, 0
    if isinstance(kind, tuple):
        if type(shape) is not list or len(shape) != len(kind):
            raise MalformedError(shape)
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
        kind = value[4] if type(value) is list and len(value) > 4 else UNKNOWN
        if type(kind) is not int or kind < 0:
            raise MalformedError(value)
    return count, count * kind
