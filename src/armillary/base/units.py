"""Quantities with units: read from text and written for people.

GB is always 10**9 bytes and GiB 2**30 bytes; ``B`` is a byte and ``b`` or ``bit`` a bit. Readers take text
only: a bare number has no unit and is refused. They raise ValueError; the caller adds the file and the key.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable
from fractions import Fraction

from armillary.base.hints import did_you_mean, nearest

# Bounded repetitions: a hostile text cannot make a number that takes long to compute.
_NUMBER = r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,2})?"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*(\S.{{0,30}}?)?\s*")
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}

# Fractions: 400 Gb/s is exactly 50 bytes per ns, and 1.5 GiB a whole number of bytes.
_BYTES = {
    prefix + unit: Fraction(scale) * size
    for prefix, scale in (_DECIMAL | _BINARY).items()
    for unit, size in (("B", Fraction(1)), ("b", Fraction(1, 8)), ("bit", Fraction(1, 8)))
}
_BANDWIDTH = {unit + per: scale / 10**9 for unit, scale in _BYTES.items() for per in ("/s", "ps")}
_TIME = {
    "ps": Fraction(1, 1000),
    "ns": Fraction(1),
    "us": Fraction(10**3),
    "µs": Fraction(10**3),  # micro sign
    "μs": Fraction(10**3),  # Greek mu
    "ms": Fraction(10**6),
    "s": Fraction(10**9),
    "min": Fraction(60 * 10**9),
    "h": Fraction(3600 * 10**9),
}
_FLOPS = {
    prefix + unit: Fraction(scale) for prefix, scale in _DECIMAL.items() for unit in ("FLOP/s", "FLOPS")
}

_FREQUENCY = {prefix + "Hz": Fraction(scale) for prefix, scale in _DECIMAL.items()}
_PERCENT = {"%": Fraction(1, 100)}
_MONEY = {
    prefix + "USD": Fraction(scale) for prefix, scale in _DECIMAL.items() if prefix in ("", "k", "M", "G")
}
_SMALL = {"p": Fraction(1, 10**12), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)}
_POWER = {prefix + "W": Fraction(scale) for prefix, scale in (_SMALL | _DECIMAL).items()}
_ENERGY = {prefix + "J": Fraction(scale) for prefix, scale in (_SMALL | _DECIMAL).items()}
_SPOKEN = {
    "sec": "s", "second": "s", "seconds": "s", "minute": "min", "minutes": "min", "hr": "h", "hour": "h",
    "hours": "h", "msec": "ms", "usec": "us", "nsec": "ns", "byte": "B", "bytes": "B", "bits": "bit", "dollars": "USD",
    "$": "USD", "percent": "%", "flops": "FLOP/s", "watt": "W", "joule": "J",
}  # fmt: skip
"""Units as people say them."""


_MOST_RATE = 10**40
"""Idealised machines have rates that are as good as endless."""


def whole(text: str) -> int | None:
    """Return the whole number that a text is, in decimal digits without a sign; None for any other text.

    More than 18 digits count as none: no number of ours has them, and Python refuses those of thousands.
    """
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def parse_bytes(text: object) -> int:
    """Return a size such as ``"80 GiB"`` in bytes.

    Raises:
        ValueError: Not a size, or not a whole number of bytes below 2**63.
    """
    value = _parse(text, _BYTES, "a size", "80 GiB")
    if value.denominator != 1:
        raise ValueError(f"got {text!r}, expected a whole number of bytes")
    return int(value)


def parse_capacity(text: object) -> int:
    """Return what a memory holds, such as ``"79.11 GiB"``, in bytes.

    Programs print it rounded, so it need be no whole number of them; the rest is dropped.

    Raises:
        ValueError: Not a size, or not below 2**63 bytes.
    """
    return int(_parse(text, _BYTES, "a size", "80 GiB"))


def parse_bandwidth(text: object) -> float:
    """Return a bandwidth such as ``"400 GB/s"`` or ``"100 Gb/s"`` (bits) in bytes per ns.

    Raises:
        ValueError: Not a bandwidth.
    """
    return float(_parse(text, _BANDWIDTH, "a bandwidth", "400 GB/s", _MOST_RATE))


def parse_time(text: object) -> float:
    """Return a time such as ``"936 ns"`` or ``"1.5 us"`` in ns.

    Raises:
        ValueError: Not a time.
    """
    return float(_parse(text, _TIME, "a time", "500 ns"))


def parse_flops(text: object) -> float:
    """Return a performance such as ``"312 TFLOP/s"`` in FLOP/s.

    Raises:
        ValueError: Not a performance.
    """
    return float(_parse(text, _FLOPS, "a performance", "312 TFLOP/s", _MOST_RATE))


def parse_frequency(text: object) -> float:
    """Return a frequency such as ``"1.4 GHz"`` in Hz.

    Raises:
        ValueError: Not a frequency.
    """
    return float(_parse(text, _FREQUENCY, "a frequency", "1.4 GHz"))


def parse_percent(text: object) -> float:
    """Return a ratio such as ``"5 %"`` as a fraction of 1.

    Raises:
        ValueError: Not a percentage.
    """
    return float(_parse(text, _PERCENT, "a percentage", "5 %"))


def parse_money(text: object) -> float:
    """Return a price such as ``"25 kUSD"`` in USD.

    Raises:
        ValueError: Not a price.
    """
    return float(_parse(text, _MONEY, "a price", "250 USD"))


def parse_power(text: object) -> float:
    """Return a power such as ``"700 W"`` in W.

    Raises:
        ValueError: Not a power.
    """
    return float(_parse(text, _POWER, "a power", "700 W"))


def parse_energy(text: object) -> float:
    """Return an energy such as ``"0.7 pJ"`` in J.

    Raises:
        ValueError: Not an energy.
    """
    return float(_parse(text, _ENERGY, "an energy", "0.7 pJ"))


def format_bytes(count: float) -> str:
    """Return a size in binary units, 4 significant digits: ``"1.5 GiB"``."""
    steps = [(1.0, "B"), *((float(scale), prefix + "B") for prefix, scale in _BINARY.items())]
    return _format(count, steps)


def format_time(ns: float) -> str:
    """Return a time given in ns, 4 significant digits: ``"10.37 ms"``."""
    return _format(ns, [(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")])


def format_bandwidth(bytes_per_ns: float) -> str:
    """Return a bandwidth given in bytes per ns, decimal units: ``"400 GB/s"``."""
    return _format(bytes_per_ns * 1e9, _decimal_steps("B/s"))


def format_flops(flops: float) -> str:
    """Return a performance given in FLOP/s: ``"312 TFLOP/s"``."""
    return _format(flops, _decimal_steps("FLOP/s"))


def format_count(count: float) -> str:
    """Return a count: exact with separators below a million, else 4 significant digits: ``"12.35 M"``."""
    if abs(count) < 10**6:
        return f"{count:,}"
    return _format(count, [step for step in _decimal_steps("") if step[0] >= 1e6])


def unit_pattern(kind: str) -> str:
    """Return a regular expression of the texts a reader accepts, for a JSON Schema.

    Args:
        kind: ``bytes``, ``bandwidth``, ``time``, ``flops``, ``frequency``, ``percent``, ``money``, ``power``
            or ``energy``.
    """
    tables = {
        "bytes": _BYTES, "bandwidth": _BANDWIDTH, "time": _TIME, "flops": _FLOPS, "frequency": _FREQUENCY,
        "percent": _PERCENT, "money": _MONEY, "power": _POWER, "energy": _ENERGY,
    }  # fmt: skip
    units = tables[kind]
    return r"^\s*\+?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,2})?\s*(" + "|".join(units) + r")\s*$"


def _decimal_steps(unit: str) -> list[tuple[float, str]]:
    # K is read, because people write it, but k is written.
    return [(float(scale), prefix + unit) for prefix, scale in _DECIMAL.items() if prefix != "K"]


def _parse(
    text: object, units: dict[str, Fraction], what: str, example: str, most: int = 2**63 - 1
) -> Fraction:
    got = f"got {reprlib.repr(text)}"
    expected = f"expected {what} with a unit, e.g. '{example}'"
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{got}, {expected}")
    unit = match[2]
    if unit is None:
        raise ValueError(f"{got}, which has no unit, {expected}")
    if unit not in units:
        raise ValueError(f"{got}, with unknown unit '{unit}', {expected}{_nearest_unit(unit, units)}")
    value = Fraction(match[1]) * units[unit]
    if value < 0:
        raise ValueError(f"{got}, which is negative, {expected}")
    if value > most:
        raise ValueError(f"{got}, which is too large, {expected}")
    return value


def _nearest_unit(word: str, units: Iterable[str]) -> str:
    """Return a hint at the units that `word` may mean: of ``G`` GB and GiB, of ``gbps`` Gbps and GBps."""
    known = list(units)
    spoken = _SPOKEN.get(word.casefold())
    if spoken in known:
        return did_you_mean([spoken])
    if word + "S" in known:
        return did_you_mean([word + "S"])
    # mb may mean MB or Mb: both are named.
    if same := [unit for unit in known if unit.casefold() == word.casefold()]:
        return did_you_mean(same[:2])
    # The unit's beginning is there and its end is missing, as in G for GB.
    ends: tuple[str, ...] = ("B", "iB", "B/s", "iB/s", "FLOP/s", "Hz", "s", "in", "W", "J", "USD")
    starts = dict.fromkeys((word, word.upper(), word.lower()))
    ends = ("/s",) if word.casefold().endswith(("b", "bit")) else ends
    begun = [start + end for start in starts for end in ends if start + end in known]
    return did_you_mean(begun[:2]) if begun else nearest(word, known)


def _format(value: float, steps: list[tuple[float, str]]) -> str:
    """Write `value` in the largest unit that leaves at least 1 of it after rounding to 4 digits."""
    scale, unit = steps[0]
    for candidate in steps[1:]:
        # Compared after rounding: 999.99 GB is 1 TB, not 1000 GB.
        if abs(float(f"{value / candidate[0]:.4g}")) < 1:
            break
        scale, unit = candidate
    number = float(f"{value / scale:.4g}")
    digits = f"{number:,.0f}" if number == int(number) else f"{number:.4g}"
    return f"{digits} {unit}".rstrip()
