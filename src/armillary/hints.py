"""Phrases that errors share: a value, the nearest valid choice, and the list of choices."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SHOWN_CHARACTERS = 120
"""A longer value loses its middle in a message."""


def shown(value: object) -> str:
    """Return `value` as it stands in a message: quoted if it is text, on one line, and not too long."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deep, or a number of too many digits
        return f"a long {type(value).__name__}"
    half = SHOWN_CHARACTERS // 2
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:half]}…{text[-half:]}"


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the choice closest to `word`, or an empty string."""
    match = difflib.get_close_matches(word[:SHOWN_CHARACTERS], list(choices), n=1, cutoff=0.5)
    return f" (did you mean '{match[0]}'?)" if match else ""


def one_of(choices: Iterable[str]) -> str:
    """Return the choices as a phrase for an error message."""
    return "one of " + ", ".join(choices)
