"""Trees: a star, the binomial tree, and two binary trees at once, pipelined."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import numpy as np

from armillary.collective.rounds import CollectiveAlgorithm, IntArray, Messages, Moves, Round, Rounds


def star(operation: str, n: int, root: int) -> tuple[Round, ...]:
    """Do a rooted operation in one round: the root talks to everyone."""
    others = (root + np.arange(1, n)) % n
    part = n if operation in ("gather", "scatter") else 1
    if operation in ("broadcast", "scatter"):
        return (Round(n, Moves.of(root, others, 1, part)),)
    return (Round(n, Moves.of(others, root, 1, part, operation == "reduce")),)


def binomial(operation: str, n: int, root: int) -> tuple[Round, ...]:
    """Go down a binomial tree (farthest first), or up, or up and down again."""
    if operation in ("all-reduce", "barrier"):
        size = int(operation == "all-reduce")
        return (*_up(n, root, size, bool(size)), *_down(n, root, size))
    if operation == "broadcast":
        return _down(n, root, 1)
    if operation == "reduce":
        return _up(n, root, 1, True)
    return _down(n, root, None) if operation == "scatter" else _up(n, root, None, False)


def branches(n: int) -> list[tuple[IntArray, IntArray, IntArray]]:
    """Return per round on the way down: parents, children and sizes of the children's subtrees, root = 0."""
    found = []
    # Farthest first: the subtree of a child at distance 2^k has up to 2^k members.
    for k in reversed(range((n - 1).bit_length())):
        parent = np.arange(0, n - (1 << k), 2 << k)
        child = parent + (1 << k)
        found.append((parent, child, np.minimum(1 << k, n - child)))
    return found


def _down(n: int, root: int, size: int | None) -> tuple[Round, ...]:
    """Send `size` vectors down every branch; None: the n-th parts of the branch's members."""
    return tuple(
        Round(
            n,
            Moves.of(
                (parent + root) % n,
                (child + root) % n,
                below if size is None else size,
                n if size is None else 1,
            ),
        )
        for parent, child, below in branches(n)
    )


def _up(n: int, root: int, size: int | None, reduce: bool) -> tuple[Round, ...]:
    rounds = []
    # The way up is the way down with every message reversed.
    for part in reversed(_down(n, root, size)):
        m = part.base
        rounds.append(Round(n, Moves.of(m.target, m.source, m.numerator, m.denominator, reduce)))
    return tuple(rounds)


@lru_cache(maxsize=64)
def parents(n: int) -> tuple[IntArray, IntArray]:
    """Return each member's parent in the two trees (0, the root of both, is its own).

    The first is the search tree over 1 … n-1, whose lowest set bit is a member's height; its top hangs from 0. The
    second is its mirror image, or where that keeps the leaves, the first moved on by one: what is a leaf in
    one tree is mostly an inner member of the other.
    """
    number = np.arange(1, n)
    height = number & -number
    parent = (number - height) | (height << 1)
    # The top's parent would lie beyond n: it hangs from 0.
    first = np.concatenate(([0], np.where(parent < n, parent, number - height)))
    # Relabelling moves leaves of the first tree to inner places of the second; see the docstring.
    label = np.concatenate(([0], n - number if n % 2 else number % (n - 1) + 1))
    second = np.zeros(n, dtype=np.int64)
    second[label] = label[first]
    return first, second


@lru_cache(maxsize=64)
def levels(n: int) -> tuple[IntArray, IntArray]:
    """Return the (members) depth of each member below the root, for each of the two trees."""
    found = []
    for above in parents(n):
        level, at = np.zeros(n, dtype=np.int64), np.arange(n)
        # Climb all members at once until everybody is at 0.
        while at.any():
            level += at > 0
            at = above[at]
        found.append(level)
    return found[0], found[1]


def depth(n: int) -> int:
    """Return the number of levels below the root (both trees have as many)."""
    return int(levels(n)[0].max())


