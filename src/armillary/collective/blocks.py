"""What a collective promises: which blocks members start with and must end with, whatever the algorithm.

Blocks are numbered as `armillary.collective.rounds` says. Nothing here bears on time.
"""

from __future__ import annotations

from collections.abc import Iterator

from armillary.collective.algorithms import find_algorithm
from armillary.collective.rounds import Blocks, Messages, Rounds, own


def parts(rounds: Rounds) -> int:
    """Return the number of blocks that D is cut into."""
    return find_algorithm(rounds.algorithm).parts(rounds)


def start(rounds: Rounds, member: int) -> Blocks:
    """Return the blocks that `member` holds before the first round."""
    count = parts(rounds)
    if rounds.operation in ("broadcast", "scatter"):
        return tuple(range(count)) if member == rounds.root else ()
    if rounds.operation == "gather":
        return own(rounds, count, member)
    # Blocks of these two are numbered by owner or origin, so member i starts at i * count; others share one
    # vector.
    first = member * count if rounds.operation in ("all-gather", "all-to-all") else 0
    return tuple(range(first, first + count))


def end(rounds: Rounds, member: int) -> Blocks:
    """Return the blocks that `member` must hold, complete, after the last round."""
    n, count = rounds.n, parts(rounds)
    if rounds.operation in ("reduce", "gather") and member != rounds.root:
        return ()
    if rounds.operation in ("reduce-scatter", "scatter"):
        return own(rounds, count, member)
    if rounds.operation == "all-to-all":
        return tuple(origin * count + k for origin in range(n) for k in own(rounds, count, member))
    return tuple(range(n * count if rounds.operation == "all-gather" else count))


def blocks(rounds: Rounds) -> Iterator[Messages]:
    """Yield the blocks of every message, round by round, repeated rounds one by one.

    Raises:
        ValueError: a barrier, whose messages carry nothing.
    """
    if rounds.operation == "barrier":
        raise ValueError("the messages of a barrier carry no blocks")
    yield from find_algorithm(rounds.algorithm).blocks(rounds)
