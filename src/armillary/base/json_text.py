"""JSON from other sources, within the limits of all documents (`armillary.base.reading`)."""

from __future__ import annotations

import json
import sys
from typing import Any

from armillary.base.allowed import limit
from armillary.base.errors import InputError
from armillary.base.reading import MOST_VALUES, StrPath, check_depth, check_values, too_deep


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
        raise too_deep(where) from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:
        raise json.JSONDecodeError("a number has thousands of digits", "", 0) from None
    check_depth(found, where)
    return found


def json_within(text: str | bytes) -> Any:
    """Return the value of JSON inside a field of a file, as some formats have it.

    Raises:
        ValueError: it is none, is nested too deeply, or has too many values.
    """
    try:
        return parse_json(text, "JSON in a text")
    except InputError as error:
        raise ValueError(str(error)) from None
