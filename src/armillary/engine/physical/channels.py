"""Channels of messages between two ranks, and the items that use them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, fsum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common import network
from armillary.engine.common.items import Channel, View, channel_at
from armillary.engine.common.lowered import Tables
from armillary.engine.common.network import Scale, between
from armillary.engine.physical import layout as lk
from armillary.engine.physical.plans import Lines, Use
from armillary.engine.physical.workload import PhysicalWorkload
from armillary.platform.memory import fill_ns
from armillary.platform.model import Platform
from armillary.platform.network import links_per_npu
from armillary.trace import NodeType

Ints = NDArray[np.int64]


class Moved(NamedTuple):
    """What moving a message takes."""

    latency: int
    """Ticks."""
    volume: int
    """In units of the program."""
    uses: tuple[tuple[int, int], ...]
    """Dimensions whose ports it uses, and how many links it takes there."""


class Carried(NamedTuple):
    """What channels carry."""

    sent: list[tuple[tuple[int, ...], int]]
    """Hops and bytes of the messages of each channel between ranks, by number."""
    times: dict[tuple[tuple[int, ...], int], Moved]
    """What moving these takes."""


def moved(platform: Platform, scale: Scale, hops: Sequence[int], size: int) -> Moved:
    """Return what a message of `size` bytes takes that crosses so many links of each dimension."""
    crossed = [
        (d, dimension, hop)
        for d, (dimension, hop) in enumerate(zip(platform.dimensions, hops, strict=True))
        if hop
    ]
    latency = fsum(hop * dimension.latency for _, dimension, hop in crossed)
    latency += platform.npu.message_delay
    uses = tuple((d, links_per_npu(dimension.topology, dimension.size)) for d, dimension, _ in crossed)
    # Every dimension that a message crosses is paid for, in latency and in bandwidth.
    volume: int | Fraction = size
    if platform.collectives.fit:
        from armillary.engine.common.fits import fitted_message

        if fitted := fitted_message(platform, hops, size):
            latency, volume, uses = fitted.latency, fitted.volume, ((fitted.dim, 1),)
    # A message that leaves its node is between nodes all the way.
    if share := platform.terms.communication_share(between(platform, [d for d, _, _ in crossed])):
        latency, volume = latency * (1 + share), volume * (1 + Fraction(share))
    return Moved(ceil(latency), scale.volume(volume), uses)


class Channels:
    """Channels while they grow; chunk flows are counted from the first channel on."""

    def __init__(self, workload: PhysicalWorkload, classes: Ints, tables: Tables, lines: Lines) -> None:
        self.workload, self.platform, self.classes = workload, workload.platform, classes
        self.tables, self.lines, self.scale = tables, lines, lines.scale
        self._known: dict[Channel, tuple[int, int, int]] = {}
        self.times: dict[tuple[tuple[int, ...], int], Moved] = {}
        """By hops and bytes."""

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
        hops = network.path_between(self.platform.dimensions, source, target)
        # Channels between ranks of the same classes over equally long paths behave alike, so they are one.
        key = (tag, a, b, size, tuple(sends), tuple(receives), hops)
        if (hops, size) not in self.times:
            self.times[hops, size] = moved(self.platform, self.scale, hops, size)
        latency, volume, uses = self.times[hops, size]
        if key not in self.tables.channel_at:
            used = []
            for d, links in uses:
                used += [(self.lines.port(a, d, False), links, 1), (self.lines.port(b, d, True), links, 1)]
            self.add(key, (a, b), max(len(sends), len(receives)), used)
        return self.tables.channel_at[key], latency, volume

    def carried(self) -> Carried:
        """Return what channels between ranks carry."""
        return Carried(
            [(key[-1], key[3]) for key in self.tables.channel_at if key[0] != "memory"], self.times
        )

    def fill_stores(self, view: View, items: Ints, rank: int) -> None:
        """Fill in the operations of a storage whose bytes move through the network: here there are none."""

    def add(self, key: tuple[Any, ...], ends: tuple[int, int], messages: int, used: list[Use]) -> int:
        """Add a channel between two classes with as many messages, that uses these ports; returns its number."""
        tables = self.tables
        number = tables.channel_at[key] = len(tables.channel_at)
        tables.channels += [tables.pairs, *ends, number, self.lines.add(used)]
        tables.pairs += messages
        return number


def fill_priorities(view: View, items: Ints, which: Ints, platform: Platform) -> None:
    """Fill in the places of items under scheduling "priority": the highest comm_priority is first."""
    if platform.scheduling != "priority":
        return
    nodes = view.nodes
    priority = nodes.graph.ints("comm_priority", 0)[nodes.order[nodes.items[which]]]
    # The highest comm_priority is served first, the lowest place is. Unlike -x, ~x has no overflow.
    items[which, lk.I_PRIORITY] = ~priority


def fill_messages(view: View, items: Ints, rank: int, channels: Channels) -> None:
    """Fill in the sends and receives of a rank."""
    which, kinds, examples = view.messages()
    if which.size:
        rows = np.array([channels.of(channel_at(view, item, rank)) for item in examples.tolist()], np.int64)
        items[which, lk.I_CHANNEL : lk.I_VOLUME + 1] = rows[kinds]
        fill_priorities(view, items, which, channels.platform)


def fill_transfers(view: View, items: Ints, cls: int, channels: Channels) -> None:
    """Fill in the accesses of a hierarchical memory: loads are one channel, stores another."""
    nodes, platform, lines = view.nodes, channels.platform, channels.lines
    which = np.flatnonzero(nodes.kind[nodes.items] == lk.TRANSFER)
    if not which.size:
        return
    types = nodes.graph.types[nodes.order[nodes.items[which]]]
    for store in (False, True):
        mine = which[(types == NodeType.MEM_STORE_NODE) == store]
        if not mine.size:
            continue
        used = [(port, 1, weight) for port, weight in lines.memory.used(cls, store)]
        number = channels.add(("memory", cls, store), (cls, cls), len(mine), used)
        for item in mine.tolist():
            size = int(view.size[item])
            fill = ceil(fill_ns(platform.remote_memory, size, store, platform.npus))
            items[item, lk.I_CHANNEL : lk.I_VOLUME + 1] = number, fill, channels.scale.volume(size)
    fill_priorities(view, items, which, platform)
