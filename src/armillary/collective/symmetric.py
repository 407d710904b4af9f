"""Algorithms in which every member does the same: ring, direct, pairwise, dissemination."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from armillary.collective import trees
from armillary.collective.rounds import CollectiveAlgorithm, Messages, Moves, Round, Rounds


def _turning(n: int, moves: Moves, repeat: int = 1) -> Round:
    return Round(n, moves, rotates=True, repeat=repeat)


def ring(operation: str, n: int) -> tuple[Round, ...]:
    """Pass half of everything on to the next member, the other half to the one before."""
    # Two messages per member: to the next and to the one before.
    ways = np.array([1, n - 1])
    if operation == "barrier":
        return (_turning(n, Moves.of(0, ways, 0), n // 2),)
    if operation == "all-to-all":
        return _ring_all_to_all(n)
    if operation == "all-gather":
        return (_turning(n, Moves.of(0, ways, 1, 2), n - 1),)
    scatter = _turning(n, Moves.of(0, ways, 1, 2 * n, True), n - 1)
    gather = _turning(n, Moves.of(0, ways, 1, 2 * n), n - 1)
    return (scatter, gather) if operation == "all-reduce" else (scatter,)


def _ring_all_to_all(n: int) -> tuple[Round, ...]:
    """Send every block the shorter way, neighbour by neighbour, and the opposite one in halves, both ways."""
    # A block at distance d takes d hops: after k rounds all of distance k and less have arrived.
    whole, tie = (n - 1) // 2, 1 - n % 2
    like = Moves.of(0, [1, n - 1], 1, 2 * n)
    sizes = 2 * np.arange(whole, -1, -1)[:, None] + np.array([[tie, tie]])  # halves of blocks still in flight
    return tuple(
        _turning(n, Moves(like.source, like.target, size, like.denominator, like.reduce))
        for size in sizes[: n // 2]
    )


def direct(operation: str, n: int) -> tuple[Round, ...]:
    """Send every other member its part at once."""
    others = np.arange(1, n)
    if operation in ("all-gather", "barrier"):
        return (_turning(n, Moves.of(0, others, int(operation == "all-gather"))),)
    if operation == "all-to-all":
        return (_turning(n, Moves.of(0, others, 1, n)),)
    scatter = _turning(n, Moves.of(0, others, 1, n, True))
    gather = _turning(n, Moves.of(0, others, 1, n))
    return (scatter, gather) if operation == "all-reduce" else (scatter,)


def pairwise(n: int) -> tuple[Round, ...]:
    """All-to-all with one partner per round: round k sends to the k-th next member."""
    return tuple(_turning(n, Moves.of(0, step, 1, n)) for step in range(1, n))


def dissemination(operation: str, n: int) -> tuple[Round, ...]:
    """Barrier, or Bruck's all-gather: at distance 2^k, pass on all that is known (at most what lacks)."""
    steps = [1 << k for k in range((n - 1).bit_length())]
    if operation == "barrier":
        return tuple(_turning(n, Moves.of(0, step, 0)) for step in steps)
    # Bruck receives from ahead: member i collects blocks i, i + 1, and so on.
    return tuple(_turning(n, Moves.of(0, n - step, min(step, n - step))) for step in steps)


class Ring(CollectiveAlgorithm):
    """Half of everything goes to the next member, half to the one before: a ring used both ways."""

    operations = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "barrier")
    around = True

    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        """See `CollectiveAlgorithm`."""
        return ring(operation, n)

    def parts(self, rounds: Rounds) -> int:
        """See `CollectiveAlgorithm`."""
        return 2 if rounds.operation == "all-gather" else 2 * rounds.n

    def blocks(self, rounds: Rounds) -> Iterator[Messages]:
        """Half 0 of everything goes to the next member, half 1 to the one before."""
        n, operation = rounds.n, rounds.operation
        if operation == "all-to-all":
            yield from _blocks_all_to_all(n)
            return
        for first in {"all-reduce": (1, 0), "reduce-scatter": (1,)}.get(operation, (0,)):
            for k in range(first, n - 1 + first):
                yield [((i - way * k) % n * 2 + half,) for i in range(n) for half, way in enumerate((1, -1))]


def _blocks_all_to_all(n: int) -> Iterator[Messages]:
    # At hop k a member passes on what came from k members behind and goes farther.
    for hop in range(n // 2):
        messages = []
        for i in range(n):
            for half, way in enumerate((1, -1)):
                origin = (i - way * hop) % n
                message: list[int] = []
                for distance in range(hop + 1, n // 2 + 1):
                    first = origin * 2 * n + (origin + way * distance) % n * 2
                    # The block opposite on an even ring travels in halves, one each way.
                    message += (first + half,) if 2 * distance == n else (first, first + 1)
                messages.append(tuple(message))
        yield messages


class Direct(CollectiveAlgorithm):
    """Every member sends to every other at once, or all to the root and the root to all."""

    operations = (
        "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "barrier",
        "broadcast", "reduce", "gather", "scatter",
    )  # fmt: skip

    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        """See `CollectiveAlgorithm`."""
        rooted = operation in ("broadcast", "reduce", "gather", "scatter")
        return trees.star(operation, n, root) if rooted else direct(operation, n)

    def parts(self, rounds: Rounds) -> int:
        """See `CollectiveAlgorithm`."""
        return 1 if rounds.operation in ("all-gather", "broadcast", "reduce") else rounds.n

    def blocks(self, rounds: Rounds) -> Iterator[Messages]:
        """See `CollectiveAlgorithm`."""
        n, operation, root = rounds.n, rounds.operation, rounds.root
        others = [(root + k) % n for k in range(1, n)]
        if operation in ("broadcast", "reduce"):
            yield [(0,) for _ in others]
        elif operation in ("gather", "scatter"):
            yield [(other,) for other in others]
        elif operation == "all-to-all":
            yield [(i * n + (i + k) % n,) for i in range(n) for k in range(1, n)]
        if operation in ("all-reduce", "reduce-scatter"):
            yield [((i + k) % n,) for i in range(n) for k in range(1, n)]
        if operation in ("all-reduce", "all-gather"):
            yield [(i,) for i in range(n) for k in range(1, n)]


class Pairwise(CollectiveAlgorithm):
    """An all-to-all with one partner at a time."""

    operations = ("all-to-all",)

    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        """See `CollectiveAlgorithm`."""
        return pairwise(n)

    def parts(self, rounds: Rounds) -> int:
        """See `CollectiveAlgorithm`."""
        return rounds.n

    def blocks(self, rounds: Rounds) -> Iterator[Messages]:
        """See `CollectiveAlgorithm`."""
        n = rounds.n
        for k in range(1, n):
            yield [(i * n + (i + k) % n,) for i in range(n)]
