"""What may be written for an assumption: quantities that some machine could have, counts, and lists with commas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from armillary.base import units

Number = TypeVar("Number", int, float)
T = TypeVar("T")


def between(parse: Callable[[str], Number], least: str, most: str) -> Callable[[str], Number]:
    """Return a reader of quantities from `least` to `most`; others are a ValueError."""

    # Read lazily: bounds have units of their own.
    def read(text: str) -> Number:
        value = parse(text)
        if not parse(least) <= value <= parse(most):
            raise ValueError(f"got {text!r}, expected {least} to {most}")
        return value

    return read


def counting(least: int, most: int) -> Callable[[str], int]:
    """Return a reader of whole numbers from `least` to `most`; others are a ValueError."""

    def read(text: str) -> int:
        # [:19]: a text of digits may be too long for an int worth reading.
        if not (text.isascii() and text.isdecimal() and least <= int(text[:19]) <= most):
            raise ValueError(f"got {text!r}, expected a whole number from {least:,} to {most:,}")
        return int(text)

    return read


def several(parse: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Return a reader of a list with commas, each value once."""
    # dict.fromkeys drops repeats and keeps the order.
    return lambda text: tuple(dict.fromkeys(parse(part.strip()) for part in text.split(",")))


def counting_of(count: int, least: int, most: int) -> Callable[[str], tuple[int, ...]]:
    """Return a reader of so many whole numbers with commas, each from `least` to `most`; others are a ValueError."""
    one = counting(least, most)

    def read(text: str) -> tuple[int, ...]:
        parts = text.split(",")
        if len(parts) != count:
            raise ValueError(f"got {text!r}, expected {count} numbers with commas")
        return tuple(one(part.strip()) for part in parts)

    return read


def among(names: Sequence[str]) -> Callable[[str], str]:
    """Return a reader of one of some names; others are a ValueError."""

    def read(text: str) -> str:
        if text not in names:
            raise ValueError(f"got {text!r}, expected one of {', '.join(names)}")
        return text

    return read


def yes_or_no(text: str) -> bool:
    """Return whether it is "yes"."""
    return text == "yes"


bandwidth = between(units.parse_bandwidth, "1 MB/s", "1 PB/s")
time = between(units.parse_time, "0 ns", "1 s")
size = between(units.parse_bytes, "1 B", "1 TB")
flops = between(units.parse_flops, "1 GFLOP/s", "100 PFLOP/s")
part = between(units.parse_percent, "1 %", "100 %")
whole = counting(1, 1 << 20)
chunks = counting(1, 4096)
