"""A collective call: what its members must agree on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CollectiveCall:
    """What the members of a collective must agree on."""

    comm: int
    operation: str
    size: int
    involved: tuple[bool, ...] | None
    custom: str = ""
    """Prefix of the traces that replace the algorithm."""
    root: int = 0
    """Rank a broadcast, reduce, gather or scatter has as root."""
    splits: tuple[tuple[int, ...], ...] = ()
    """Bytes from each member to each other one, of an all-to-all with sizes of its own."""
