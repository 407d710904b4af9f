"""Tensor records of the execution trace: ``[tensor id, storage id, offset, elements, bytes of an element, device]``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_LIMIT = 1 << 48


def tensors(value: Any, depth: int = 0) -> Iterator[list[Any]]:
    """Give the tensor records in one input or output, which may be a list of lists of them."""
    if not isinstance(value, list) or depth > 4:
        return
    if is_tensor(value):
        yield value
        return
    for item in value:
        yield from tensors(item, depth + 1)


def is_tensor(value: list[Any]) -> bool:
    """Whether `value` is one record."""
    return (
        5 <= len(value) <= 7
        and all(type(part) is int and 0 <= part < _LIMIT for part in value[:5])
        and value[3] * value[4] < _LIMIT
        and not isinstance(value[-1], int)
    )


def size(value: Any) -> int:
    """Return the bytes of all tensors in one input or output."""
    return sum(record[3] * record[4] for record in tensors(value))


def elements(value: Any) -> int:
    """Return the elements of all tensors in one input or output."""
    return sum(record[3] for record in tensors(value))
