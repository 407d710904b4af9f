"""What the arguments of `GraphBuilder` may be: each is looked at in the call that gives it."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real

import numpy as np

from armillary.base.errors import InputError
from armillary.base.hints import nearest, one_of, show
from armillary.trace.columns import CollectiveType
from armillary.trace.graph import LIMIT
from armillary.trace.node import Attribute

Size = int | float | str
"""Whole bytes, or text with a unit such as ``"1 GiB"``."""
Time = int | float | str
"""µs, or text with a unit such as ``"1.5 us"``; to the ns."""
Operation = CollectiveType | int | str
"""A collective, or its name: ``"all-reduce"``, ``"broadcast"``, …"""
_OPERATIONS = {each.name.lower().replace("_", "-"): each for each in CollectiveType}


def text(value: object, what: str) -> str:
    """Return a text that files can hold."""
    if not isinstance(value, str):
        raise InputError(f"{what}: got {show(value)}, expected a text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(f"{what}: got {show(value)}, expected text that UTF-8 can encode") from None
    return value


def integer(value: object, what: str, expected: str, end: int, low: int = 0) -> int:
    """Return a whole number from `low` to below `end`; no float and no text is one."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= int(value) < end:
        raise InputError(f"{what}: got {show(value)}, expected {expected}")
    return int(value)


def flag(value: object, where: str, what: str) -> bool:
    """Return True or False; a text such as "no" is neither."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{where}: {what}: got {show(value)}, expected True or False")
    return bool(value)


def operation_of(value: object, where: str) -> int:
    """Return the ``comm_type`` of a collective or of its name."""
    if isinstance(value, str):
        found = _OPERATIONS.get(value.lower().replace("_", "-"))
    else:
        found = next((each for each in CollectiveType if each == value and not isinstance(value, bool)), None)
    if found is None:
        raise InputError(
            f"{where}: operation: got {show(value)}, expected {one_of(_OPERATIONS)}{nearest(str(value), _OPERATIONS)}"
        )
    return int(found)


def group_of(value: object, where: str) -> Iterator[Attribute]:
    """Yield the attribute that names a group, if there is one."""
    if value is None:
        return
    if not isinstance(value, str) or not value:
        integer(
            value, f"{where}: group", "the number of a group of ranks, or the name of axes of a grid", 2**63
        )
    yield ("pg_name", "string", str(value))


def bytes_of(size: Size, where: str) -> int:
    if isinstance(size, str):
        from armillary.base.units import parse_bytes

        try:
            size = parse_bytes(size)
        except ValueError as error:
            raise InputError(f"{where}: size: {error}") from error
    return whole(size, where, "size", "bytes")


def whole(value: object, where: str, what: str, unit: str) -> int:
    """Return a count; 1e9 is one, too."""
    found = _number(value)
    if found is None or found != int(found) or found < 0:
        raise InputError(f"{where}: {what}: got {show(value)}, expected a whole number of {unit}")
    return int(found)


def _number(value: object) -> int | float | None:
    """Return a number that is not negative and fits 63 bits, None for anything else; NumPy's are numbers, too."""
    if isinstance(value, bool) or not isinstance(value, int | float | Real):
        return None
    found = int(value) if isinstance(value, Integral) else float(value)
    return found if 0 <= found < 2**63 else None


def nanoseconds(value: Time, where: str) -> int:
    ns: int | None = None
    if isinstance(value, str):
        from armillary.base.units import parse_time

        try:
            ns = round(parse_time(value))
        except ValueError as error:
            raise InputError(f"{where}: duration: {error}") from error
    elif (found := _number(value)) is not None:
        ns = found * 1000 if isinstance(found, int) else round(found * 1000)
    if ns is None or ns >= LIMIT:
        raise InputError(
            f"{where}: duration: got {show(value)}, expected µs below {LIMIT // 1000}, or a text such as '1.5 us'"
        )
    return ns
