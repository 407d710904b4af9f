"""The errors a user can meet, and the nearest-match hint they share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ArmillaryError(Exception):
    """Base of every error shown to a user; ``exit_code`` is the process's."""

    exit_code = 1


class InputError(ArmillaryError):
    """Bad input: names the file, key or node, the value and what was expected."""

    exit_code = 2


class StuckError(ArmillaryError):
    """The simulation cannot finish: the message is a table of who waits for what."""

    exit_code = 3


def nearest(word: str, choices: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the choice closest to `word`, or an empty string."""
    match = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f" (did you mean '{match[0]}'?)" if match else ""


def one_of(choices: Iterable[str]) -> str:
    """Return the choices as a phrase for an error message."""
    return "one of " + ", ".join(choices)
