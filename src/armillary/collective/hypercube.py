"""Algorithms that exchange at distances 1, 2, 4 …: halving-doubling, recursive doubling, Rabenseifner.

They need a power of two. Of any other n, the largest power of two p below it does the work: each of
the n - p odd members 1, 3, 5 … first folds its data into the member before it, and gets its result at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from armillary.collective.rounds import Blocks, CollectiveAlgorithm, IntArray, Messages, Moves, Round, Rounds


def core(n: int) -> list[int]:
    """Return the members that do the work: a power of two of them, in order."""
    # Members beyond the largest power of two; each of them pairs with the one before it.
    extra = n - (1 << (n.bit_length() - 1))
    # The first 2 * extra members form pairs, of which the even one works.
    return [2 * g if g < extra else g + extra for g in range(n - extra)]


def folded(n: int) -> IntArray:
    """Return the members that stand aside; each belongs to the member before it."""
    return np.arange(1, 2 * (n - (1 << (n.bit_length() - 1))), 2)


def owned(n: int) -> list[tuple[int, ...]]:
    """Return for each of `core` the members whose blocks it works for: its own and the folded one's."""
    aside = set(folded(n).tolist())
    # A folded member's blocks are reduced by its partner.
    return [(m, m + 1) if m + 1 in aside else (m,) for m in core(n)]


def distances(n: int) -> list[int]:
    """Return 1, 2, 4 … below the size of `core`."""
    return [1 << k for k in range(n.bit_length() - 1)]


def halving_doubling(operation: str, n: int) -> tuple[Round, ...]:
    """Halve what is exchanged while reducing (large messages to near members), then double it back."""
    if operation == "all-reduce":
        # Folded members first add their vectors to their partners', and get the result at the end.
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
    # Each of a pair sends the half that the other adds up, so that both add.
    pairs = Moves.of([*aside, *(aside - 1)], [*(aside - 1), *aside], 1, 2, True)
    return (
        *_fold(n, pairs),
        # Then the folded one hands its reduced half over.
        *_fold(n, Moves.of(aside, aside - 1, 1, 2)),
        *_halve(n, [1] * p, p),
        *_double(n, [1] * p, p),
        *_fold(n, Moves.of(aside - 1, aside)),
    )


def _fold(n: int, moves: Moves) -> tuple[Round, ...]:
    return (Round(n, moves),) if len(moves) else ()


def _exchange(n: int, step: int, numerator: int | IntArray, denominator: int, reduce: bool) -> Round:
    # Partners are numbered within the core: member numbers may have gaps.
    members = np.array(core(n))
    return Round(
        n, Moves.of(members, members[np.arange(len(members)) ^ step], numerator, denominator, reduce)
    )


def _halve(n: int, weights: Sequence[int], whole: int) -> list[Round]:
    """Return the rounds of a reduce-scatter: send the partner what its side of bit k keeps."""
    # Near partners first: the large messages travel the short distances.
    return [_exchange(n, step, _side(weights, step, step), whole, True) for step in distances(n)]


def _double(n: int, weights: Sequence[int], whole: int) -> list[Round]:
    """Return the rounds of an all-gather, farthest partner first: send all that is complete."""
    return [_exchange(n, step, _side(weights, step, 0), whole, False) for step in reversed(distances(n))]


def _side(weights: Sequence[int], step: int, differ: int) -> IntArray:
    """Return for each member g the weight of all b with ``(b ^ g) % (2 * step) == differ``."""
    # Sum weights over the members that agree in the lowest bits; what remains is one row of 2 * step.
    sums: IntArray = np.array(weights, dtype=np.int64).reshape(-1, 2 * step).sum(axis=0)
    own = np.arange(len(weights)) % (2 * step)
    return np.take(sums, own ^ differ)


