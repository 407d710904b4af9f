"""Broadcast and reduce in parts that follow each other: a chain of members, and parts that everyone passes on.

A reduce is the broadcast with every message turned round, the last round first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby

import numpy as np

from armillary.collective.rounds import CollectiveAlgorithm, IntArray, Messages, Moves, Round, Rounds

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
    # A reduce runs the broadcast backwards.
    step = t if operation == "broadcast" else last - t
    first, after = _active(n, parts, step)
    place = np.arange(first, after)
    columns = []
    for half, way in enumerate((1, -1)):
        sender, receiver = (root + way * place) % n, (root + way * (place + 1)) % n
        # At a step the sender at place p passes on part step - p.
        columns.append((sender, receiver, 2 * (step - place) + half))
    return _wave(operation, columns, 2 * parts)


def spread(operation: str, n: int, root: int, parts: int) -> tuple[Round, ...]:
    """Let the root send each member a share of a part, which that passes on to all others while the next is sent.

    Broadcast by scatter and all-gather (van de Geijn; Thakur et al., 2005, section 4.3), without a share of the root's
    own, so that every link between members carries the same; reduce by reduce-scatter and gather.
    """
    # Scatter only, then both, then passing on only; two members have nothing to pass on.
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
        # The root sends shares of part `step`, while others pass on those of the part before.
        columns.append((np.full(n - 1, root), owner, step * (n - 1) + share))
    if step and n > 2:
        to = (share[:, None] + np.arange(1, n - 1)) % (n - 1)
        sender, block = (np.repeat(each, n - 2) for each in (owner, (step - 1) * (n - 1) + share))
        columns.append((sender, owner[to.ravel()], block))
    return _wave(operation, columns, (n - 1) * parts)


def _active(n: int, parts: int, step: int) -> tuple[int, int]:
    """Return the places in a chain that send in a step, first and last + 1."""
    # Place p sends parts 0 to parts - 1, in the steps p to p + parts - 1.
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


class Chain(CollectiveAlgorithm):
    """Pass parts on from member to member, half of them each way round."""

    operations = ("broadcast", "reduce")
    around = True
    most_members = 512
    """A chain of more is longer than a tree is deep."""

    def usual_chunks(self, n: int) -> int:
        """See `CollectiveAlgorithm`: four per member cost a quarter more than the bytes need."""
        return 4 * (n - 1)

    def ahead(self, n: int) -> int:
        """See `CollectiveAlgorithm`."""
        return max(n - 2, 1)

    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        """See `CollectiveAlgorithm`."""
        return chain(operation, n, root, chunks)

    def parts(self, rounds: Rounds) -> int:
        """See `CollectiveAlgorithm`."""
        return 2 * rounds.chunks

    def blocks(self, rounds: Rounds) -> Iterator[Messages]:
        """See `CollectiveAlgorithm`."""
        return _blocks(chain_wave, rounds)


class ScatterAllGather(CollectiveAlgorithm):
    """The root scatters each part, and all pass their shares of it on to all."""

    operations = ("broadcast", "reduce")
    most_members = 128
    """Among more a member has as many messages in each round."""

    def usual_chunks(self, n: int) -> int:
        """See `CollectiveAlgorithm`."""
        return 4

    def ahead(self, n: int) -> int:
        """See `CollectiveAlgorithm`."""
        return 1

    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        """See `CollectiveAlgorithm`."""
        return spread(operation, n, root, chunks)

    def parts(self, rounds: Rounds) -> int:
        """See `CollectiveAlgorithm`."""
        return (rounds.n - 1) * rounds.chunks

    def blocks(self, rounds: Rounds) -> Iterator[Messages]:
        """See `CollectiveAlgorithm`."""
        return _blocks(spread_wave, rounds)


def _blocks(wave: Callable[[str, int, int, int, int], Wave], rounds: Rounds) -> Iterator[Messages]:
    for t in range(rounds.count):
        _, carried = wave(rounds.operation, rounds.n, rounds.root, rounds.chunks, t)
        yield [(block,) for block in carried.tolist()]
