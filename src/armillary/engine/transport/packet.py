"""Network model `packet`: what its kernel is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from armillary.engine.transport import packet_layout_kernel as pk
from armillary.engine.transport.transport import Ints, Transport
from armillary.errors import InputError
from armillary.platform.topology.graph import Topology

LARGEST_PACKET = 1 << 20


@dataclass(frozen=True)
class Packet(Transport):
    """Packets that switches store and forward.

    Attributes:
        mtu: Most bytes of a message in a packet.
        header: Bytes of a packet besides: 62 are RoCEv2 with its Ethernet, IPv4, UDP and BTH headers and checksums.
    """

    name: ClassVar[str] = "packet"
    kernel: ClassVar[str] = "armillary.engine.transport.packet_kernel"
    mtu: int = 4096
    header: int = 62

    def __post_init__(self) -> None:
        if not 1 <= self.mtu <= LARGEST_PACKET:
            raise InputError(f"packet: mtu is {self.mtu}, expected 1 to {LARGEST_PACKET} bytes, e.g. 4096")
        if not 0 <= self.header <= LARGEST_PACKET:
            raise InputError(
                f"packet: header is {self.header}, expected 0 to {LARGEST_PACKET} bytes, e.g. 62"
            )

    def options(self, topology: Topology) -> list[int]:
        """See `Transport.options`."""
        return [self.mtu, self.header]

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`."""
        return [np.zeros((topology.links, pk.PO_COLUMNS), np.int64)]


def reverse_links(topology: Topology) -> Ints:
    """Return (links) the link from the head of each to its tail, of several that in the same place; -1: none."""
    tail, head = topology.tail, topology.head
    there, back = np.lexsort((head, tail)), np.lexsort((tail, head))
    return _match(
        tail[there] * topology.nodes + head[there], head[back] * topology.nodes + tail[back], there, back
    )


def _match(there: Ints, back: Ints, links: Ints, sources: Ints) -> Ints:
    """Return for every link of `sources` that in `links` with the same pair of nodes and place among its like."""
    place = np.arange(len(back)) - np.searchsorted(back, back)
    at = np.searchsorted(there, back) + place
    inside = np.minimum(at, len(there) - 1)
    found = np.full(len(back), -1, np.int64)
    found[sources] = np.where((at < len(there)) & (there[inside] == back), links[inside], -1)
    return found
