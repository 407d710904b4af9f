"""Values of ASTRA-sim's files, which that program cuts to whole numbers without a word."""

from __future__ import annotations

import math

from armillary.base.document import Document
from armillary.base.hints import KeyPath

INT_MAX = 2**31 - 1
"""That program keeps these numbers in a C int."""


def note_ignored(document: Document, ignored: list[str], warnings: list[str]) -> None:
    """Warn of keys that are known and have no effect, and of keys that are there twice."""
    if ignored:
        warnings.append(f"{document.name}: keys known but without effect: {', '.join(ignored)}")
    for key in document.duplicates:
        warnings.append(f"{document.name}: {key} is given twice: the last one counts")


def switch(document: Document, key: str) -> bool:
    """Return the value of a key that is 0 or 1; absent: 0.

    Raises:
        InputError: It is neither.
    """
    value = document.data.get(key, 0)
    # True and False are ints and pass.
    if not isinstance(value, int):
        document.reject((key,), value, "0 or 1")
    return bool(value)


def truncated(document: Document, warnings: list[str], key: str, low: int, default: int | None = None) -> int:
    """Return a whole number at a key of the file itself, see `truncate`."""
    return truncate(document, warnings, (key,), document.data.get(key, default), low)


def truncate(
    document: Document, warnings: list[str], path: KeyPath, value: object, low: int, high: int = INT_MAX
) -> int:
    """Return a whole number; a fraction is cut off with a warning, as that program does it silently."""
    # Infinity and NaN are left to `whole`, which refuses them.
    if isinstance(value, float) and math.isfinite(value) and value != int(value):
        warnings.append(f"{document.where(path)}: {path[0]}: {value} is cut to {int(value)}, as in ASTRA-sim")
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    return document.whole(path, value, low, high)
