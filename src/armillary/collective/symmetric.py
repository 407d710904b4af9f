"""Algorithms in which every member does the same: ring, direct, pairwise, dissemination."""

from __future__ import annotations

import numpy as np

from armillary.collective.rounds import Moves, Round


def _turning(n: int, moves: Moves, repeat: int = 1) -> Round:
    return Round(n, moves, rotates=True, repeat=repeat)


def ring(operation: str, n: int) -> tuple[Round, ...]:
    """Pass half of everything on to the next member, the other half to the one before."""
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
    """Every block goes the shorter way, neighbour by neighbour; the one that is as far both ways goes in halves."""
    whole, tie = (n - 1) // 2, 1 - n % 2
    like = Moves.of(0, [1, n - 1], 1, 2 * n)
    sizes = 2 * np.arange(whole, -1, -1)[:, None] + np.array([[tie, tie]])  # halves of blocks still under way
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
    return tuple(_turning(n, Moves.of(0, n - step, min(step, n - step))) for step in steps)
