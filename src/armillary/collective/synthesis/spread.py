"""An all-gather as sends on edges, and what it takes to find one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.collective.synthesis.edges import Edges, components
from armillary.platform.topology.graph import Ints

Small = NDArray[np.int32]
STEP = 1.5
"""Edges whose costs differ by less than this are of one speed."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Every chunk goes from its owner to all NPUs; (sends) columns in the order of `start`.

    Chunk ``owner * per_npu + k`` is the k-th of its owner. Reversed in time, on reversed edges, it is a reduce-scatter.
    """

    edges: Edges
    per_npu: int
    edge: Small
    chunk: Small
    start: Ints
    """ps at which a message begins to leave."""
    end: int
    """ps at which the last is there."""

    @property
    def chunks(self) -> int:
        """Number of chunks of all NPUs."""
        return self.edges.n * self.per_npu


@dataclass(frozen=True)
class Options:
    """How chunks are chosen.

    Attributes:
        seed: Random seed.
        draws: Random draws per choice; the best is taken.
        loose: Whether slow edges may bring what faster ones could.
    """

    seed: int = 0
    draws: int = 1
    loose: bool = False


def levels_of(cost: Ints) -> Ints:
    """Return (edges) which speed each has, 0 the fastest."""
    values, inverse = np.unique(cost, return_inverse=True)
    # A new level begins where a cost exceeds the next lower one by a factor above STEP.
    steps = np.concatenate([[0], np.cumsum(values[1:] > STEP * values[:-1])])
    return np.asarray(steps[inverse.ravel()], np.int64)


def regions_of(edges: Edges, level: Ints) -> tuple[Ints, Ints]:
    """Return (levels, n) the region of each NPU, by numbers over all levels, and (edges) that of each target.

    The region of level k is what edges of lower levels join; of level 0, the NPU itself. An edge within a region has
    its target's number.
    """
    n = edges.n
    rows = [np.arange(n)]
    for k in range(1, int(level.max(initial=0)) + 1):
        # What faster edges join, whatever their direction, is one region.
        faster = level < k
        part = components(n, edges.source[faster], edges.target[faster])
        _, dense = np.unique(part, return_inverse=True)
        rows.append(rows[-1].max() + 1 + dense.ravel())
    table = np.stack(rows).astype(np.int64)
    region = table[level, edges.target]
    # An edge within a region serves its target only.
    return table, np.where(region == table[level, edges.source], edges.target, region)
