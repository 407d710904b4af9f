"""The chunk flows of the reference, and how they share ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Port = tuple[int, int, str]
"""Rank, dimension, "out" or "into"; or the first rank that has a stage of memory, its number, "read" or "write"."""


@dataclass(eq=False)
class ChunkFlow:
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


def share(chunk_flows: list[ChunkFlow], rates: Mapping[Any, int], scheduling: str) -> None:
    """Give every chunk flow its rate; ports have `rates`, by dimension or stage of memory and direction.

    A port whose rate is its own has it by its rank, dimension and direction.
    """
    on: dict[Port, list[ChunkFlow]] = {}
    active = [chunk_flow for chunk_flow in chunk_flows if chunk_flow.head]
    for chunk_flow in active:
        for port in chunk_flow.uses:
            on.setdefault(port, []).append(chunk_flow)
    for chunk_flow in active:
        least = []
        for port, factor in chunk_flow.uses.items():
            sharers = on[port]
            if scheduling != "fair":
                first = min(_key(other) for other in sharers)
                sharers = [other for other in sharers if _key(other) == first]
            rate = max(1, rates.get(port, rates.get(port[1:], 0)) // (factor * len(sharers)))
            least.append(rate if chunk_flow in sharers else 0)
        chunk_flow.rate = min(least)


def _key(chunk_flow: ChunkFlow) -> tuple[int, int]:
    assert chunk_flow.key is not None
    return chunk_flow.key
