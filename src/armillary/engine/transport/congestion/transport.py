"""Network model `congestion`: what of its state the kernel finds, and which links hold up messages."""

from __future__ import annotations

import numpy as np

from armillary.engine.transport import layout as lk
from armillary.engine.transport.congestion.layout import M_AT
from armillary.engine.transport.deadlock import down_links
from armillary.engine.transport.transport import Ints, Transport
from armillary.platform.topology.graph import Topology


class Congestion(Transport):
    """FIFO links with unlimited buffers, one message at a time on each, cut through."""

    name = "congestion"
    kernel = "armillary.engine.transport.congestion.fifo_kernel"
    burst = message = 1

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`."""
        return [np.zeros(topology.links, np.int64)]

    def blocked(self, net: Ints, pool: Ints, table: Ints, topology: Topology) -> list[int]:
        """See `Transport.blocked`."""
        links = set()
        row = int(net[lk.N_STOPPED])
        while row:
            links.add(int(table[table[lk.T_ROUTE_LINK] + pool[row + M_AT]]))
            row = int(pool[row + lk.P_NEXT])
        return down_links(net, table, links)