class HalvingDoubling(CollectiveAlgorithm):
    """Recursive halving reduces, recursive doubling gathers."""

    operations = ("all-reduce", "all-gather", "reduce-scatter")

    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        """See `CollectiveAlgorithm`."""
        return halving_doubling(operation, n)

    def parts(self, rounds: Rounds) -> int:
        """See `CollectiveAlgorithm`."""
        if rounds.operation == "all-reduce":
            return len(core(rounds.n))
        return rounds.n if rounds.operation == "reduce-scatter" else 1

    def blocks(self, rounds: Rounds) -> Iterator[Messages]:
        """See `CollectiveAlgorithm`."""
        return _halved_and_doubled(rounds, self.parts(rounds), shared=False)


class Rabenseifner(CollectiveAlgorithm):
    """The same for an all-reduce, but that of any n both of a folded pair add up one half (Rabenseifner, 2004)."""

    operations = ("all-reduce",)

    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        """See `CollectiveAlgorithm`."""
        return rabenseifner(n)

    def parts(self, rounds: Rounds) -> int:
        """See `CollectiveAlgorithm`."""
        return max(len(core(rounds.n)), 2)

    def blocks(self, rounds: Rounds) -> Iterator[Messages]:
        """See `CollectiveAlgorithm`."""
        return _halved_and_doubled(rounds, self.parts(rounds), shared=True)


class RecursiveDoubling(CollectiveAlgorithm):
    """Exchange all that is known, at distances 1, 2, 4 …; a barrier, and an all-gather of any n, by dissemination."""

    operations = ("all-reduce", "all-gather", "barrier")

    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        """See `CollectiveAlgorithm`."""
        if operation == "barrier" or (operation == "all-gather" and n & (n - 1)):
            from armillary.collective.symmetric import dissemination

            return dissemination(operation, n)
        return recursive_doubling(operation, n)

    def parts(self, rounds: Rounds) -> int:
        """See `CollectiveAlgorithm`."""
        return 1

    def blocks(self, rounds: Rounds) -> Iterator[Messages]:
        """See `CollectiveAlgorithm`."""
        n = rounds.n
        if rounds.operation == "all-reduce":
            for part in rounds.expanded():
                yield [(0,)] * len(part.moves)
        elif n & (n - 1):
            # Bruck: after k rounds a member knows 2^k consecutive blocks; the last round passes on only those
            # still missing.
            for k in range((n - 1).bit_length()):
                yield [tuple((i + j) % n for j in range(min(1 << k, n - (1 << k)))) for i in range(n)]
        else:
            for step in distances(n):
                yield [tuple(range(i // step * step, i // step * step + step)) for i in range(n)]


def _halved_and_doubled(rounds: Rounds, parts: int, shared: bool) -> Iterator[Messages]:
    """Yield the blocks; with `shared` both of a pair add up one half of the fold."""
    n, operation = rounds.n, rounds.operation
    aside, owners = folded(n).tolist(), owned(n)
    everything = tuple(range(parts))
    if operation == "all-reduce":
        # In an all-reduce core member g owns part g, folded or not.
        owners = [(g,) for g in range(len(owners))]
    if aside and shared:
        half = len(everything) // 2
        yield [everything[:half]] * len(aside) + [everything[half:]] * len(aside)
        yield [everything[half:]] * len(aside)
    elif aside:
        yield [(m,) for m in aside] if operation == "all-gather" else [everything] * len(aside)
    if operation != "all-gather":
        for step in distances(n):
            yield _sides(owners, step, step)
    if operation != "reduce-scatter":
        for step in reversed(distances(n)):
            yield _sides(owners, step, 0)
    if aside and operation == "all-gather":
        yield [tuple(b for b in range(n) if b != m) for m in aside]
    elif aside:
        yield [(m,) for m in aside] if operation == "reduce-scatter" else [everything] * len(aside)


def _sides(owned: list[Blocks], step: int, differ: int) -> Messages:
    """Return for each g the blocks owned by all b with ``(b ^ g) % (2 * step) == differ``."""
    each = range(len(owned))
    return [tuple(x for b in each if (b ^ g) % (2 * step) == differ for x in owned[b]) for g in each]
