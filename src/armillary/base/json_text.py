"""JSON of others: how many values it may have, and how deep they may lie; YAML and XML keep to the same limits."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from armillary.base.allowed import how_to_raise, limit
from armillary.base.errors import InputError
from armillary.base.reading import StrPath
from armillary.base.units import format_count

MOST_VALUES = 10_000_000
"""Values of a JSON document; as Python objects they take about 1.5 GB."""
MOST_DEPTH = 200
"""Levels of lists and objects within each other."""


def check_json(text: str | bytes | bytearray | memoryview, where: StrPath) -> None:
    """Refuse JSON that has too many values to become Python objects, before it does.

    Raises:
        InputError: it may have more than `MOST_VALUES`.
    """
    plain: Any = bytes(text) if isinstance(text, memoryview) else text
    if len(plain) <= min(limit(MOST_VALUES), sys.maxsize):
        return
    signs: Any = (",", "[", "{") if isinstance(plain, str) else (b",", b"[", b"{")
    # Each value follows one of these; those within texts count, too.
    check_values(sum(plain.count(sign) for sign in signs), where)


def check_values(count: int, where: StrPath) -> None:
    """Refuse a document of more than `MOST_VALUES`.

    Raises:
        InputError: there are more.
    """
    most = limit(MOST_VALUES)
    if count > most:
        raise InputError(
            f"{os.fspath(where)}: has about {format_count(count)} values, expected at most {format_count(most)} "
            f"({how_to_raise(count / most)})"
        )


def parse_json(text: str | bytes | bytearray | memoryview, where: StrPath, **hooks: Any) -> Any:
    """Return what JSON says, whoever wrote it; `hooks` are those of ``json.loads``.

    Raises:
        InputError: it is nested too deeply or has too many values.
        json.JSONDecodeError: it is no JSON, or a number in it has thousands of digits.
        UnicodeDecodeError: its bytes are no text.
    """
    check_json(text, where)
    try:
        found = json.loads(bytes(text) if isinstance(text, memoryview) else text, **hooks)
    except RecursionError:
        raise _too_deep(where) from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:
        raise json.JSONDecodeError("a number has thousands of digits", "", 0) from None
    check_depth(found, where)
    return found


def check_depth(value: Any, where: StrPath) -> None:
    """Refuse lists and mappings within each other beyond `MOST_DEPTH`: what walks them would run out of stack.

    Raises:
        InputError: they are nested more deeply, or a list is within itself.
    """
    level = [value]
    # Level by level, not by recursion. What stands at several places, as aliases do, counts once a level.
    for _ in range(MOST_DEPTH + 1):
        inner = {id(each): each for one in level for each in _inside(one) if isinstance(each, (dict, list))}
        if not inner:
            return
        level = list(inner.values())
    raise _too_deep(where)


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _too_deep(where: StrPath) -> InputError:
    return InputError(f"{os.fspath(where)}: nested too deeply, expected at most {MOST_DEPTH} levels")


def json_within(text: str | bytes) -> Any:
    """Return what JSON says that stands in a field of a file, as some formats have it.

    Raises:
        ValueError: it is none, is nested too deeply, or has too many values.
    """
    try:
        return parse_json(text, "JSON in a text")
    except InputError as error:
        raise ValueError(str(error)) from None
