"""Several tries at an all-gather, of which the fastest is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from armillary.collective.synthesis import symmetric
from armillary.collective.synthesis.greedy import greedy
from armillary.collective.synthesis.spread import Options, Spread
from armillary.collective.synthesis.wires import Wires, wires_of
from armillary.errors import InputError
from armillary.platform.topology.graph import Ints
from armillary.platform.topology.routing import Routing

MOST_SENDS = 1 << 25
"""Sends of one all-gather that fit: 20 bytes each."""
FINE_SENDS = 1 << 20
"""Sends up to which finer chunks are tried."""
FINEST = 64
WORK = 3 << 20
"""Sends of all tries on a graph whose NPUs differ, but for the first two."""


@dataclass(frozen=True)
class Request:
    """What is asked for: bytes of all NPUs' shares together, chunks per NPU (None: several are tried), seed, tries
    with other random numbers, ps between arrival and use."""

    size: int
    per_npu: int | None
    seed: int
    tries: int
    after: int = 0


def chunk_bytes(size: int, n: int, per_npu: int) -> int:
    """Return the bytes of a chunk of an n-th of `size`."""
    return max(1, -(-size // (n * per_npu)))


def best_spread(routing: Routing, request: Request, *, backwards: bool = False) -> Spread:
    """Return the fastest all-gather found; of equally fast ones the one with the fewest chunks.

    Args:
        routing: The network.
        request: See `Request`.
        backwards: On reversed wires: a reduce-scatter, backwards in time.

    Raises:
        InputError: there are too many chunks, or not all NPUs can reach each other.
    """
    n = routing.topology.npus
    best: tuple[int, Callable[[], Spread], Ints | None] | None = None
    work = 0
    for per_npu in _counts(n, request.per_npu):
        wires = wires_of(routing, chunk_bytes(request.size, n, per_npu), request.after)
        back = wires.back() if backwards else None
        if backwards and back is None:
            wires = wires.reversed(request.after)
        folded = None if backwards and back is None else symmetric.fold(wires)
        for options in _options(request):
            if folded:
                sends = symmetric.tree(folded, per_npu, options)
                end, make = sends[-1], partial(symmetric.spread, folded, per_npu, *sends)
            elif best and options.seed > request.seed and work > WORK:
                break
            else:
                found = greedy(wires, per_npu, options)
                end, make = found.end, partial(_same, found)
                work += len(found.wire)
            if best is None or end < best[0]:
                best = end, make, back
        if not folded and 2 * work > WORK:
            break
    assert best
    _, make, back = best
    return make() if back is None else _turned(make(), back)


def _same(spread: Spread) -> Spread:
    return spread


def _turned(spread: Spread, back: Ints) -> Spread:
    """Return an all-gather as one on reversed wires, each of which is like the way back of another."""
    reversed_wires = spread.wires.reversed(spread.wires.after)
    return replace(spread, wires=reversed_wires, wire=back.astype(np.int32)[spread.wire])


def _options(request: Request) -> Iterator[Options]:
    """Yield the tries: both ways to use slow wires first, then other random numbers, one draw or several."""
    for number in range(request.tries):
        for loose in (False, True):
            yield Options(request.seed + number, 1 if number % 2 == 0 else 4, loose)


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
