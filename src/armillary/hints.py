"""Phrases that errors share: the nearest valid choice, the list of choices; and their form."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LONGEST_WORD = 100
_FIRST, _LAST = 700, 500
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def one_line(message: str) -> str:
    """Return `message` on one line that any terminal can show; a long one, which quotes a value, loses its middle."""
    if len(message) > _FIRST + _LAST:
        message = f"{message[:_FIRST]} … {message[-_LAST:]}"
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), message)


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the choice closest to `word`, or an empty string."""
    match = difflib.get_close_matches(word[:_LONGEST_WORD], list(choices), n=1, cutoff=0.5)
    return f" (did you mean '{match[0]}'?)" if match else ""


def one_of(choices: Iterable[str]) -> str:
    """Return the choices as a phrase for an error message."""
    return "one of " + ", ".join(choices)
