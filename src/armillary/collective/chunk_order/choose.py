"""The chunks of a collective by the name of a scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from armillary.collective.chunk_order import greedy
from armillary.collective.chunk_order.alone import Alone, Rows
from armillary.collective.chunk_order.greedy import Chunks
from armillary.collective.chunk_order.levels import Level, Order

SCHEDULERS = {
    "baseline": greedy.baseline,
    "round-robin": greedy.round_robin,
    "themis": greedy.themis,
    "themis-flex": greedy.themis_flex,
}
"""Schedulers that need nothing but loads."""
MANY = 256
"""Chunks that are worth a compiled kernel for two plans."""
MOST = 1 << 11
"""Chunks of which "auto" and "optimal" time plans, at most: that is quadratic."""


def chunks_for(
    how: str, within: str, operation: str, levels: Sequence[Level], size: int, chunks: int, costs: Rows
) -> Chunks:
    """Return bytes and order of each chunk.

    An all-to-all moves the same bytes in every order, so schedulers that look at loads keep the plain one.

    Args:
        how: One of `SCHEDULERS`, "auto" (baseline or themis, whichever ends first alone on the machine) or "optimal".
        within: One of `alone.WITHIN`.
        operation: One of `levels.SCHEDULABLE`.
        levels: The dimensions, innermost first.
        size: Bytes of the collective.
        chunks: Plain chunks that it is divided into.
        costs: How long phases of chunks take, hashable.
    """
    if operation == "all-to-all" and how not in ("round-robin", "optimal"):
        how = "baseline"
    return list(_chunks_for(how, within, operation, tuple(levels), size, chunks, costs))


@lru_cache(maxsize=256)
def _chunks_for(
    how: str, within: str, operation: str, levels: tuple[Level, ...], size: int, chunks: int, costs: Rows
) -> tuple[tuple[int, Order], ...]:
    sizes = greedy.plain_sizes(size, chunks)
    if how == "optimal":
        from armillary.collective.chunk_order.search import search

        return tuple(search(operation, levels, sizes, within, costs).chunks)
    if how == "auto":
        both = [SCHEDULERS[name](operation, levels, sizes) for name in ("baseline", "themis")]
        alone = Alone(len(levels), within, costs, "compiled" if len(sizes) > MANY else "interpreted")
        best: Chunks = min(both, key=alone.time)
        return tuple(best)
    return tuple(SCHEDULERS[how](operation, levels, sizes))
