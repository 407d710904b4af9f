"""Phrases that errors share: the nearest valid choice, and the list of choices."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the choice closest to `word`, or an empty string."""
    match = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f" (did you mean '{match[0]}'?)" if match else ""


def one_of(choices: Iterable[str]) -> str:
    """Return the choices as a phrase for an error message."""
    return "one of " + ", ".join(choices)
