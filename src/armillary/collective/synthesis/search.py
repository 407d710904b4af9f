"""Several tries at an all-gather, of which the fastest is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

import numpy as np

from armillary.collective.synthesis import symmetric
from armillary.collective.synthesis.greedy import greedy
from armillary.collective.synthesis.spread import Options, Spread
from armillary.collective.synthesis.wires import PS, wires_of
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
    """What is asked for.

    Attributes:
        size: Bytes of all NPUs' shares together.
        per_npu: Chunks of each share; None: several numbers are tried.
        seed: Of the random choices.
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
        backwards: On reversed wires: a reduce-scatter, backwards in time.

    Raises:
        InputError: there are too many chunks, or not all NPUs can reach each other.
    """
    n = routing.topology.npus
    best: tuple[int, Callable[[], Spread], Ints | None] | None = None
    work = 0
    for per_npu in _counts(n, request.per_npu):
        chunk = chunk_bytes(request.size, n, per_npu)
        wires = wires_of(routing, chunk, request.after(chunk))
        back = wires.back() if backwards else None
        if backwards and back is None:
            wires = wires.reversed(wires.after)
        folded = None if backwards and back is None else symmetric.fold(wires)
        for options in _options(request):
            if folded:
                sends = symmetric.tree(folded, per_npu, options)
                end = sends[-1]
                make: Callable[[], Spread] = partial(symmetric.spread, folded, per_npu, *sends)
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
