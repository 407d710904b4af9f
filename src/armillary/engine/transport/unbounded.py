"""Network model `packet` where queues are unbounded, nothing is marked and routes are fixed: what most studies run.

What a port in the network sends is then known when it comes: first in, first out. So a packet takes one event per link,
none on the last of its route unless it completes its message, and none while it waits. `packet_kernel` is the
reference: tests compare ticks, order and use of links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from armillary.engine.transport import layout as lk
from armillary.engine.transport import packet_layout as pk
from armillary.engine.transport import unbounded_layout as ul
from armillary.engine.transport.network import Routes, Stage, link_rows
from armillary.engine.transport.transport import Ints, Transport
from armillary.platform.topology.graph import UNBOUNDED, Topology

if TYPE_CHECKING:
    from armillary.engine.transport.packet import Packet


class UnboundedPacket(Transport):
    """Such packets."""

    name = "packet"
    kernel = "armillary.engine.transport.unbounded_kernel"
    burst, message = 8, 3

    def __init__(self, packet: Packet, routes: Routes) -> None:
        """Note which links begin a route."""
        self.packet = packet
        first, link = np.concatenate(routes.first), np.concatenate([*routes.link, np.zeros(0, np.int64)])
        some = np.diff(first) > 0
        self.begins = np.unique(link[first[:-1][some]])
        # A place behind the last of a route is never looked at, nor is what stands there.
        is_last = np.zeros(len(link) + 1, np.int64)
        is_last[first[1:][some] - 1] = 1
        self.after = np.append(link[1:], 0)[: len(link)] * 2 + is_last[1:]

    @property
    def grain(self) -> int:
        """See `Transport.grain`."""
        return self.packet.grain

    def options(self, topology: Topology) -> list[int]:
        """See `Transport.options`."""
        bits = topology.links.bit_length()
        return [self.packet.mtu, self.packet.header, bits, 1 << bits]

    def tables(self, topology: Topology) -> list[Ints]:
        """See `Transport.tables`."""
        # For its errors: a latency that is too long is one here, too.
        self.packet.tables(topology)
        rows = link_rows(topology)
        pace = np.zeros((topology.links, ul.PACE.width), np.int64)
        slow, fast = rows[:, lk.L_SLOW], rows[:, lk.L_FAST]
        pace[:, 0] = (self.packet.packet * slow + fast - 1) // fast
        pace[:, 1] = rows[:, lk.L_LATENCY]
        pace[self.begins, 2] = 1
        return [pace, self.after]

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`."""
        ports = np.zeros((topology.links, pk.PO_COLUMNS), np.int64)
        ports[:, ul.PORT.find("due").offset] = ports[:, ul.PORT.find("start").offset] = lk.FOREVER
        return [ports, np.full(2 << topology.links.bit_length(), ul.NOTHING)]


def is_unbounded(packet: Packet, stages: Sequence[Stage]) -> bool:
    """Tell whether packets with fixed routes, on a network over time, are such."""
    topology = stages[0].topology
    return (
        len(stages) == 1
        # Without a header a message of no bytes takes no time, and order within a ps needs all events.
        and packet.header > 0
        and packet.kmin is packet.buffer is packet.xoff is None
        and bool((topology.buffer >= UNBOUNDED).all() and (topology.bandwidth > 0).all())
    )
