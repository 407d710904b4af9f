"""How many things a file or an option may ask for: what is repeated is counted before it is made."""

from __future__ import annotations

from armillary.base.allowed import how_to_raise, limit
from armillary.base.errors import InputError
from armillary.base.units import format_count

MOST_JOBS = 100_000
"""Jobs of a study, repetitions included: each is placed and reported."""
MOST_RECORDED = 2_000_000
"""Nodes that a converter makes one by one: 10 s of them, and 3 GB."""


def check_count(count: float, most: float, what: str, change: str) -> None:
    """Refuse more than `most` of something.

    Args:
        count: How many there would be.
        most: How many there may be.
        what: What they are, with what asks for them: "--passes 100000000: nodes".
        change: What to do about it.

    Raises:
        InputError: there would be more.
    """
    allowed = limit(most)
    if count > allowed:
        raise InputError(
            f"{what}: {format_count(int(count))} of them, expected at most {format_count(int(allowed))}: {change} "
            f"({how_to_raise(count / allowed)})"
        )
