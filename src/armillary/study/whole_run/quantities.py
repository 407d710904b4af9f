"""Counts, years and lists of times as people write them on a command line."""

from __future__ import annotations

import re

from armillary.errors import InputError

_SCALE = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12}


def parse_tokens(option: str, text: str) -> float:
    """Return a count such as ``15.6T``, ``300 B`` or ``1e9``.

    Raises:
        InputError: it is none, or not more than 0.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:[eE]\+?\d{1,2})?)\s*([kKMGBT]?)\s*", text)
    value = float(match[1]) * _SCALE[match[2]] if match else 0.0
    if not value:
        raise InputError(f"{option}: got '{text}', expected a count such as 15.6T (k, M, B, T), more than 0")
    return value
