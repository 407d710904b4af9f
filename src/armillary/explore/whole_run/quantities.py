"""Counts, years and lists of times as people write them on a command line."""

from __future__ import annotations

import math
import re

from armillary.base.errors import InputError

_SCALE = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12}


def parse_tokens(option: str, text: str) -> float:
    """Return a count such as ``15.6T``, ``300 B`` or ``1e9``.

    Raises:
        InputError: it is none, or not more than 0.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:[eE]\+?\d{1,2})?)\s*([kKMGBT]?)\s*", text)
    value = float(match[1]) * _SCALE[match[2]] if match else 0.0
    # Many digits are infinity.
    if not 0 < value < math.inf:
        raise InputError(
            f"{option}: got '{text:.60}', expected a count such as 15.6T (k, M, B, T), more than 0"
        )
    return value


_LONG = {
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "day": 86400.0,
    "days": 86400.0,
    # 365.25 days, as for NPU years.
    "year": 31557600.0,
    "years": 31557600.0,
}


def seconds(text: object) -> float:
    """Return a time such as ``30 s``, ``50000 h`` or ``9 years`` in seconds; it may be longer than times of a study.

    Raises:
        ValueError: it is no such time.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([a-z]+)\s*", text) if isinstance(text, str) else None
    found = float(match[1]) * _LONG.get(match[2], math.inf) if match else math.inf
    if math.isinf(found) or math.isnan(found):
        raise ValueError(
            f"got {text!r:.60}, expected a time in s, min, h, days or years, e.g. '30 s' or '50000 h'"
        )
    return found


def parse_seconds(option: str, text: str) -> float:
    """Return `seconds` of the value of an option.

    Raises:
        InputError: it is no time.
    """
    try:
        return seconds(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from error
