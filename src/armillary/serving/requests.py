"""Requests of a load: when they come, how long they are, and what they share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Requests:
    """Requests in the order in which they come.

    Attributes:
        arrival: (requests) ns from the begin; -1 where a client of a closed loop sends it.
        prompt: (requests) Tokens.
        output: (requests) Tokens.
        clients: Clients of a closed loop, each of which sends its next request when it has its answer; 0: an open loop.
        shared: (requests) Lists of blocks of `shared_block` tokens, named by numbers: equal first numbers are equal
            first tokens. None: nothing is shared.
        shared_block: Tokens of such a block.
        about: What it is, for people.
    """

    arrival: Ints
    prompt: Ints
    output: Ints
    clients: int = 0
    shared: tuple[tuple[int, ...], ...] | None = None
    shared_block: int = 0
    about: str = ""

    def __len__(self) -> int:
        return len(self.arrival)
