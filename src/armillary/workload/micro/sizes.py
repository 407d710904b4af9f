"""The sizes of a sweep, in bytes and in elements, as nccl-tests counts them."""

from __future__ import annotations

from armillary.base.errors import InputError
from armillary.base.units import format_bytes

ELEMENTS = {
    "int8": 1, "uint8": 1, "float8": 1, "float16": 2, "bfloat16": 2,
    "int32": 4, "float32": 4, "int64": 8, "float64": 8,
}  # fmt: skip
"""Bytes of an element by its type."""


def sizes(smallest: int, largest: int, factor: int = 2) -> list[int]:
    """Return `smallest`, `smallest` x `factor`, … up to `largest`, in bytes.

    Raises:
        InputError: there is none, or they do not grow.
    """
    if smallest < 1 or largest < smallest:
        raise InputError(
            f"sizes from {format_bytes(smallest)} to {format_bytes(largest)}: "
            "expected a smallest one of at least 1 B, and a largest one that is not below it"
        )
    if factor < 2:
        raise InputError(f"sizes grow by the factor {factor}: expected at least 2")
    found = []
    while smallest <= largest:
        found.append(smallest)
        smallest *= factor
    return found