def waves(operation: str, n: int, chunks: int) -> list[tuple[int, int]]:
    """Return the runs of equal rounds as (first, last + 1); see `wave`."""
    high = depth(n)
    starts = (0, high) if operation == "all-reduce" else (0,)
    # Rounds at which a level of a tree starts or stops: between them all are alike.
    edges = {start + k + end for start in starts for k in range(high) for end in (0, chunks)}
    return list(pairwise(sorted(edges)))


def double(operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
    """Reduce up two trees and broadcast down them, half of the vector each, in `chunks` parts, all levels at once."""
    return tuple(
        Round(n, wave(operation, n, root, chunks, first)[0], repeat=after - first)
        for first, after in waves(operation, n, chunks)
    )


def wave(operation: str, n: int, root: int, chunks: int, t: int) -> tuple[Moves, IntArray]:
    """Return the messages of round `t`, and which of the ``2 * chunks`` parts of the vector each carries.

    Level l sends chunk ``t - (depth - l)`` up and gets chunk ``t - (l - 1)`` from above, in an all-reduce
    `depth` rounds later: then the root has the sum.
    """
    high = depth(n)
    columns: list[tuple[IntArray, IntArray, IntArray, bool]] = []
    for tree, (above, level) in enumerate(zip(parents(n), levels(n), strict=True)):
        child, parent, far = np.arange(1, n), above[1:], level[1:]
        if operation != "broadcast":
            # Deep members send first: a chunk is complete at a level when all below it have been added.
            chunk = t - (high - far)
            on = (chunk >= 0) & (chunk < chunks)
            columns.append((child[on], parent[on], 2 * chunk[on] + tree, True))
        if operation != "reduce":
            chunk = t - (high if operation == "all-reduce" else 0) - (far - 1)
            on = (chunk >= 0) & (chunk < chunks)
            columns.append((parent[on], child[on], 2 * chunk[on] + tree, False))
    source, target, part = (np.concatenate([c[k] for c in columns]) for k in range(3))
    reduce = np.concatenate([np.full(len(c[0]), c[3]) for c in columns])
    return Moves.of((source + root) % n, (target + root) % n, 1, 2 * chunks, reduce), part


class BinomialTree(CollectiveAlgorithm):
    """Down a binomial tree, or up, or up and down again."""

    operations = ("broadcast", "reduce", "gather", "scatter", "all-reduce", "barrier")
    any_root = True

    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        """See `CollectiveAlgorithm`."""
        return binomial(operation, n, root)

    def parts(self, rounds: Rounds) -> int:
        """See `CollectiveAlgorithm`."""
        return rounds.n if rounds.operation in ("gather", "scatter") else 1

    def blocks(self, rounds: Rounds) -> Iterator[Messages]:
        """See `CollectiveAlgorithm`."""
        n = rounds.n
        if rounds.operation not in ("gather", "scatter"):
            for part in rounds.expanded():
                yield [(0,)] * len(part.moves)
            return
        down = branches(n)
        for _, child, below in down if rounds.operation == "scatter" else reversed(down):
            spans = zip(child.tolist(), below.tolist(), strict=True)
            yield [tuple((v + k + rounds.root) % n for k in range(size)) for v, size in spans]


class DoubleBinaryTree(CollectiveAlgorithm):
    """Two binary trees, each for half of the vector, pipelined (Sanders, Speck & Träff, 2009).

    Four parts per level cost a quarter more than the bytes need.
    """

    operations = ("all-reduce", "broadcast", "reduce")
    any_root = True

    def usual_chunks(self, n: int) -> int:
        """See `CollectiveAlgorithm`."""
        return 4 * depth(n)

    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        """See `CollectiveAlgorithm`."""
        return double(operation, n, root, chunks)

    def parts(self, rounds: Rounds) -> int:
        """See `CollectiveAlgorithm`."""
        return 2 * rounds.chunks

    def blocks(self, rounds: Rounds) -> Iterator[Messages]:
        """See `CollectiveAlgorithm`."""
        for t in range(rounds.count):
            _, part = wave(rounds.operation, rounds.n, rounds.root, rounds.chunks, t)
            yield [(block,) for block in part.tolist()]
