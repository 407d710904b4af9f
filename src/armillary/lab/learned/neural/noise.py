"""Random choices.

A draw takes the largest logit plus Gumbel noise (Gumbel, 1954; Maddison, Tarlow and Minka, 2014, section 2). The noise
belongs to the candidate, not to the place, so that ranks with the same choice decide alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from armillary.lab.learned.expressions import library
from armillary.lab.learned.neural.lexicon import Group, Lexicon
from armillary.lab.learned.neural.network import Floats


class Noise:
    """The noise that is added to logits before the largest is taken."""

    def __init__(self, seed: int, temperature: float, lexicon: Lexicon) -> None:
        self.seed, self.temperature = seed, temperature
        # Drawn once for every candidate there is: whoever chooses among the same candidates adds the same
        # noise.
        rng = np.random.default_rng(seed)
        self._token = rng.gumbel(size=lexicon.size) if temperature else np.zeros(lexicon.size)
        self._count = rng.gumbel(size=len(library())) if temperature else np.zeros(len(library()))
        self._choice = rng.gumbel(size=lexicon.candidates) if temperature else np.zeros(lexicon.candidates)

    def token(self, logits: Floats, allowed: Sequence[int]) -> tuple[int, float]:
        """Return the drawn token of those allowed, and the logarithm of its probability."""
        own = np.array(allowed)
        at = int(np.argmax(logits[own] + self.temperature * self._token[own]))
        return int(own[at]), float(logits[own[at]] - _log_sum(logits[own]))

    def count(self, logits: Floats, values: NDArray[np.int64]) -> tuple[int, float]:
        """Return the drawn count, given the values of all expressions, and the logarithm of its probability.

        Without noise the expressions vote.
        """
        share = np.exp(logits.astype(np.float64) - _log_sum(logits))
        # Several expressions may give the same count: its probability is the sum of theirs.
        known, which = np.unique(np.maximum(values, 0), return_inverse=True)
        votes = np.bincount(which, share)
        if self.temperature:
            at = int(which[np.argmax(logits + self.temperature * self._count)])
        else:
            at = int(np.argmax(votes))
        return int(known[at]), float(np.log(max(votes[at], 1e-30)))

    def choice(self, logits: Floats, group: Group) -> int:
        """Return the index of the drawn candidate of a group."""
        own = slice(group.first, group.first + len(group))
        return int(np.argmax(logits + self.temperature * self._choice[own]))


def _log_sum(logits: Floats) -> float:
    most = float(logits.max())
    return most + float(np.log(np.exp(logits - most).sum()))
