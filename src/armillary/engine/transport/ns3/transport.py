"""ns-3 as a transport.

Packets move in ns-3's own stack (point-to-point devices, IPv4, UDP or TCP), which makes this the reference for `packet`
and `tcp`. Ignored: urgency (`key`), links that go down during the run, losses of UDP (reported, not repaired) and
lossless flow control. It costs one or more C++ events per packet and link plus a Python call per message, one
simulation per process at a time, and seconds to compile the C++ part in each process.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from armillary.base.errors import InputError, nearest
from armillary.engine.transport.ns3.simulation import PROTOCOLS, new_run
from armillary.engine.transport.transport import Ints, Transport
from armillary.engine.transport.use import link_use
from armillary.platform.topology.graph import UNBOUNDED, Topology

Protocol = Literal["udp", "udp-fair", "reno", "cubic", "dctcp"]


class Ns3(Transport):
    """Messages as packets of ns-3, over point-to-point links with drop-tail queues; interpreted only.

    Headers are real: 30 bytes of UDP, IPv4 and PPP in each packet, 54 of TCP with its timestamps. UDP leaves an
    NPU at the rate of the first link of the route, one packet of each message in turn, and what is dropped is
    lost; with "udp-fair" an NPU's own packets and those it passes on take turns at its links, instead of waiting
    in one queue. TCP has a connection per route from the start; answers take it back. Queues drop at their
    tail, but hosts hold back what their own device has no room for.

    Args:
        protocol: "udp", "udp-fair", or TCP's congestion control: "reno" (NewReno), "cubic", "dctcp".
        segment: Bytes of payload of a packet.
        window: TCP's first congestion window, in segments.
        min_rto: TCP's least retransmission timeout (ns).
        sack: Whether TCP's receivers tell what they hold beyond gaps (RFC 2018).
        mark: Bytes in a queue from which on it marks ECN-capable packets; 0: never.
        buffer: Bytes that fit the queue of a link to which the topology sets no limit.

    Raises:
        InputError: There is no such protocol.
    """

    name = "ns3"
    kernel = "armillary.engine.transport.ns3.ns3_kernel"
    in_python = True
    burst = 2

    def __init__(
        self,
        protocol: Protocol = "udp",
        *,
        segment: int = 1448,
        window: int = 10,
        min_rto: int = 1_000_000_000,
        sack: bool = True,
        mark: int = 0,
        buffer: int = UNBOUNDED,
    ) -> None:
        if protocol not in PROTOCOLS:
            raise InputError(
                f"network 'ns3': protocol: got '{protocol}', expected {', '.join(PROTOCOLS)}"
                f"{nearest(protocol, list(PROTOCOLS))}"
            )
        if not 1 <= segment <= 65_000:
            raise InputError(f"network 'ns3': segment: got {segment}, expected 1 to 65000 bytes")
        # ns-3 takes the timeout in ps here.
        self._options = [list(PROTOCOLS).index(protocol), buffer, segment, window, min_rto * 1000, sack, mark]

    def options(self, topology: Topology) -> list[int]:
        """See `Transport.options`."""
        return self._options

    def abandoned(self, net: Ints, topology: Topology) -> list[str]:
        """See `Transport.abandoned`."""
        repeats = not list(PROTOCOLS)[self._options[0]].startswith("udp")
        if repeats or not link_use(net, topology).drops.any():
            return []
        return [
            "network model ns3 sends protocol lossless as UDP, which does not send again what is dropped: larger "
            "buffers, protocol tcp, or network model packet, whose links pause instead, may avoid this"
        ]

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`."""
        return [np.array([new_run(), 0])]
