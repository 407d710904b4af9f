"""How much the links of a network were used."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.engine.transport import layout as lk
from armillary.platform.topology.graph import Topology

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LinkUse:
    """What every link of a topology did in a run.

    Attributes:
        size: (links) bytes carried.
        busy: (links) ps in which it carried them.
        depth: (links) most bytes that waited for it.
        drops: (links) packets dropped.
        marks: (links) packets marked for congestion.
        paused: (links) ps in which it was paused though something waited.
        bin: ps of one bin.
        series: (links, bins) bytes carried in each.
        depths: (links, bins) most bytes that waited in each, as seen when more came; where nothing came, what
            must be left: what waited before less what was carried since.
    """

    size: Ints
    busy: Ints
    depth: Ints
    drops: Ints
    marks: Ints
    paused: Ints
    bin: int
    series: Ints
    depths: Ints

    def utilisation(self, topology: Topology) -> NDArray[np.float64]:
        """Return (links, bins) the share of its bandwidth that a link carried in each bin; 0 where it has none."""
        most = topology.bandwidth[:, None] * (self.bin / lk.PS)
        return np.divide(self.series, most, out=np.zeros(self.series.shape), where=most > 0)


def link_use(net: Ints, topology: Topology) -> LinkUse:
    """Return the use of links from the state after a run; bins end with the last that was used."""

    def part(place: int, columns: int) -> Ints:
        first = int(net[place])
        return net[first : first + topology.links * columns].reshape(topology.links, columns).copy()

    use = part(lk.N_USE, lk.U_COLUMNS)
    series, depths = (
        part(place, lk.BINS).reshape(lk.BINS, topology.links).T
        for place in (lk.N_BINS_BYTES, lk.N_BINS_DEPTH)
    )
    used = np.flatnonzero(series.any(axis=0) | depths.any(axis=0))
    last = int(used[-1]) + 1 if len(used) else 0
    return LinkUse(
        use[:, lk.U_BYTES], use[:, lk.U_BUSY], use[:, lk.U_DEPTH], use[:, lk.U_DROPS], use[:, lk.U_MARKS],
        use[:, lk.U_PAUSED], int(net[lk.N_BIN]), series[:, :last], left(series[:, :last], depths[:, :last]),
    )  # fmt: skip


def left(series: Ints, depths: Ints) -> Ints:
    """Return `depths` with what is left of earlier ones, at least, when the bytes of `series` have been carried."""
    found = depths.copy()
    for i in range(1, found.shape[1]):
        np.maximum(found[:, i], found[:, i - 1] - series[:, i - 1], out=found[:, i])
    return found
