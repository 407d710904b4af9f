"""How much the links of a network were used."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.engine.transport import layout as lk
from armillary.engine.transport.layout import PS
from armillary.platform.network import Dimension, InNetwork, Port
from armillary.platform.topology.graph import Tier, Topology

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
    # Bins are stored bin by bin, so that widening moves whole rows; here (links, bins).
    series, depths = (
        part(place, lk.BINS).reshape(lk.BINS, topology.links).T
        for place in (lk.N_BINS_BYTES, lk.N_BINS_DEPTH)
    )
    # Bins that nobody used are cut off at the end only.
    used = np.flatnonzero(series.any(axis=0) | depths.any(axis=0))
    last = int(used[-1]) + 1 if len(used) else 0
    return LinkUse(
        use[:, lk.U_BYTES], use[:, lk.U_BUSY], use[:, lk.U_DEPTH], use[:, lk.U_DROPS], use[:, lk.U_MARKS],
        use[:, lk.U_PAUSED], 1 << int(net[lk.N_BIN_BITS]), series[:, :last], left(series[:, :last], depths[:, :last]),
    )  # fmt: skip


def left(series: Ints, depths: Ints) -> Ints:
    """Return `depths` with what is left of earlier ones, at least, when the bytes of `series` have been carried."""
    # Depths are recorded when bytes come; in a bin without arrivals a queue can only have shrunk by what was
    # carried.
    found = depths.copy()
    for i in range(1, found.shape[1]):
        np.maximum(found[:, i], found[:, i - 1] - series[:, i - 1], out=found[:, i])
    return found


_COLUMNS = ("first_link", "head", "bandwidth", "latency", "buffer", "kind", "forwards", "block")
_USED = tuple(field.name for field in dataclasses.fields(LinkUse) if field.name != "bin")


@dataclass(frozen=True, eq=False)
class NetworkUse:
    """The use of every link until `end`, in ps.

    `topology` is the network without failures that come later: shares are of its bandwidths.
    """

    topology: Topology
    use: LinkUse
    end: int

    @functools.cached_property
    def mean(self) -> NDArray[np.float64]:
        """(links) share of the bandwidth used over the run; 0 where there is none."""
        most = self.topology.bandwidth * (self.end / PS)
        shares = np.zeros(len(most))
        np.divide(self.use.size, most, out=shares, where=most > 0)
        return shares

    @functools.cached_property
    def series(self) -> NDArray[np.float64]:
        """(links, bins) share of the bandwidth used in each bin; the last one ends with the run."""
        shares = self.use.utilisation(self.topology)
        if shares.shape[1]:
            # The last bin is shorter than the others: the share is of the time until the end of the run.
            last = self.end - (shares.shape[1] - 1) * self.use.bin
            if 0 < last < self.use.bin:
                shares[:, -1] *= self.use.bin / last
        return shares

    @functools.cached_property
    def peak(self) -> NDArray[np.float64]:
        """(links) the highest share in any bin."""
        highest: NDArray[np.float64] = self.series.max(axis=1, initial=0.0)
        return highest

    def head(self) -> dict[str, Any]:
        """Return what is no array, ready for JSON."""
        top = self.topology
        return {
            "end": self.end,
            "bin": self.use.bin,
            "name": top.name,
            "npus": top.npus,
            "kinds": list(top.kinds),
            "tiers": [[tier.name, tier.first, tier.count] for tier in top.tiers],
            "labels": list(top.labels),
            "dimensions": [dataclasses.asdict(dimension) for dimension in top.dimensions],
            "host": top.host,
            "shape": list(top.shape),
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name, integers in as few bytes as they need."""
        top = {f"topology.{name}": getattr(self.topology, name) for name in _COLUMNS}
        return {
            name: _narrow(values)
            for name, values in (top | {f"use.{name}": getattr(self.use, name) for name in _USED}).items()
        }

    @classmethod
    def read(cls, head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> NetworkUse:
        """Return what `head` and `arrays` gave.

        Raises:
            KeyError: Something is missing.
            ValueError: Something has the wrong type or shape.
        """
        try:
            columns = {name: _wide(arrays[f"topology.{name}"]) for name in _COLUMNS}
            topology = Topology(
                name=head["name"],
                npus=head["npus"],
                kinds=tuple(head["kinds"]),
                tiers=tuple(Tier(*tier) for tier in head["tiers"]),
                labels=tuple(head["labels"]),
                dimensions=tuple(map(_dimension, head["dimensions"])),
                host=head["host"],
                shape=tuple(head["shape"]),
                source="",
                # What is kept names links and their load; routes are not found on it any more.
                planes=1,
                **columns,
            )
            use = LinkUse(bin=head["bin"], **{name: _wide(arrays[f"use.{name}"]) for name in _USED})
        except TypeError as error:
            raise ValueError(f"network: {error}") from error
        if any(len(getattr(use, name)) != topology.links for name in _USED):
            raise ValueError(f"network: the use of links is not that of {topology.links} links")
        return cls(topology, use, head["end"])


def _dimension(row: Mapping[str, Any]) -> Dimension:
    parts = {"port": Port, "in_network": InNetwork}
    return Dimension(**{**row, **{key: made(**row[key]) for key, made in parts.items() if row.get(key)}})


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype != np.int64 or not values.size:
        return values
    # The narrowest integers for both ends: a mixed pair of signed and unsigned could only fit a float.
    fits = np.result_type(np.min_scalar_type(int(values.min())), np.min_scalar_type(int(values.max())))
    return values.astype(fits) if fits.kind in "iu" else values


def _wide(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.int64) if values.dtype.kind in "iu" else values
