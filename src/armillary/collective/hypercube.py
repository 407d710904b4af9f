"""Algorithms that exchange at distances 1, 2, 4 …: halving-doubling, recursive doubling, Rabenseifner.

They need a power of two. Of any other n, the largest power of two p below it does the work: each of
the n - p odd members 1, 3, 5 … first folds its data into the member before it, and gets its result at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.collective.rounds import IntArray, Moves, Round


def core(n: int) -> list[int]:
    """Return the members that do the work: a power of two of them, in order."""
    extra = n - (1 << (n.bit_length() - 1))
    return [2 * g if g < extra else g + extra for g in range(n - extra)]


def folded(n: int) -> IntArray:
    """Return the members that stand aside; each belongs to the member before it."""
    return np.arange(1, 2 * (n - (1 << (n.bit_length() - 1))), 2)


def owned(n: int) -> list[tuple[int, ...]]:
    """Return for each of `core` the members whose blocks it works for: its own and the folded one's."""
    aside = set(folded(n).tolist())
    return [(m, m + 1) if m + 1 in aside else (m,) for m in core(n)]


def distances(n: int) -> list[int]:
    """Return 1, 2, 4 … below the size of `core`."""
    return [1 << k for k in range(n.bit_length() - 1)]


def halving_doubling(operation: str, n: int) -> tuple[Round, ...]:
    """Halve what is exchanged while reducing (large messages to near members), then double it back."""
    if operation == "all-reduce":
        aside, p = folded(n), len(core(n))
        return (
            *_fold(n, Moves.of(aside, aside - 1, 1, 1, True)),
            *_halve(n, [1] * p, p),
            *_double(n, [1] * p, p),
            *_fold(n, Moves.of(aside - 1, aside)),
        )
    weights = [len(members) for members in owned(n)]
    aside = folded(n)
    if operation == "reduce-scatter":
        before, after = Moves.of(aside, aside - 1, 1, 1, True), Moves.of(aside - 1, aside, 1, n)
        return (*_fold(n, before), *_halve(n, weights, n), *_fold(n, after))
    before, after = Moves.of(aside, aside - 1), Moves.of(aside - 1, aside, n - 1)
    return (*_fold(n, before), *_double(n, weights, 1), *_fold(n, after))


def recursive_doubling(operation: str, n: int) -> tuple[Round, ...]:
    """Exchange all that is known: the whole vector (all-reduce), or the blocks so far (all-gather, n a power of 2)."""
    if operation == "all-gather":
        return tuple(_exchange(n, step, step, 1, False) for step in distances(n))
    aside = folded(n)
    return (
        *_fold(n, Moves.of(aside, aside - 1, 1, 1, True)),
        *(_exchange(n, step, 1, 1, True) for step in distances(n)),
        *_fold(n, Moves.of(aside - 1, aside)),
    )


def rabenseifner(n: int) -> tuple[Round, ...]:
    """All-reduce by halving and doubling; the fold shares the additions: each of the pair reduces one half."""
    aside, p = folded(n), len(core(n))
    pairs = Moves.of([*aside, *(aside - 1)], [*(aside - 1), *aside], 1, 2, True)
    return (
        *_fold(n, pairs),
        *_fold(n, Moves.of(aside, aside - 1, 1, 2)),
        *_halve(n, [1] * p, p),
        *_double(n, [1] * p, p),
        *_fold(n, Moves.of(aside - 1, aside)),
    )


def _fold(n: int, moves: Moves) -> tuple[Round, ...]:
    return (Round(n, moves),) if len(moves) else ()


def _exchange(n: int, step: int, numerator: int | IntArray, denominator: int, reduce: bool) -> Round:
    members = np.array(core(n))
    return Round(
        n, Moves.of(members, members[np.arange(len(members)) ^ step], numerator, denominator, reduce)
    )


def _halve(n: int, weights: Sequence[int], whole: int) -> list[Round]:
    """Return the rounds of a reduce-scatter: send the partner what its side of bit k keeps."""
    return [_exchange(n, step, _side(weights, step, step), whole, True) for step in distances(n)]


def _double(n: int, weights: Sequence[int], whole: int) -> list[Round]:
    """Return the rounds of an all-gather, farthest partner first: send all that is complete."""
    return [_exchange(n, step, _side(weights, step, 0), whole, False) for step in reversed(distances(n))]


def _side(weights: Sequence[int], step: int, differ: int) -> IntArray:
    """Return for each member g the weight of all b with ``(b ^ g) % (2 * step) == differ``."""
    sums: IntArray = np.array(weights, dtype=np.int64).reshape(-1, 2 * step).sum(axis=0)
    own = np.arange(len(weights)) % (2 * step)
    return np.take(sums, own ^ differ)
