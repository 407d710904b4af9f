"""Numbers with units in sweep files: parsing, conversion to base units, and formatting."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from armillary.base import units

_TEXT = re.compile(
    r"\s*([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,2})?)\s*([^\s\d].{0,30}?)?\s*"
)
_COUNTS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
KINDS: dict[str, tuple[Callable[[object], float], float, str]] = {
    # Reader, its unit in base units, and the base unit as readers take it.
    "bandwidth": (units.parse_bandwidth, 1e9, "B/s"),
    "bytes": (units.parse_bytes, 1.0, "B"),
    "time": (units.parse_time, 1e-9, "s"),
    "flops": (units.parse_flops, 1.0, "FLOP/s"),
    "frequency": (units.parse_frequency, 1.0, "Hz"),
    "percent": (units.parse_percent, 1.0, "%"),
}


def split(text: str) -> tuple[float, str] | None:
    """Return the number and the unit of a text, None if it does not begin with a number."""
    found = _TEXT.fullmatch(text)
    return (float(found[1]), found[2] or "") if found else None


@lru_cache(maxsize=8192)
def base_units(text: str) -> tuple[float, str] | None:
    """Return a quantity in base units (byte, s, byte/s, FLOP/s, Hz, 1) with its kind, None if it is no quantity.

    A count may have a prefix: ``15.6 T``.
    """
    found = split(text)
    if found is None:
        return None
    number, unit = found
    # Before the readers of units: a bare prefix is a count, not bytes or FLOP/s.
    if unit in _COUNTS:
        return number * _COUNTS[unit], "count"
    for kind, (parse, scale, _) in KINDS.items():
        try:
            return parse(text) * scale, kind
        except ValueError:
            continue
    return None


def number_of(value: Any) -> Any:
    """Return a value as expressions see it: quantities as numbers, everything else as it is."""
    if isinstance(value, str):
        found = base_units(value)
        return found[0] if found else value
    return value


def written(value: float, kind: str) -> str:
    """Return a number in base units as the readers of a kind take it."""
    if kind == "percent":
        return f"{100 * value:.12g} %"
    # Sizes are whole; 12 to 15 digits lose nothing of what a float keeps of others.
    if kind == "bytes":
        return f"{round(value)} B"
    if kind == "time":
        return f"{value * 1e9:.15g} ns"
    return f"{value:.15g} {KINDS[kind][2]}"


def joined(number: float, unit: str) -> Any:
    """Return a number with its unit as written in a file, with 10 digits; an integer without a decimal point."""
    # Ten digits hide the rounding of 0.1 + 0.2.
    short = float(f"{number:.10g}")
    plain = int(short) if short == int(short) and abs(short) < 1e15 else short
    return f"{plain} {unit}" if unit else plain
