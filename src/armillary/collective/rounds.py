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

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, NamedTuple

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


Blocks = tuple[int, ...]
Messages = list[Blocks]
"""The blocks of every message of one round, in the order of its columns."""


class CollectiveAlgorithm(ABC):
    """An algorithm for any number of members and one or more operations.

    Attributes:
        operations: Those it has, as `armillary.platform.collectives` calls them.
        topologies: Topologies of dimensions on which it runs; none: on all.
        any_root: Whether `root` matters for operations that have none, as the top of a tree.
        around: Whether it needs members in some order around a ring only; a line then has them in `load.line_order`.
        most_members: Up to which ``auto`` tries it; None: any number.
    """

    operations: ClassVar[tuple[str, ...]]
    topologies: ClassVar[tuple[str, ...]] = ()
    any_root: ClassVar[bool] = False
    around: ClassVar[bool] = False
    most_members: ClassVar[int | None] = None

    def refuses(self, operation: str, n: int) -> str:
        """Return what is wrong with a number of members, "expected a power of two"; "" for nothing."""
        return ""

    def usual_chunks(self, n: int) -> int | None:
        """Return the number of consecutive parts that it cuts D into by default; None: it does not cut."""
        return None

    def ahead(self, n: int) -> int | None:
        """Return the rounds that the first part is ahead of the last member; None: no size chooses the parts."""
        return None

    def trees(self, n: int) -> tuple[SwitchTree, ...]:
        """Return the trees of switches that take part; none: members do all."""
        return ()

    @abstractmethod
    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        """Return the messages.

        Args:
            operation: One of `operations`.
            n: Number of members, 2 or more.
            root: Root of the operation if it has one, or the top of a tree; else 0.
            chunks: Parts into which D is cut; 1 where `usual_chunks` is None.
        """

    @abstractmethod
    def parts(self, rounds: Rounds) -> int:
        """Return the number of blocks that D is cut into."""

    @abstractmethod
    def blocks(self, rounds: Rounds) -> Iterator[Messages]:
        """Yield the blocks of every message, round by round, repeated rounds one by one; not of a barrier."""


class Message(NamedTuple):
    """What one member sends another in a round; with `reduce` the receiver adds it to what it has."""

    source: int
    target: int
    blocks: Blocks
    reduce: bool = False


class ListedAlgorithm(CollectiveAlgorithm):
    """An algorithm that lists the blocks of every message; the sizes follow from these."""

    @abstractmethod
    def cut(self, operation: str, n: int) -> int:
        """Return the number of blocks that D is cut into."""

    @abstractmethod
    def steps(self, operation: str, n: int, root: int) -> Iterable[Sequence[Message]]:
        """Yield the messages of one round after the other; of a barrier, without blocks."""

    def rounds(self, operation: str, n: int, root: int, chunks: int) -> tuple[Round, ...]:
        """See `CollectiveAlgorithm`."""
        whole, found = self.cut(operation, n), []
        # Sizes are block counts over the number of blocks of D, so fractions stay exact.
        for step in self.steps(operation, n, root):
            source, target, size, reduce = zip(
                *((m.source, m.target, len(m.blocks), m.reduce) for m in step), strict=True
            )
            found.append(Round(n, Moves.of(source, target, size, whole, reduce)))
        return tuple(found)

    def parts(self, rounds: Rounds) -> int:
        """See `CollectiveAlgorithm`."""
        return self.cut(rounds.operation, rounds.n)

    def blocks(self, rounds: Rounds) -> Iterator[Messages]:
        """See `CollectiveAlgorithm`."""
        for step in self.steps(rounds.operation, rounds.n, rounds.root):
            yield [message.blocks for message in step]


def own(rounds: Rounds, parts: int, member: int) -> Blocks:
    """Return the blocks that a member owns, of `parts` that all own together."""
    each = parts // rounds.n
    return tuple(range(member * each, member * each + each))


def plain_sizes(size: int, chunks: int) -> list[int]:
    """Return the bytes of chunks that are as equal as can be, the bigger ones first; none is empty but an only one.

    Raises:
        InputError: there are more than a run goes through.
    """
    # Bytes that do not divide go to the first chunks, one each.
    count = max(1, min(chunks, size))
    # Late: hardly any run has so many.
    if count > 1 << 16:
        from armillary.base.counts import MOST_CHUNKS, check_count

        check_count(count, MOST_CHUNKS, "collectives: chunks", "fewer chunks")
    return [size // count + (i < size % count) for i in range(count)]
