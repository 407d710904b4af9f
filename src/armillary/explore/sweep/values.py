"""The values of an axis: lists, ranges, ranges by factors."""

from __future__ import annotations

from typing import Any

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.base.portable import power
from armillary.explore.sweep.point import Value
from armillary.explore.sweep.quantity import base_units, joined, split
from armillary.explore.sweep.schema import Varied

MOST = 1_000_000
"""Most values of an axis."""
_CLOSE = 1e-9


def values_of(varied: Varied) -> tuple[Value, ...]:
    """Return the values of a list or range, in order.

    ``from`` and ``to`` with ``step`` or ``times`` give all up to `to`; with ``count`` both ends and the values between.
    Ends that are whole numbers give whole numbers, rounded, each once; write 1.0 for fractions.

    Raises:
        InputError: there is none, one twice, or the ends do not fit together.
    """
    if varied.values is not None:
        return _listed(varied.values)
    low, high, unit = _ends(varied.first, varied.to)
    if varied.times is not None:
        found = _by_factor(low, high, float(varied.times))
    elif varied.step is not None:
        step = _in_unit(varied.step, unit, "step")
        if step <= 0 or high < low:
            raise InputError(f"got step {show(varied.step)}, expected more than 0, and from not above to")
        # 0.1 to 0.3 by 0.1 has three values, though 0.2 / 0.1 may come out below 2.
        count = int((high - low) / step + _CLOSE) + 1
        _few(count)
        # Multiplied, not summed up: errors do not add up.
        found = [low + index * step for index in range(count)]
    else:
        assert varied.count is not None
        found = _between(low, high, varied.count, varied.spacing == "log")
    if (
        not unit
        and _whole(varied.first)
        and _whole(varied.to)
        and (varied.step is None or _whole(varied.step))
    ):
        # Rounded values may repeat: 1 to 4 in 6 logarithmic steps.
        return tuple(dict.fromkeys(round(each) for each in found))
    if unit:
        return tuple(joined(each, unit) for each in found)
    return tuple(float(f"{each:.10g}") for each in found)


def _listed(given: list[Any]) -> tuple[Value, ...]:
    if not given:
        raise InputError("got an empty list, expected at least one value")
    _few(len(given))
    seen: set[tuple[type, Value]] = set()
    for value in given:
        if not isinstance(value, str | int | float | bool | None):
            raise InputError(f"got {show(value)}, expected plain values; choices name what is longer")
        # By type, too: 1 and True, or 1 and 1.0, are different values of a study.
        if (type(value), value) in seen:
            raise InputError(f"got {show(value)} twice, expected different values")
        seen.add((type(value), value))
    return tuple(given)


def _between(low: float, high: float, count: int, log: bool) -> list[float]:
    if log and (low <= 0 or high <= 0):
        raise InputError("spacing log: expected from and to above 0")
    last = count - 1
    if log:
        # Both ends exactly as written, whatever the powers round to.
        return [low, *(low * power(high / low, index / last) for index in range(1, last)), high]
    return [low, *(low + (high - low) * index / last for index in range(1, last)), high]


def _by_factor(low: float, high: float, times: float) -> list[float]:
    if low <= 0 or high < low:
        raise InputError(f"times {times:g}: expected from above 0, and not above to")
    found = [low]

    def power_of(count: int) -> float:
        # Whole numbers stay whole.
        return times**count if isinstance(times, int) else power(times, count)

    while (value := low * power_of(len(found))) <= high * (1 + _CLOSE):
        found.append(value)
        _few(len(found))
    return found


def _ends(first: Any, to: Any) -> tuple[float, float, str]:
    """Return both ends in the unit of the first, and this unit."""
    unit = ""
    if isinstance(first, str):
        found = split(first)
        unit = found[1] if found else ""
        if not unit or base_units(first) is None:
            raise InputError(f"from: got {show(first)}, expected a number, with a unit where the key has one")
    return _in_unit(first, unit, "from"), _in_unit(to, unit, "to"), unit


def _in_unit(value: Any, unit: str, name: str) -> float:
    """Return a value as a number in `unit`."""
    if isinstance(value, int | float) and not isinstance(value, bool) and not unit:
        try:
            return float(value)
        except OverflowError:
            raise InputError(f"{name}: got {show(value)}, expected a number that a float holds") from None
    found, one = base_units(value) if isinstance(value, str) else None, base_units(f"1 {unit}")
    if not unit or found is None or one is None or found[1] != one[1]:
        expected = f"a quantity such as '1 {unit}'" if unit else "a number"
        raise InputError(f"{name}: got {show(value)}, expected {expected}, as from")
    own = split(value)
    assert own is not None
    # In its own unit a number stays exact; by way of base units it could round.
    return own[0] if own[1] == unit else found[0] / one[0]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _few(count: int) -> None:
    if count > MOST:
        raise InputError(f"makes {count} values, expected at most {MOST}")
