"""Requests of a load: when they come, how long they are, and what they share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

MOST_REQUESTS = 2_000_000
"""Requests of a load: a service of 20 requests a second has so many in a day."""
MOST_LENGTH = 10**7
"""Tokens of a prompt or an answer: a context window of today has up to 10 million."""
MOST_NS = 10**17
"""ns from the first arrival to the last, three years: sums of times stay below 2**63."""


@dataclass(frozen=True)
class Requests:
    """A load.

    Attributes:
        arrival: (requests) ns from the begin, ascending; -1 where a client of a closed loop sends it.
        prompt: (requests) Tokens.
        output: (requests) Tokens.
        clients: Clients of a closed loop, each of which sends its next request when it has its answer; 0: an open loop.
        shared: (requests) Lists of blocks of `shared_block` tokens, named by numbers: equal first numbers are equal
            first tokens. None: nothing is shared.
        shared_block: Tokens of such a block.
        about: What it is, for people.
        notes: What was left out or assumed when it was read, a sentence each.
    """

    arrival: Ints
    prompt: Ints
    output: Ints
    clients: int = 0
    shared: tuple[tuple[int, ...], ...] | None = None
    shared_block: int = 0
    about: str = ""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.arrival)
