"""The one definition of a collective algorithm: its messages in rounds, and the blocks of the data that these carry.

D is cut into equal blocks. Vectors (all-reduce, reduce-scatter, broadcast, reduce) and the whole of a gather or
scatter number them 0 … parts-1; member i of n owns the i-th n-th of them. In an all-gather, block
``owner * parts + k`` is the k-th of its owner's contribution; in an all-to-all, ``origin * parts + k`` the k-th of
what its origin sends, the i-th n-th of which goes to member i. A barrier carries nothing.

Rounds are what time needs: sizes, and who waits for whom. Blocks prove that an algorithm does what it promises
(`armillary.testing.collective`), and are shown to people; a run never builds them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from armillary.collective.rounds import Moves, Round, Rounds, SwitchTree

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
