"""The numbers that work: divisors, and which of some is nearest."""

from __future__ import annotations


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def near(wanted: int, possible: list[int]) -> int:
    """Return the possible number nearest to the one wanted."""
    return min(possible, key=lambda each: (abs(each - wanted), each))
