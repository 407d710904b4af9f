"""Network model `packet`: options, buffers and thresholds for its kernel.

Packets move, stored and forwarded at every switch, with output queues, per-link pause (PFC), marking (ECN) and the rate
control DCQCN. Nothing is lost. Ignored: retransmission, ACK traffic, cut-through, limits inside a switch other than
buffers per incoming link, and the bandwidth of pauses and notifications (they take latencies only). A run costs
O(packets x hops) events: one per packet and link, a second if the packet waits, each O(log links and timers), since
only the first packet on each wire is in the heap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from armillary.base.errors import InputError
from armillary.engine.transport import layout as lk
from armillary.engine.transport.control.dcqcn import Dcqcn
from armillary.engine.transport.deadlock import blocked_cycle, down_links
from armillary.engine.transport.network import Routes, Stage
from armillary.engine.transport.packet.unbounded import UnboundedPacket
from armillary.engine.transport.switch import hop_layout as hl
from armillary.engine.transport.switch import layout as pk
from armillary.engine.transport.switch.hops import Ways, hop_options, hop_tables
from armillary.engine.transport.transport import Ints, Transport
from armillary.platform.topology.graph import UNBOUNDED, Topology
from armillary.trace.graph import LIMIT

LARGEST_PACKET = 1 << 20
LARGEST_QUEUE = 1 << 40


@dataclass(frozen=True)
class Packet(Transport):
    """Packets that switches store and forward, and never drop.

    Attributes:
        mtu: Most bytes of a message in a packet.
        header: Bytes of a packet besides: 62 are RoCEv2 with its Ethernet, IPv4, UDP and BTH headers and checksums.
        buffer: Bytes that fit at the end of every link; None: what the topology says. Without limit nothing pauses.
        xoff: Bytes there above which the link is paused (PFC); None: as many as leave room for what still comes.
        xon: Bytes down to which it stays paused; None: two packets less than xoff.
        kmin: Bytes that wait for a link above which packets may be marked (ECN); None: they never are.
        kmax: Bytes above which all are; None: kmin.
        pmax: Chance of it just below kmax.
        seed: Random seed of the choice of packets to be marked.
        dcqcn: Rate control of messages by marks; None: they are sent at the rate of their first link.
        ways: What chooses among the links that the routing allows.

    Raises:
        InputError: A value is out of range, or thresholds are in the wrong order.
    """

    name: ClassVar[str] = "packet"
    kernel: ClassVar[str] = "armillary.engine.transport.packet.packet_kernel"
    # A port that starts makes a packet, lets the next message begin, and makes five events; a message takes its row,
    # that of its rate, and that of its key at its port.
    burst = 8
    message = 3
    mtu: int = 4096
    header: int = 62
    buffer: int | None = None
    xoff: int | None = None
    xon: int | None = None
    kmin: int | None = None
    kmax: int | None = None
    pmax: float = 0.01
    seed: int = 0
    dcqcn: Dcqcn | None = None
    ways: Ways = field(default_factory=Ways)

    def __post_init__(self) -> None:
        _check("mtu", self.mtu, 1, LARGEST_PACKET)
        _check("header", self.header, 0, LARGEST_PACKET)
        _check("xoff", self.xoff, 0, LARGEST_QUEUE)
        _check("xon", self.xon, 0, LARGEST_QUEUE if self.xoff is None else self.xoff, "xoff")
        _check("kmin", self.kmin, 0, LARGEST_QUEUE)
        if self.kmin is None and (self.kmax is not None or self.dcqcn is not None):
            raise InputError(
                "packet: kmax and dcqcn need marked packets, expected kmin too, e.g. 5000 bytes (with kmax 200000)"
            )
        _check("kmax", self.kmax, self.kmin or 0, LARGEST_QUEUE, "from kmin")
        if not 0 <= self.pmax <= 1:
            raise InputError(f"packet: pmax is {self.pmax}, expected 0 to 1, e.g. 0.01")
        if self.buffer is not None and self.buffer < self.packet:
            raise InputError(
                f"packet: buffer is {self.buffer}, smaller than a packet: expected at least {self.packet} bytes "
                f"(mtu {self.mtu} and header {self.header})"
            )

    @property
    def packet(self) -> int:
        """Bytes of the largest packet."""
        return self.mtu + self.header

    @property
    def grain(self) -> int:
        """See `Transport.grain`."""
        return self.mtu

    def options(self, topology: Topology) -> list[int]:
        """See `Transport.options`."""
        # -1 is the kernel's sign that nothing is marked.
        lowest = -1 if self.kmin is None else self.kmin
        highest = lowest if self.kmax is None else self.kmax
        marking = [lowest, highest, round(self.pmax * pk.CERTAIN), self.seed]
        control = [0] if self.dcqcn is None else [1, *self.dcqcn.options()]
        return [self.mtu, self.header, *marking, *control]

    def on(self, stages: Sequence[Stage], routes: Routes) -> Transport:
        """See `Transport.on`."""
        if self.ways.at_nodes(stages):
            return HopByHop(self, self.ways, stages)
        if not is_unbounded(self, stages):
            return self
        # For its errors: what cannot be counted there cannot be here.
        self.tables(stages[0].topology)
        return UnboundedPacket(self.mtu, self.header, routes)

    def headroom(self, topology: Topology) -> Ints:
        """Return (links) bytes that may still come once the buffer at the end holds more than xoff.

        The packet that went beyond it, what is sent until the pause is there and what is on the wire (two latencies),
        and the packet that is then being sent. Zero where nothing is forwarded.
        """
        sent = np.ceil(2 * topology.latency * topology.bandwidth)
        # Negated so that NaN and infinity are refused, too.
        if sent.size and not sent.max() < LIMIT:
            raise InputError(
                f"a link holds {sent.max():.3g} bytes in two latencies; expected less than {LIMIT:.3g}"
            )
        carried = sent.astype(np.int64)
        # An NPU consumes what arrives: only buffers of nodes that forward can fill.
        headroom: Ints = np.where(topology.forwards[topology.head], carried + 2 * self.packet, 0)
        return headroom

    def tables(self, topology: Topology) -> list[Ints]:
        """See `Transport.tables`.

        Raises:
            InputError: A buffer is too small to lose nothing.
        """
        buffer = topology.buffer if self.buffer is None else np.full(topology.links, self.buffer)
        headroom = self.headroom(topology)
        # Without xoff the threshold is what the headroom leaves, which must not be negative.
        short = np.flatnonzero((self.xoff or 0) + headroom > buffer)
        if len(short):
            link, beside = int(short[0]), "" if self.xoff is None else f"xoff {self.xoff} and "
            needed = (self.xoff or 0) + headroom[link]
            raise InputError(
                f"{topology.called}: the buffer at the end of {topology.link_name(link)} has {buffer[link]} bytes, "
                f"expected at least {needed}: {beside}two packets and what comes in two latencies "
                f"({headroom[link]} bytes of headroom)"
            )
        # No comparison meets the limit, and sums stay below 2**63.
        xoff = (
            np.minimum(buffer - headroom, lk.FOREVER)
            if self.xoff is None
            else np.full(topology.links, self.xoff)
        )
        xon = np.maximum(xoff - 2 * self.packet, 0) if self.xon is None else np.minimum(self.xon, xoff)
        return [np.zeros(0, np.int64), xoff, xon]

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`."""
        return [np.zeros((topology.links, pk.PO_COLUMNS), np.int64)]

    def blocked(self, net: Ints, pool: Ints, table: Ints, topology: Topology) -> list[int]:
        """See `Transport.blocked`."""
        ports = net[net[pk.PORTS] :][: topology.links * pk.PO_COLUMNS]
        rows = np.reshape(ports, (-1, pk.PO_COLUMNS))
        # Ports with queued packets or with messages that still have packets to cut.
        work = np.flatnonzero((rows[:, pk.PO_FIRST] > 0) | (rows[:, pk.PO_CLASS] > 0))
        return down_links(net, table, work.tolist()) or blocked_cycle(net, pool, topology)


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


