"""The channels of a program: messages between two classes, and transfers of a class to and from a memory."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common import network
from armillary.engine.common.items import Channel
from armillary.engine.common.tables import Tables
from armillary.engine.physical.fitted import fitted_message
from armillary.engine.physical.lines import Lines, Use
from armillary.engine.physical.scale import Scale
from armillary.engine.physical.workload import PhysicalWorkload
from armillary.platform.network import links_per_npu

Ints = NDArray[np.int64]


class Channels:
    """Channels while they grow; lanes are counted from the first channel on."""

    def __init__(
        self, workload: PhysicalWorkload, classes: Ints, tables: Tables, lines: Lines, scale: Scale
    ) -> None:
        self.workload, self.platform, self.classes = workload, workload.platform, classes
        self.tables, self.lines, self.scale = tables, lines, scale
        self._known: dict[Channel, tuple[int, int, int]] = {}
        self._paths: dict[tuple[int, int], tuple[int, ...]] = {}

    def of(self, channel: Channel) -> tuple[int, int, int]:
        """Return (quotient channel, latency in ticks, volume in units) of a channel."""
        if channel not in self._known:
            self._known[channel] = self.lower(channel)
        return self._known[channel]

    def lower(self, channel: Channel) -> tuple[int, int, int]:
        """Return the same for a channel that is not known yet: one like it may be."""
        tag, source, target, size = channel
        sends, receives = self.workload.channel(channel)
        a, b = int(self.classes[source]), int(self.classes[target])
        hops = self._path(source, target)
        crossed = [
            (d, dimension, hop)
            for d, (dimension, hop) in enumerate(zip(self.platform.dimensions, hops, strict=True))
            if hop
        ]
        key = (tag, a, b, size, tuple(sends), tuple(receives), hops)
        latency = sum(hop * dimension.latency for _, dimension, hop in crossed)
        latency += self.platform.physical.endpoint_delay
        uses = [(d, links_per_npu(dimension.topology, dimension.size)) for d, dimension, _ in crossed]
        volume: int | Fraction = size
        if fitted := fitted_message(self.platform, hops, size):
            latency, volume, uses = fitted.latency, fitted.volume, [(fitted.dim, 1)]
        if share := self.platform.physical.terms.communication:
            latency, volume = latency * (1 + share), volume * (1 + Fraction(share))
        if key not in self.tables.channel_at:
            used = []
            for d, links in uses:
                used += [(self.lines.port(a, d, False), links, 1), (self.lines.port(b, d, True), links, 1)]
            self.add(key, (a, b), max(len(sends), len(receives)), used)
        return self.tables.channel_at[key], ceil(latency), self.scale.volume(volume)

    def add(self, key: tuple[Any, ...], ends: tuple[int, int], messages: int, used: list[Use]) -> int:
        """Add a channel between two classes with as many messages, that uses these ports; returns its number."""
        tables = self.tables
        number = tables.channel_at[key] = len(tables.channel_at)
        tables.channels += [tables.pairs, *ends, number, self.lines.add(used)]
        tables.pairs += messages
        return number

    def _path(self, source: int, target: int) -> tuple[int, ...]:
        if (source, target) not in self._paths:
            hops = network.path(self.platform.dimensions, np.array(source), np.array(target))
            self._paths[(source, target)] = tuple(int(hop) for hop in hops)
        return self._paths[(source, target)]
