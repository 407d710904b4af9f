"""The lanes of the twin, and how they share ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Port = tuple[int, int, str]
"""Rank, dimension, "out" or "into"; or the first rank that has a stage of memory, its number, "read" or "write"."""


@dataclass(eq=False)
class Lane:
    """What shares ports; `waiting` holds (place and phase, chunk, volume, what happens when it is through)."""

    uses: dict[Port, int]
    """Port -> how much of it one byte takes."""
    waiting: list[tuple[Any, int, int, Any]] = field(default_factory=list)
    head: tuple[Any, int, int, Any] | None = None
    left: int = 0
    rate: int = 0
    key: tuple[int, int] | None = None
    keys: list[tuple[int, int]] = field(default_factory=list)
    """Of a channel: the place in the global order of every message that waits."""


def share(lanes: list[Lane], rates: Mapping[tuple[int, str], int], scheduling: str) -> None:
    """Give every lane its rate; ports have `rates`, by dimension or stage of memory and direction."""
    on: dict[Port, list[Lane]] = {}
    active = [lane for lane in lanes if lane.head]
    for lane in active:
        for port in lane.uses:
            on.setdefault(port, []).append(lane)
    for lane in active:
        least = []
        for port, factor in lane.uses.items():
            sharers = on[port]
            if scheduling != "fair":
                first = min(_key(other) for other in sharers)
                sharers = [other for other in sharers if _key(other) == first]
            rate = max(1, rates[port[1:]] // (factor * len(sharers)))
            least.append(rate if lane in sharers else 0)
        lane.rate = min(least)


def _key(lane: Lane) -> tuple[int, int]:
    assert lane.key is not None
    return lane.key
