"""A plan of chunks and orders that is as good as a search finds it.

It starts from the plans of the greedy schedulers and from the shares that are best for infinitely small chunks, and
improves the best of them by small changes: another order for a chunk, two chunks in each other's place, bytes from
one chunk to another. A change stays if the collective ends no later. They are drawn from a fixed seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import fsum
from random import Random

from armillary.base.jit import Mode
from armillary.collective.chunk_order import Level, Order, greedy
from armillary.collective.chunk_order.alone import Alone, Problem, Rows
from armillary.collective.chunk_order.bound import Shares, best_shares
from armillary.collective.chunk_order.greedy import Chunks
from armillary.collective.chunk_order.online import online_greedy

TRIES = 4000
"""Changes that are tried."""
LOOKS = 1 << 30
"""Fewer are tried if ports would look at waiting chunks more often than this."""
MOST_LEVELS = 6
"""With more levels only the orders of the first plans are tried, and there is no `online-greedy`."""
GOOD = 1.001
"""A plan this near to the bound is good enough."""


@dataclass(frozen=True)
class Found:
    """The best plan: its chunks, and when they are done, ns."""

    chunks: Chunks
    time: int


def least_time(operation: str, levels: Sequence[Level], size: int) -> float:
    """Return what no plan beats, ns: ports that never idle, or the latencies that every chunk meets."""
    latency = fsum(level.least for level in levels)
    if operation == "all-reduce":
        # An all-reduce turns at one level, which has its own least time; the others are met twice.
        latency = min(2 * (latency - level.least) + level.turn_least for level in levels)
    return max(best_shares(operation, levels).time * size, latency)


def search(
    operation: str,
    levels: Sequence[Level],
    sizes: Sequence[int],
    within: str,
    costs: Rows,
    tries: int = TRIES,
    mode: Mode = "compiled",
) -> Found:
    """Return the best plan found.

    Args:
        operation: One of `chunk_order.SCHEDULABLE`.
        levels: The dimensions, innermost first.
        sizes: Bytes of plain chunks.
        within: Which chunk a port serves first.
        costs: How long phases of chunks take.
        tries: Changes to try.
        mode: How plans are timed.
    """
    shares = best_shares(operation, levels)
    enough = least_time(operation, levels, sum(sizes)) * GOOD
    greedily = (greedy.baseline, greedy.round_robin, greedy.themis, greedy.themis_flex)
    starts = [plan(operation, levels, sizes) for plan in greedily]
    starts += [spread(shares, sizes), blocks(shares, sizes)]
    if operation != "all-gather" and len(levels) <= MOST_LEVELS:
        starts.append(online_greedy(operation, len(levels), sizes, within, costs))
    orders = list(dict.fromkeys(order for plan in starts for _, order in plan))
    # At most 720 orders.
    if len(levels) <= MOST_LEVELS:
        orders = list(permutations(range(len(levels))))
    alone, random = Alone(len(levels), within, costs, mode), Random(0)
    best = min(starts, key=alone.time)
    time = alone.time(best)
    # Looks at waiting chunks that timing a plan costs: chunks squared, per phase and port.
    each = len(best) ** 2 * (2 * len(levels) - 1) * (len(levels) + 2)
    for _ in range(min(tries, LOOKS // each) if len(levels) > 1 else 0):
        if time <= enough:
            break
        changed = _changed(best, orders, random)
        took = alone.time(changed)
        # Equally good changes are taken too, so that the search can cross plateaus.
        if took <= time:
            best, time = changed, took
    return Found(best, time)


def optimal(problem: Problem) -> Chunks:
    """Return the chunks of the best plan that a search finds."""
    return search(problem.operation, problem.levels, problem.sizes, problem.within, problem.costs).chunks


def spread(shares: Shares, sizes: Sequence[int]) -> Chunks:
    """Give each chunk the order that is furthest behind its share."""
    given, result = dict.fromkeys(shares.share, 0.0), []
    total = 0.0
    for size in sizes:
        total += size
        order = max(shares.share, key=lambda o: shares.share[o] * total - given[o])
        given[order] += size
        result.append((size, order))
    return result


def blocks(shares: Shares, sizes: Sequence[int]) -> Chunks:
    """The same, but all chunks of an order one after the other, the largest share first."""
    return sorted(spread(shares, sizes), key=lambda chunk: -shares.share[chunk[1]])


def _changed(plan: Chunks, orders: Sequence[Order], random: Random) -> Chunks:
    """Return a plan with one small change."""
    result = list(plan)
    a, b = random.randrange(len(plan)), random.randrange(len(plan))
    kind = random.randrange(3)
    if kind == 0:
        result[a] = (plan[a][0], random.choice(orders))
    elif kind == 1:
        result[a], result[b] = plan[b], plan[a]
    elif a != b:
        # At most half of a chunk moves, so that none becomes empty.
        moved = int(plan[a][0] * random.random() / 2)
        result[a] = (plan[a][0] - moved, plan[a][1])
        result[b] = (plan[b][0] + moved, plan[b][1])
    return result
