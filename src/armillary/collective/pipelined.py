"""Broadcast and reduce in parts that follow each other: a chain of members, and parts that everyone passes on.

A reduce is the broadcast with every message turned round, the last round first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby

import numpy as np

from armillary.collective.rounds import IntArray, Moves, Round

Wave = tuple[Moves, IntArray]
"""The messages of a round, and the block that each carries."""


def chain(operation: str, n: int, root: int, parts: int) -> tuple[Round, ...]:
    """Pass half of the vector on from each member to the next, the other half the other way round, in parts.

    So does the ring of NCCL. A member sends a part while it receives the next.
    """
    return _rounds(operation, n, _chain_runs(n, parts), lambda t: chain_wave(operation, n, root, parts, t))


def chain_wave(operation: str, n: int, root: int, parts: int, t: int) -> Wave:
    """Return round `t` of a chain, whose blocks are (part, direction)."""
    last = parts + n - 3
    step = t if operation == "broadcast" else last - t
    first, after = _active(n, parts, step)
    place = np.arange(first, after)
    columns = []
    for half, way in enumerate((1, -1)):
        sender, receiver = (root + way * place) % n, (root + way * (place + 1)) % n
        columns.append((sender, receiver, 2 * (step - place) + half))
    return _wave(operation, columns, 2 * parts)


def spread(operation: str, n: int, root: int, parts: int) -> tuple[Round, ...]:
    """Let the root send each member a share of a part, which that passes on to all others while the next is sent.

    Broadcast by scatter and all-gather (van de Geijn; Thakur et al., 2005, section 4.3), without a share of the root's
    own, so that every link between members carries the same; reduce by reduce-scatter and gather.
    """
    steps = [0, *([1] * (parts - 1)), parts] if n > 2 else [0] * parts
    runs = [len(list(run)) for _, run in groupby(steps)]
    return _rounds(operation, n, runs, lambda t: spread_wave(operation, n, root, parts, t))


def spread_wave(operation: str, n: int, root: int, parts: int, t: int) -> Wave:
    """Return round `t` of a spread, whose blocks are (part, share)."""
    last = parts if n > 2 else parts - 1
    step = t if operation == "broadcast" else last - t
    share = np.arange(n - 1)
    owner = (root + 1 + share) % n
    columns = []
    if step < parts:
        columns.append((np.full(n - 1, root), owner, step * (n - 1) + share))
    if step and n > 2:
        to = (share[:, None] + np.arange(1, n - 1)) % (n - 1)
        sender, block = (np.repeat(each, n - 2) for each in (owner, (step - 1) * (n - 1) + share))
        columns.append((sender, owner[to.ravel()], block))
    return _wave(operation, columns, (n - 1) * parts)


def blocks(algorithm: str, operation: str, n: int, root: int, parts: int) -> Iterator[IntArray]:
    """Yield the block that every message carries, round by round."""
    wave, rounds = (chain_wave, parts + n - 2) if algorithm == "chain" else (spread_wave, parts + (n > 2))
    for t in range(rounds):
        yield wave(operation, n, root, parts, t)[1]


def _active(n: int, parts: int, step: int) -> tuple[int, int]:
    """Return the places in a chain that send in a step, first and last + 1."""
    return max(0, step - parts + 1), min(step, n - 2) + 1


@lru_cache(maxsize=64)
def _chain_runs(n: int, parts: int) -> tuple[int, ...]:
    """Return the lengths of the runs of equal rounds."""
    active = [_active(n, parts, step) for step in range(parts + n - 2)]
    return tuple(len(list(run)) for _, run in groupby(active))


def _rounds(operation: str, n: int, runs: Sequence[int], wave: Callable[[int], Wave]) -> tuple[Round, ...]:
    first, found = 0, []
    for count in runs if operation == "broadcast" else reversed(runs):
        found.append(Round(n, wave(first)[0], repeat=count))
        first += count
    return tuple(found)


def _wave(operation: str, columns: list[tuple[IntArray, IntArray, IntArray]], blocks_of_all: int) -> Wave:
    sender, receiver, block = (np.concatenate(each) for each in zip(*columns, strict=True))
    if operation == "reduce":
        sender, receiver = receiver, sender
    return Moves.of(sender, receiver, 1, blocks_of_all, operation == "reduce"), block
