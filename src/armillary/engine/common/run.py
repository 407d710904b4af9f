"""What is left of a program that has run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
FIRST_WORDS = 1 << 10
"""Integers of working memory at first, beside what the first events take."""
BUDGET = 2_000_000
"""Events between two returns to Python, which is when an interrupt is seen."""


@dataclass
class Run:
    """A finished run: the final state and where its tables are."""

    state: Any
    place: dict[str, slice]

    def table(self, name: str) -> Ints:
        """Return one table of the final state."""
        return np.asarray(self.state[self.place[name]], np.int64)

    def scalar(self, place: int) -> int:
        """Return one scalar of the final state."""
        return int(self.state[place])
