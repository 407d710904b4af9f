"""In which order the chunks of a collective visit the dimensions of a machine.

Schedulers see dimensions as levels: members, ns per byte, latency. How good a plan can be is a matrix game
between dimension orders and ports. Its value is the lower bound, and its strategy is the start of the search.

`online-greedy` lowers all dimension orders, sorted, and a chunk's position among them is narrowed down level
by level. The first member that is ready triggers the choice. It is made between the two halves of a tick,
chunk by chunk, and holds for all members, so that neither the order of events nor folding matters.

An order lists levels as a chunk visits them: all of them in a reduce-scatter, an all-gather or an all-to-all; in
an all-reduce the reduce-scatters, of which the last is an all-reduce, before the all-gathers come back in reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SCHEDULABLE = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all")
"""Operations whose chunks may visit the dimensions in any order."""
WITHIN = ("earliest-phase", "fifo", "smallest-first")
"""Which chunk a port serves first, in the order of the numbers of `chunk_flows_kernel`."""
Order = tuple[int, ...]


@dataclass(frozen=True)
class Level:
    """One dimension: `n` members on a line.

    `moving` is the ns that its port needs for a byte that a member has when it comes (all-gather, all-to-all,
    reduce-scatter), `latency` the ns that a chunk takes besides, `turning` the `moving` of an all-reduce. `least` and
    `turn_least` are ns that a chunk takes besides however small it is.
    """

    n: int
    moving: float
    latency: float
    turning: float = 0.0
    least: float = 0.0
    turn_least: float = 0.0


@dataclass(frozen=True)
class Step:
    """One phase of a chunk: its level, and ns at the port per byte of the chunk."""

    level: int
    moving: float


def chunk_routes(operation: str, levels: Sequence[Level], order: Order) -> list[Step]:
    """Return the phases of a chunk that visits the levels in this order."""
    result, scale = [], 1.0
    turn = operation == "all-reduce"
    for at in order[:-1] if turn else order:
        level = levels[at]
        result.append(Step(at, level.moving * scale))
        # A reduce-scatter shrinks what the next level moves, an all-gather makes it grow; an all-to-all keeps
        # it.
        if operation != "all-to-all":
            scale *= level.n if operation == "all-gather" else 1 / level.n
    if not turn:
        return result
    last = levels[order[-1]]
    # The way back gathers at each level what the way in scattered: the same bytes in reverse order.
    return [*result, Step(order[-1], last.turning * scale), *reversed(result)]


def loads(operation: str, levels: Sequence[Level], order: Order) -> list[float]:
    """Return the ns per byte of a chunk at the port of each level."""
    total = [0.0] * len(levels)
    for step in chunk_routes(operation, levels, order):
        total[step.level] += step.moving
    return total


def plain_order(operation: str, levels: int) -> Order:
    """Return the order without a scheduler: innermost first, outermost in an all-gather."""
    return tuple(range(levels))[:: -1 if operation == "all-gather" else 1]
