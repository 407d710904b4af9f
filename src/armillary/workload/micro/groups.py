"""Groups of equal size: consecutive ranks, all of them at work at the same time."""

from __future__ import annotations

from armillary.base.errors import InputError
from armillary.workload.divisors import divisors, near


def group_sizes(npus: int) -> list[int]:
    """Return every group size that divides `npus`, ascending from 2."""
    return [size for size in divisors(npus) if size > 1]


def check_group(npus: int, members: int) -> None:
    """Refuse groups that do not take every rank.

    Raises:
        InputError: names the nearest size that does.
    """
    possible = group_sizes(npus)
    if not possible:
        raise InputError(f"{npus} NPUs: expected at least 2, or nothing is sent")
    if members not in possible:
        raise InputError(
            f"groups of {members} ranks on {npus} NPUs: expected a size of at least 2 that divides {npus} "
            f"(nearest: {near(members, possible)})"
        )


def blocks(npus: int, members: int) -> list[tuple[int, ...]]:
    """Return the ranks of every group."""
    return [tuple(range(first, first + members)) for first in range(0, npus, members)]
