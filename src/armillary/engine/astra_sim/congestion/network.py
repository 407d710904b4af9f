"""Lower the links of a machine and the sizes of the messages on them to the tables of `link_kernel`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from armillary.engine.astra_sim import layout as lk
from armillary.engine.common.network import whole_ticks
from armillary.platform.links import LinkBlock, link_blocks
from armillary.platform.network import Dimension

Ints = NDArray[np.int64]
KINDS = {"loop": lk.LOOP, "line": lk.LINE, "all-pairs": lk.ALL_PAIRS, "star": lk.STAR}
FEWEST_BUCKETS, MOST_BUCKETS = 1 << 10, 1 << 20


@dataclass
class Links:
    """The links of a machine, and a number for every message size that occurs."""

    dimensions: tuple[Dimension, ...]
    number: dict[int, int] = field(default_factory=dict)
    blocks: list[LinkBlock] = field(init=False)

    def __post_init__(self) -> None:
        self.blocks = link_blocks(self.dimensions)

    def sizes(self, size: Ints) -> Ints:
        """Return the numbers of message sizes in bytes, element by element."""
        values, inverse = np.unique(size, return_inverse=True)
        return np.array([self.size(value) for value in values.tolist()], np.int64)[inverse].reshape(
            size.shape
        )

    def size(self, size: int) -> int:
        """Return the number of a message size in bytes."""
        return self.number.setdefault(size, len(self.number))

    def costs(self) -> Ints:
        """Return (ticks on the link, ticks to its other end) per size and dimension, (sizes, dimensions, 2)."""
        size = np.array(list(self.number), np.float64)[:, None]
        # A dimension of one NPU has no links; its bandwidth may be 0.
        wired = [d.size > 1 for d in self.dimensions]
        bandwidth = np.where(wired, [d.bandwidth for d in self.dimensions], 1.0)
        occupied = size / bandwidth
        both = np.stack([occupied, np.array([d.latency for d in self.dimensions]) + occupied], axis=-1)
        # Latency and transfer are added before they are truncated.
        return whole_ticks(both * np.array(wired)[:, None], "a message")

    @property
    def count(self) -> int:
        """Number of links."""
        return self.blocks[-1].first + self.blocks[-1].count

    def tables(self) -> dict[str, Ints]:
        """Return the tables of the program."""
        rows = [(KINDS[b.kind], b.dimension.size, b.stride, b.first) for b in self.blocks]
        return {"LINK_DIMS": np.array(rows, np.int64).ravel(), "LINK_COSTS": self.costs().ravel()}


def buckets(npus: int, links: int) -> int:
    """Return the number of buckets for the lists of ticks and ranks, a power of two."""
    return min(max(FEWEST_BUCKETS, 1 << (2 * npus + 2 * links).bit_length()), MOST_BUCKETS)
