"""Requests of a load: when they come, how long they are, and what they share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError

Ints = NDArray[np.int64]

MOST_REQUESTS = 2_000_000
"""Requests of a load: a service of 20 requests a second has so many in a day."""
MOST_LENGTH = 10**7
"""Tokens of a prompt or an answer: a context window of today has up to 10 million."""
MOST_NS = 10**17
"""ns from the first arrival to the last, three years: sums of times stay below 2**63."""


@dataclass(frozen=True)
class Follows:
    """Which requests of a load come when others are done: those of a session, and calls of tools that wait for several.

    Attributes:
        begin: (requests + 1) Where in `former` those begin that a request follows; none: it comes at its own time.
        former: Numbers of requests, each less than that of the request that follows it.
        delay: (requests) ns from the last token of all that it follows until it comes.
        reused: (requests) Tokens of prompt and answer of the first that it follows with which its prompt begins.
    """

    begin: Ints
    former: Ints
    delay: Ints
    reused: Ints

    def __post_init__(self) -> None:
        """Check that each follows earlier ones."""
        late = self.former >= np.repeat(np.arange(len(self.delay)), self.counts)
        if late.any() or (self.former < 0).any():
            worst = int(self.former[late | (self.former < 0)][0])
            raise InputError(f"follows: former: got {worst}, expected the number of an earlier request")

    def of(self, r: int) -> Ints:
        """Return the numbers of the requests that one follows."""
        return self.former[self.begin[r] : self.begin[r + 1]]

    @property
    def arrays(self) -> tuple[Ints, ...]:
        """All that it is."""
        return self.begin, self.former, self.delay, self.reused

    @cached_property
    def counts(self) -> Ints:
        """(requests) How many each follows."""
        return np.diff(self.begin)

    @cached_property
    def later(self) -> tuple[Ints, Ints]:
        """(requests + 1) Where those that follow a request begin in the second array, and their numbers."""
        after = np.repeat(np.arange(len(self.delay)), self.counts)
        order = np.argsort(self.former, kind="stable")
        begin = np.zeros(len(self.begin), np.int64)
        np.cumsum(np.bincount(self.former, minlength=len(self.delay)), out=begin[1:])
        return begin, after[order]

    @cached_property
    def sessions(self) -> Ints:
        """(requests) A number for all that are linked, from 0 in the order of the first of each."""
        root = list(range(len(self.delay)))

        def top(r: int) -> int:
            while root[r] != r:
                root[r] = root[root[r]]
                r = root[r]
            return r

        after = np.repeat(np.arange(len(self.delay)), self.counts)
        for r, one in zip(after.tolist(), self.former.tolist(), strict=True):
            low, high = sorted((top(r), top(one)))
            root[high] = low
        return np.unique([top(r) for r in range(len(root))], return_inverse=True)[1].astype(np.int64)

    def part(self, mine: Ints) -> Follows:
        """Return those of some requests, ascending, with all that these follow."""
        place = np.full(len(self.delay), -1, np.int64)
        place[mine] = np.arange(len(mine))
        former = [self.of(r) for r in mine.tolist()]
        begin = np.concatenate(([0], np.cumsum([len(each) for each in former]))).astype(np.int64)
        own = place[np.concatenate(former).astype(np.int64)] if len(mine) else self.former[:0]
        assert (own >= 0).all(), "a request without one that it follows"
        return Follows(begin, own, self.delay[mine], self.reused[mine])


@dataclass(frozen=True)
class Requests:
    """A load.

    Attributes:
        arrival: (requests) ns from the begin, ascending; -1 where a client of a closed loop sends it, or it follows
            others.
        prompt: (requests) Tokens.
        output: (requests) Tokens.
        clients: Clients of a closed loop, each of which sends its next request when it has its answer; 0: an open loop.
        shared: (requests) Lists of blocks of `shared_block` tokens, named by numbers: equal first numbers are equal
            first tokens. None: nothing is shared.
        shared_block: Tokens of such a block.
        about: What it is, for people.
        notes: What was left out or assumed when it was read, a sentence each.
        follows: Which come when others are done; None: none does.
    """

    arrival: Ints
    prompt: Ints
    output: Ints
    clients: int = 0
    shared: tuple[tuple[int, ...], ...] | None = None
    shared_block: int = 0
    about: str = ""
    notes: tuple[str, ...] = ()
    follows: Follows | None = None

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def alike(self) -> bool:
        """Whether some may begin with tokens of others."""
        return self.shared is not None or self.follows is not None

    @property
    def at_once(self) -> bool:
        """Whether all that come at a time of their own come at the begin, as the first of the only session does."""
        return bool((self.arrival <= 0).all())

    def part(self, mine: Ints) -> Requests:
        """Return some of them, ascending, with all that these follow."""
        shared = None if self.shared is None else tuple(self.shared[each] for each in mine)
        return replace(
            self, arrival=self.arrival[mine], prompt=self.prompt[mine], output=self.output[mine], shared=shared,
            follows=self.follows and self.follows.part(mine),
        )  # fmt: skip
