"""Network model `packet` where queues are unbounded, nothing is marked and routes are fixed: what most studies run.

What a port in the network sends is then known when it comes: first in, first out. So a packet takes one event per link,
none on the last of its route unless it completes its message, and none while it waits. `packet_kernel` is the
reference: tests compare ticks, order and use of links.
"""

from __future__ import annotations

import numpy as np

from armillary.engine.transport import layout as lk
from armillary.engine.transport.network import Routes, link_rows
from armillary.engine.transport.packet import unbounded_layout as ul
from armillary.engine.transport.switch import layout as pk
from armillary.engine.transport.transport import Ints, Transport
from armillary.platform.topology.graph import Topology


class UnboundedPacket(Transport):
    """Such packets."""

    name = "packet"
    kernel = "armillary.engine.transport.packet.unbounded_kernel"
    burst, message = 8, 3

    def __init__(self, mtu: int, header: int, routes: Routes) -> None:
        """Note which links begin a route, and which one follows at each place."""
        self.mtu, self.header = mtu, header
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
        return self.mtu

    def options(self, topology: Topology) -> list[int]:
        """See `Transport.options`."""
        bits = topology.links.bit_length()
        return [self.mtu, self.header, bits, 1 << bits]

    def tables(self, topology: Topology) -> list[Ints]:
        """See `Transport.tables`."""
        rows = link_rows(topology)
        pace = np.zeros((topology.links, ul.PACE.width), np.int64)
        slow, fast = rows[:, lk.L_SLOW], rows[:, lk.L_FAST]
        pace[:, 0] = ((self.mtu + self.header) * slow + fast - 1) // fast
        pace[:, 1] = rows[:, lk.L_LATENCY]
        pace[self.begins, 2] = 1
        return [pace, self.after]

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`."""
        ports = np.zeros((topology.links, pk.PO_COLUMNS), np.int64)
        ports[:, ul.PORT.find("due").offset] = ports[:, ul.PORT.find("start").offset] = lk.FOREVER
        return [ports, np.full(2 << topology.links.bit_length(), ul.NOTHING)]
