"""Search for an all-gather: several tries, the fastest wins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

import numpy as np

from armillary.base.errors import InputError
from armillary.collective.synthesis import symmetric
from armillary.collective.synthesis.edges import PS, Edges, edges_of
from armillary.collective.synthesis.greedy import greedy
from armillary.collective.synthesis.spread import Options, Spread
from armillary.platform.topology.graph import Ints
from armillary.platform.topology.routing import Routing

MOST_SENDS = 1 << 25
"""Sends of one all-gather that fit: 20 bytes each."""
FINE_SENDS = 1 << 20
"""Sends up to which finer chunks are tried."""
FINEST = 64
WORK = 1 << 19
"""Sends of all tries on a graph whose NPUs differ, but for the first two."""
ENOUGH = 0.998
"""Finer chunks are tried while they gain more than this leaves."""


@dataclass(frozen=True)
class Request:
    """What to search for.

    Attributes:
        size: Bytes of all NPUs' shares together.
        per_npu: Chunks of each share; None: several numbers are tried.
        seed: Random seed.
        tries: Seeds that are tried.
        delay: ps between arrival and use.
        memory_bandwidth: At which what arrives is added, bytes/s; 0: in no time.
    """

    size: int
    per_npu: int | None
    seed: int
    tries: int
    delay: int = 0
    memory_bandwidth: float = 0.0

    def after(self, chunk: int) -> int:
        """Return the ps between the arrival of a chunk and its use."""
        adds = ceil(chunk / self.memory_bandwidth * 1e9) * PS if self.memory_bandwidth else 0
        return self.delay + adds


def chunk_bytes(size: int, n: int, per_npu: int) -> int:
    """Return the bytes of a chunk of an n-th of `size`."""
    return max(1, -(-size // (n * per_npu)))


def best_spread(routing: Routing, request: Request, *, backwards: bool = False) -> Spread:
    """Return the fastest all-gather found; of equally fast ones the one with the fewest chunks.

    Args:
        routing: The network.
        request: See `Request`.
        backwards: On reversed edges: a reduce-scatter, backwards in time.

    Raises:
        InputError: there are too many chunks, or not all NPUs can reach each other.
    """
    n = routing.topology.npus
    best: Try | None = None
    work = 0
    for per_npu in _counts(n, request.per_npu):
        ground = _ground(routing, request, per_npu, backwards)
        before = best
        # Strict first; loose may be better where regions are badly joined.
        for loose in (False, True):
            best = _better(best, ground, Options(request.seed, 1, loose))
        work += 2 * n * (n - 1) * per_npu
        # Finer chunks gain no more, or searching them costs too much.
        if before and best and (best.end > ENOUGH * before.end or (not ground.folded and 2 * work > WORK)):
            break
    assert best
    for number in range(1, request.tries):
        work += n * (n - 1) * best.ground.per_npu
        if best.ground.folded or work <= WORK:
            # Odd seeds take the best of 4 draws: rarer chunks first, less random.
            draws = 1 if number % 2 == 0 else 4
            best = _better(best, best.ground, Options(request.seed + number, draws, best.loose))
    return best.ground.turned(best.make())


@dataclass(frozen=True, eq=False)
class Ground:
    """Edges to search on, how they fold if they do, and which edge each stands for if not itself."""

    edges: Edges
    per_npu: int
    folded: symmetric.Fold | None
    back: Ints | None

    def turned(self, spread: Spread) -> Spread:
        """Return an all-gather on reversed edges, if each edge stands for the opposite one."""
        if self.back is None:
            return spread
        return replace(
            spread, edges=self.edges.reversed(self.edges.after), edge=self.back.astype(np.int32)[spread.edge]
        )


@dataclass(frozen=True, eq=False)
class Try:
    """An all-gather that was found: its end, ps, and how to get it."""

    end: int
    ground: Ground
    loose: bool
    make: Callable[[], Spread]


def _ground(routing: Routing, request: Request, per_npu: int, backwards: bool) -> Ground:
    chunk = chunk_bytes(request.size, routing.topology.npus, per_npu)
    edges = edges_of(routing, chunk, request.after(chunk))
    if not backwards:
        return Ground(edges, per_npu, symmetric.fold(edges), None)
    # If an edge has no opposite on like links, search the reversed graph, which may not be symmetric.
    back = edges.back()
    if back is None:
        return Ground(edges.reversed(edges.after), per_npu, None, None)
    return Ground(edges, per_npu, symmetric.fold(edges), back)


def _better(best: Try | None, ground: Ground, options: Options) -> Try:
    """Return the better of the best so far and another try."""
    if ground.folded:
        sends = symmetric.tree(ground.folded, ground.per_npu, options)
        make = partial(symmetric.spread, ground.folded, ground.per_npu, *sends)
        other = Try(sends[-1], ground, options.loose, make)
    else:
        found = greedy(ground.edges, ground.per_npu, options)
        other = Try(found.end, ground, options.loose, partial(_same, found))
    # On a tie the earlier try wins: it has fewer chunks.
    return other if best is None or other.end < best.end else best


def _same(spread: Spread) -> Spread:
    return spread


def _counts(n: int, given: int | None) -> Iterator[int]:
    if n * (n - 1) * (given or 1) > MOST_SENDS:
        raise InputError(
            f"an all-gather among {n} NPUs in {given or 1} chunks each has {n * (n - 1) * (given or 1):,} messages; "
            f"expected at most {MOST_SENDS:,}: fewer NPUs or chunks"
        )
    if given is not None:
        yield given
        return
    count = 1
    while count == 1 or (count <= FINEST and n * (n - 1) * count <= FINE_SENDS):
        yield count
        count *= 2
