"""A collective as synchronous rounds: who sends how much to whom, exactly, and what is reduced.

All messages of a round read the state before the round, and a round starts when the one before has
ended. Sizes are exact fractions of D, which means what it means in Chakra:

=================  ==========================================================
all-reduce         bytes of the vector
reduce-scatter     bytes of every member's input
all-gather         bytes that every member contributes
all-to-all         bytes that every member sends in all, itself included
broadcast, reduce  bytes of the vector
gather, scatter    bytes of all members together, at the root
barrier            0 (its messages carry nothing)
=================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Moves:
    """Messages as columns of equal length: `source` sends ``D * numerator / denominator`` to `target`.

    int64, but `reduce` (the receiver adds what it gets to its own) is bool. Shared: do not write to them.
    """

    source: IntArray
    target: IntArray
    numerator: IntArray
    denominator: IntArray
    reduce: BoolArray

    @classmethod
    def of(
        cls,
        source: npt.ArrayLike,
        target: npt.ArrayLike,
        numerator: npt.ArrayLike = 1,
        denominator: npt.ArrayLike = 1,
        reduce: npt.ArrayLike = False,
    ) -> Moves:
        """Build the columns; what is the same for all messages may be given as one number."""
        given = np.broadcast_arrays(np.atleast_1d(source), target, numerator, denominator)
        ends, peers, over, under = (np.asarray(column, dtype=np.int64) for column in given)
        return cls(ends, peers, over, under, np.broadcast_to(np.asarray(reduce, dtype=np.bool_), ends.shape))

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True, eq=False)
class Round:
    """Messages that are sent at the same time, `repeat` rounds of them one after the other.

    A round that looks the same from every member (`rotates`) stores only `base`, the messages of
    member 0: member i sends the same to ``(i + target) % n``.
    """

    n: int
    base: Moves
    rotates: bool = False
    repeat: int = 1

    @cached_property
    def moves(self) -> Moves:
        """All messages, of all members; n times as many as `base` has where the round rotates."""
        return next(self.batches(None)) if self.rotates else self.base

    def batches(self, limit: int | None = 1 << 20) -> Iterator[Moves]:
        """Yield all messages in parts of about `limit`, in the order of `moves`."""
        if not self.rotates:
            yield self.base
            return
        base, width = self.base, max(len(self.base), 1)
        # Built in portions: an all-to-all of many members has n^2 messages per round.
        members = self.n if limit is None else max(1, limit // width)
        for first in range(0, self.n, members):
            turn = np.arange(first, min(first + members, self.n))[:, None]
            source, target = ((column + turn) % self.n for column in (base.source, base.target))
            times = len(source)
            over, under = np.tile(base.numerator, times), np.tile(base.denominator, times)
            yield Moves(source.ravel(), target.ravel(), over, under, np.tile(base.reduce, times))

    @property
    def source(self) -> IntArray:
        """Sender of every message of every member."""
        return self.moves.source

    @property
    def target(self) -> IntArray:
        """Receiver of every message."""
        return self.moves.target

    @property
    def numerator(self) -> IntArray:
        """Numerator of every message's part of D."""
        return self.moves.numerator

    @property
    def denominator(self) -> IntArray:
        """Denominator of every message's part of D."""
        return self.moves.denominator

    @property
    def reduce(self) -> BoolArray:
        """Whether the receiver adds the message to what it has."""
        return self.moves.reduce


@dataclass(frozen=True)
class SwitchTree:
    """A tree of switches over the members, through which `share` of D goes.

    `parent[i]` is the parent of member i, and behind the members of switch i: -1 for the root, `ABSENT` for a switch
    of another tree.
    """

    parent: tuple[int, ...]
    share: Fraction = Fraction(1)


ABSENT = -2


@dataclass(frozen=True, eq=False)
class Rounds:
    """`operation` among `n` members by `algorithm`; `root` counts where the operation has one.

    `chunks` is the number of parts that a pipelined algorithm (trees, chains, in-switch) cuts D into.
    Where switches take part they are numbered behind the members, and `trees` says how they are joined.
    Two of them are equal only if they are the same object; `rounds_for` returns the same for the same arguments.
    """

    algorithm: str
    operation: str
    n: int
    root: int
    rounds: tuple[Round, ...]
    chunks: int = 1
    trees: tuple[SwitchTree, ...] = ()
    around: bool = False
    """Whether members need to be in some order around a ring only."""

    @property
    def switches(self) -> int:
        """Number of switches that take part."""
        return len(self.trees[0].parent) - self.n if self.trees else 0

    @property
    def count(self) -> int:
        """Number of rounds, repeats included."""
        return sum(part.repeat for part in self.rounds)

    def expanded(self) -> Iterator[Round]:
        """Yield every round, a repeated one as often as it is repeated."""
        for part in self.rounds:
            for _ in range(part.repeat):
                yield part
