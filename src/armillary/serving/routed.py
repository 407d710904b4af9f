"""Which experts the tokens of a step choose, and what of that the busiest device gets.

A token chooses some experts, each at most once, more popular ones more often, and independently of other tokens. Where
whole experts are divided over devices, all wait for the one that gets most tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from armillary.base import portable
from armillary.compute.model import Floats

LARGEST = (0.0, 0.564, 1.029, 1.424, 1.766, 2.070, 2.343, 2.594, 2.826)
"""Mean of the largest of 1, 2, 4 ... 256 normal deviates."""
SKEW = 0.48
"""Experts are chosen with odds u / (1 - u) to this power, of u from 0 to 1: touches as many as the power laws 1.01 and
1.2 of the tables of kernels, from 48 to 512 tokens (0.32 to 0.56, by number of experts)."""
SURE = 1 - 2.0**-40
"""The largest chance: a logarithm is taken of what is left."""


@dataclass(frozen=True)
class Routed:
    """Experts of a model on one device.

    Attributes:
        count: Experts of a layer.
        top_k: Of them for a token.
        hidden: Width of a token.
        size: Width of an expert.
        ep: Devices over which whole experts are divided; 1: each has a part of all.
        tp: Devices of the replica.
        stored: Kind of `armillary.serving.kernels.EXPERTS`.
        ranks: Of them that have requests of their own, whose tokens all meet here; 1: all have the same.
    """

    count: int
    top_k: int
    hidden: int
    size: int
    ep: int
    tp: int
    stored: str
    ranks: int = 1

    @property
    def width(self) -> float:
        """Columns of an expert on a device."""
        return self.size * self.ep / self.tp

    @cached_property
    def chances(self) -> Floats:
        """(devices, experts of each) With which a token chooses each expert."""
        share = (np.arange(self.count) + 0.5) / self.count
        liked = portable.power(share / (1 - share), SKEW)
        # Dealt out to the devices, so that all have the same kinds.
        dealt = liked.reshape(-1, self.ep).T.copy()
        return np.minimum(dealt * (self.top_k / math.fsum(liked)), SURE)

    @cached_property
    def unequal(self) -> float:
        """Variance of the share of a device, over its square, as it is chance which experts it has."""
        if self.ep == 1:
            return 0.0
        mean = self.top_k / self.count
        return math.fsum((self.chances.ravel() / mean - 1) ** 2) / self.count * self.ep / self.count

    def busiest(self, tokens: int) -> tuple[float, float]:
        """Return how many experts of the busiest device are chosen, and how often in total, by so many tokens."""
        rows, own = 0.0, self.chances[0]
        for chances in self.chances:
            mean = math.fsum(chances)
            part = mean / self.top_k
            # Tokens choose without replacement, so devices vary less than if they did not.
            varies = mean * (1 - part) * (self.count - self.top_k) / max(1, self.count - 1)
            varies = tokens * max(0.0, varies) + self.unequal * (tokens * mean) ** 2
            found = tokens * mean + largest(self.ep) * math.sqrt(varies)
            if found > rows:
                rows, own = found, chances
        rows = min(rows, tokens * float(min(self.top_k, len(own))))
        scaled = np.minimum(own * (rows / (tokens * math.fsum(own))), SURE)
        return math.fsum(1 - portable.power(1 - scaled, float(tokens))), rows


def largest(count: int) -> float:
    """Return the mean of the largest of so many normal deviates."""
    at = portable.log2(float(count))
    low = min(int(at), len(LARGEST) - 2)
    return LARGEST[low] + (LARGEST[low + 1] - LARGEST[low]) * (at - low)
