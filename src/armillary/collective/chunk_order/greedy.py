"""Schedulers that decide before a collective starts: which order each chunk takes, and how big it is."""

from __future__ import annotations

from collections.abc import Sequence

from armillary.collective.chunk_order import Level, Order, loads, plain_order

Chunks = list[tuple[int, Order]]
"""Bytes and order of each chunk, in the order in which they are numbered."""
EVEN = 1 / 16
"""Themis (ISCA'22, section 4.3): loads that differ by less than this part of a chunk's time are equal."""
LEAST = 1 / 4
"""Part of a plain chunk that a flexible chunk has at least."""


def baseline(operation: str, levels: Sequence[Level], sizes: Sequence[int]) -> Chunks:
    """Every chunk takes the plain order."""
    order = plain_order(operation, len(levels))
    return [(size, order) for size in sizes]


def round_robin(operation: str, levels: Sequence[Level], sizes: Sequence[int]) -> Chunks:
    """Every chunk begins one level after the one before."""
    order = plain_order(operation, len(levels))
    turns = [order[i:] + order[:i] for i in range(len(order))]
    return [(size, turns[i % len(turns)]) for i, size in enumerate(sizes)]


class Tracker:
    """What each level has to move for the chunks placed so far, ns; at first the latency of a chunk on it."""

    def __init__(self, operation: str, levels: Sequence[Level]) -> None:
        self.operation, self.levels = operation, levels
        self.load = [level.latency for level in levels]
        self.plain = plain_order(operation, len(levels))

    def by_load(self) -> Order:
        """Return the order that gives the least loaded level the most bytes."""
        most_first = self.operation == "all-gather"
        # The first level of a reduce-scatter moves most bytes, of an all-gather the last one.
        return tuple(sorted(self.plain, key=lambda at: -self.load[at] if most_first else self.load[at]))

    def per_byte(self, order: Order) -> float:
        """Return the ns per byte of a chunk at the level that this order favours."""
        favoured = order[-1] if self.operation == "all-gather" else order[0]
        return loads(self.operation, self.levels, order)[favoured]

    def place(self, size: float, order: Order) -> None:
        """Account for a chunk."""
        for at, each in enumerate(loads(self.operation, self.levels, order)):
            self.load[at] += each * size

    @property
    def spread(self) -> float:
        """How much the most loaded level has more than the least loaded."""
        return max(self.load) - min(self.load)


def themis(operation: str, levels: Sequence[Level], sizes: Sequence[int]) -> Chunks:
    """Every chunk favours the level with the least load so far (Themis, ISCA'22); if all are even, the plain order."""
    tracker, result = Tracker(operation, levels), []
    for size in sizes:
        order = tracker.by_load()
        # The chunk could not level such small differences.
        if tracker.spread < EVEN * size * tracker.per_byte(order):
            order = tracker.plain
        tracker.place(size, order)
        result.append((size, order))
    return result


def themis_flex(operation: str, levels: Sequence[Level], sizes: Sequence[int]) -> Chunks:
    """Themis with chunks just as big as make the favoured level even with the most loaded.

    Chunks have between a quarter and the whole of a plain one, so there may be more of them.
    """
    tracker, result, left = Tracker(operation, levels), [], sum(sizes)
    most = max(sizes)
    least = max(1, int(LEAST * most))
    while left > 0:
        order = tracker.by_load()
        # The lower limit guards against a level that moves nothing.
        wanted = int(tracker.spread / max(tracker.per_byte(order), 1e-9))
        size = min(max(wanted, least), most)
        if wanted < EVEN * most:
            size, order = most, tracker.plain
        # A rest smaller than the least chunk joins the last one.
        size = left if left < size + least else size
        tracker.place(size, order)
        result.append((size, order))
        left -= size
    # An empty collective still has one chunk.
    return result or [(0, tracker.plain)]