class HopByHop(Transport):
    """Such packets where they choose their ways at every node."""

    name = Packet.name
    kernel = "armillary.engine.transport.packet.hop_packet_kernel"
    burst, message = Packet.burst, Packet.message

    def __init__(self, packet: Packet, ways: Ways, stages: Sequence[Stage]) -> None:
        """Find the ways of all stages."""
        self.packet, self.ways, self.stages = packet, ways, stages
        self.hops = hop_tables(stages)

    @property
    def grain(self) -> int:
        """See `Transport.grain`."""
        return self.packet.grain

    def options(self, topology: Topology) -> list[int]:
        """See `Transport.options`."""
        # Packets without DCQCN leave its options out.
        own = self.packet.options(topology)
        own += [0] * (pk.OPTION_WORDS - len(own))
        return own + hop_options(self.ways, self.stages[0].routing, self.hops)

    def tables(self, topology: Topology) -> list[Ints]:
        """See `Transport.tables`."""
        return [*self.packet.tables(topology), *self.hops]

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`."""
        return [
            *self.packet.state(topology),
            np.zeros(topology.nodes * hl.SLOTS * hl.FLOWLET.width, np.int64),
        ]

    def blocked(self, net: Ints, pool: Ints, table: Ints, topology: Topology) -> list[int]:
        """See `Transport.blocked`."""
        return self.packet.blocked(net, pool, table, topology)


def _check(name: str, value: int | None, least: int, most: int, which: str = "") -> None:
    if value is not None and not least <= value <= most:
        what = f" ({which})" if which else ""
        raise InputError(f"packet: {name} is {value}, expected {least} to {most} bytes{what}")


def reverse_links(topology: Topology) -> Ints:
    """Return (links) the link from the head of each to its tail, of several that in the same place; -1: none."""
    tail, head = topology.tail, topology.head
    # The n-th of several parallel links pairs with the n-th in the other direction.
    there, back = np.lexsort((head, tail)), np.lexsort((tail, head))
    pairs, wanted = tail[there] * topology.nodes + head[there], head[back] * topology.nodes + tail[back]
    # Both are sorted by node pair; `place` is the number within a run of equal pairs.
    place = np.arange(len(wanted)) - np.searchsorted(wanted, wanted)
    at = np.searchsorted(pairs, wanted) + place
    inside = np.minimum(at, len(pairs) - 1)
    found = np.full(topology.links, -1, np.int64)
    found[back] = np.where((at < len(pairs)) & (pairs[inside] == wanted), there[inside], -1)
    return found
