"""Network model `tcp`: options for its kernel, and the connections of a network.

Segments and ACKs move as packets through drop-tail queues, with slow start, congestion avoidance (NewReno, CUBIC,
DCTCP), SACK or NewReno recovery, delayed ACKs and timeouts. Messages over the same links share a connection in order.
Ignored: urgency, receive windows that change, Nagle, connection teardown, costs of the host, and handshakes unless the
option is set. A run costs O(segments x hops) events, and half as many again for ACKs; intervals of SACK are sorted
lists, short unless losses are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from armillary.base.errors import InputError, nearest
from armillary.engine.transport import layout as lk
from armillary.engine.transport.deadlock import down_links
from armillary.engine.transport.network import Routes, Stage, times_to_end
from armillary.engine.transport.packet.transport import LARGEST_PACKET, reverse_links
from armillary.engine.transport.switch import layout as pk
from armillary.engine.transport.tcp import layout as tk
from armillary.engine.transport.transport import Ints, Transport
from armillary.platform.topology.graph import UNBOUNDED, Topology

Algorithm = Literal["newreno", "cubic", "dctcp"]
ALGORITHMS: tuple[str, ...] = get_args(Algorithm)
PS_PER_MS = 10**9


@dataclass(frozen=True)
class Tcp(Transport):
    """TCP over links whose queues drop at their tail.

    The messages over the same links share a connection, one after the other. A finite buffer of a link in the
    topology is the room of its queue, else `buffer` is. An NPU never drops what it sends itself.

    Attributes:
        algorithm: Congestion control: `newreno` (RFC 5681, 6582), `cubic` (RFC 9438), `dctcp` (RFC 8257).
        mss: Most bytes of payload in a segment: 1448 fill an Ethernet frame besides headers and timestamps.
        header: Bytes of a segment besides, and of an ACK: 90 are Ethernet with preamble and gap (38), IPv4 (20) and
            TCP with timestamps (32).
        initial_window: Segments of the first window (RFC 6928).
        growth: Segments by which one ACK may enlarge the window: 1 is RFC 5681, 2 counts bytes (RFC 3465).
        min_rto: Shortest timeout in ms: 200 as Linux has it; RFC 6298 says 1000.
        max_rto: Longest timeout in ms.
        ack_every: Segments that share an ACK (RFC 1122: 2).
        ack_delay: Longest time in ms that an ACK waits for another segment: 40 as Linux has it.
        quick_acks: Segments at the begin of a connection that are each acknowledged at once: 1 in ns-3. Without, a
            window of one segment after a timeout may wait for `ack_delay`.
        sack: Whether the receiver tells what it holds beyond gaps (RFC 2018); then recovery is RFC 6675 and 6937.
        window: Most bytes in flight, 0 for no limit: what buffers of sockets would hold.
        buffer: Bytes that fit the queue of a link, besides the packet on the wire; 256 KiB is what one port of a
            12 MB switch with 48 ports has.
        mark: With `dctcp`, bytes in a queue from which on packets are marked: 65 packets at 10 Gbit/s (RFC 8257 names
            the rule K > RTT x C / 7).
        retries: Timeouts in a row after which a connection is given up; its messages never arrive.
        persistent: Whether what a connection has learnt outlasts messages; else a message that finds it idle begins
            as on a new one, and messages share a connection only if they have the same route number.
        handshake: Whether a message that begins on a new connection first waits for a round trip of an empty network;
            else connections are open from the start.
        jitter: Longest time in ns, drawn at random, that a sender takes to answer an ACK. Without, flows over equal
            links fall in step, and a full queue always drops those of the same senders (Floyd and Jacobson 1991, "On
            traffic phase effects in packet-switched gateways": they advise a packet's time on the slowest link).
        seed: Random seed of these times.
    """

    name: ClassVar[str] = "tcp"
    kernel: ClassVar[str] = "armillary.engine.transport.tcp.tcp_kernel"
    algorithm: Algorithm = "cubic"
    mss: int = 1448
    header: int = 90
    initial_window: int = 10
    growth: int = 1
    min_rto: float = 200.0
    max_rto: float = 60_000.0
    ack_every: int = 2
    ack_delay: float = 40.0
    quick_acks: int = 0
    sack: bool = True
    window: int = 0
    buffer: int = 256 << 10
    mark: int = 97_500
    retries: int = 15
    persistent: bool = True
    handshake: bool = False
    jitter: float = 1000.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise InputError(
                f"tcp: algorithm is '{self.algorithm}', expected one of {', '.join(ALGORITHMS)}"
                f"{nearest(self.algorithm, ALGORITHMS)}"
            )
        _within("mss", self.mss, 1, LARGEST_PACKET, "bytes, e.g. 1448")
        _within("header", self.header, 1, LARGEST_PACKET, "bytes, e.g. 90")
        _within("initial_window", self.initial_window, 1, 1 << 20, "segments, e.g. 10")
        _within("growth", self.growth, 1, 1 << 20, "segments, e.g. 1")
        _within("min_rto", self.min_rto, 1e-3, 60_000, "ms, e.g. 200")
        _within("max_rto", self.max_rto, self.min_rto, 3_600_000, "ms, at least min_rto, e.g. 60000")
        _within("ack_every", self.ack_every, 1, 1 << 20, "segments, e.g. 2")
        _within("ack_delay", self.ack_delay, 1e-3, 500, "ms, e.g. 40")
        _within("quick_acks", self.quick_acks, 0, 1 << 20, "segments, e.g. 1")
        if self.window:
            _within("window", self.window, self.mss, UNBOUNDED, "bytes (mss), or 0: no limit")
        _within("buffer", self.buffer, self.mss + self.header, UNBOUNDED, "bytes (a packet), e.g. 262144")
        _within("mark", self.mark, 0, UNBOUNDED, "bytes, e.g. 97500")
        _within("jitter", self.jitter, 0, 1e6, "ns, e.g. 1000")
        _within("seed", self.seed, 0, UNBOUNDED, "")
        _within("retries", self.retries, 1, 1 << 20, "timeouts, e.g. 15")

    def on(self, stages: Sequence[Stage], routes: Routes) -> Transport:
        """See `Transport.on`.

        Raises:
            InputError: A link of a route has none back, or a buffer is smaller than a packet.
        """
        return Connected(self, stages[0].topology, routes)

    def options(self, topology: Topology) -> list[int]:
        """See `Transport.options`."""
        # Only DCTCP reacts to marks: for others no queue is ever deep enough to mark.
        mark = self.mark if self.algorithm == "dctcp" else lk.FOREVER
        first = self.initial_window * self.mss
        times = [round(time * PS_PER_MS) for time in (self.min_rto, self.max_rto, self.ack_delay)]
        return [
            ALGORITHMS.index(self.algorithm), self.mss, self.header, first, self.growth, *times, self.ack_every,
            int(self.sack), self.window or lk.FOREVER, mark, self.retries, int(self.persistent),
            int(self.handshake), round(self.jitter * lk.PS), self.quick_acks,
        ]  # fmt: skip

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`; connections are known after `on` only."""
        raise TypeError("tcp has a state on known routes only: see Transport.on")

    def queues(self, topology: Topology) -> Ints:
        """Return (links) bytes that fit the queue of each."""
        room = np.where(topology.buffer < UNBOUNDED, topology.buffer, self.buffer)
        small = np.flatnonzero(room < self.mss + self.header)
        if len(small):
            link = int(small[0])
            ends = topology.node_name(int(topology.tail[link])), topology.node_name(int(topology.head[link]))
            raise InputError(
                f"{topology.called}: the buffer of the link from {ends[0]} to {ends[1]} is {room[link]} bytes, "
                f"expected at least a packet of {self.mss + self.header} bytes"
            )
        return room.astype(np.int64)


class Connected(Transport):
    """TCP on the routes of a network."""

    name = Tcp.name
    kernel = Tcp.kernel
    # Every segment takes a row and makes an event; so do an interval, two ACKs and timers.
    burst = 2 * tk.MOST_AT_ONCE
    message = 1

    def __init__(self, tcp: Tcp, topology: Topology, routes: Routes) -> None:
        """Give every route a connection: those over the same links share one."""
        self.tcp = tcp
        self.reverse = reverse_links(topology)
        self.buffer = tcp.queues(topology)
        first = np.concatenate(routes.first)
        links = np.concatenate([np.zeros(0, np.int64), *routes.link])
        self.ways = links
        back = self.reverse[links]
        if (back < 0).any():
            link = int(links[np.argmin(back)])
            name = topology.node_name
            raise InputError(
                f"{topology.called}: no link leads from {name(int(topology.head[link]))} back to "
                f"{name(int(topology.tail[link]))}; expected links both ways, as ACKs take the way back"
            )
        self.place = np.full(routes.count, -1, np.int64)
        rows: list[Ints] = []
        known: dict[object, int] = {}
        header = times_to_end(topology, tcp.header)
        for route, (begin, end) in enumerate(zip(first[:-1].tolist(), first[1:].tolist(), strict=True)):
            if begin == end:
                continue
            way = links[begin:end]
            # Bytes of the links as a key: routes over the same links get the same connection. Otherwise each
            # route has its own.
            number = known.setdefault(way.tobytes() if tcp.persistent else route, len(rows))
            if number == len(rows):
                # Base round trip: the time of an empty packet there and back, without queues.
                rows.append(_row(tcp, begin, end, int(header[way].sum() + header[self.reverse[way]].sum())))
            self.place[route] = number * tk.C_COLUMNS
        self.rows = np.stack(rows) if rows else np.zeros((0, tk.C_COLUMNS), np.int64)

    @property
    def grain(self) -> int:
        """See `Transport.grain`."""
        return self.tcp.mss

    def options(self, topology: Topology) -> list[int]:
        """See `Transport.options`."""
        return self.tcp.options(topology)

    def tables(self, topology: Topology) -> list[Ints]:
        """See `Transport.tables`."""
        return [self.reverse, self.place, self.buffer]

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`."""
        # Park and Miller's generator stays at 0 for ever if it starts there.
        first_draw = np.array([self.tcp.seed % (tk.DRAWS - 1) + 1])
        return [np.zeros((topology.links, pk.PO_COLUMNS), np.int64), self.rows, first_draw]

    def blocked(self, net: Ints, pool: Ints, table: Ints, topology: Topology) -> list[int]:
        """See `Transport.blocked`."""
        first = net[pk.PORTS] + pk.PO_FIRST
        links = (link for link in range(topology.links) if net[first + link * pk.PO_COLUMNS] > 0)
        return down_links(net, table, links)

    def abandoned(self, net: Ints, topology: Topology) -> list[str]:
        """See `Transport.abandoned`."""
        rows = net[net[tk.N_CONNECTIONS] :][: self.rows.size].reshape(self.rows.shape)
        # A window of 0 is the kernel's sign of a connection that was given up.
        given_up = rows[rows[:, tk.C_CWND] == 0]
        if not len(given_up):
            return []
        first, last = self.ways[given_up[0, tk.C_FIRST]], self.ways[given_up[0, tk.C_LAST]]
        ends = topology.node_name(int(topology.tail[first])), topology.node_name(int(topology.head[last]))
        return [
            f"{len(given_up)} TCP connection{'s' if len(given_up) > 1 else ''} gave up after {self.tcp.retries} "
            f"timeout{'s' if self.tcp.retries > 1 else ''} in a row, the first from {ends[0]} to {ends[1]}: larger "
            "packets.retries, packets.max_rto or packets.buffer may avoid this"
        ]


def _row(tcp: Tcp, begin: int, end: int, base: int) -> Ints:
    """Return a connection that has sent nothing; `base`: ps of an ACK and its answer in an empty network."""
    row = np.zeros(tk.C_COLUMNS, np.int64)
    row[tk.C_FIRST], row[tk.C_LAST] = begin, end - 1
    # No threshold before the first loss: slow start is unbounded (RFC 5681 section 3.1).
    row[tk.C_CWND], row[tk.C_SSTHRESH] = tcp.initial_window * tcp.mss, lk.FOREVER
    row[tk.C_RECOVER], row[tk.C_ALPHA] = -1, tk.ALL
    row[tk.C_NEW], row[tk.C_QUICK] = 1, tcp.quick_acks
    # As after a first sample of the round trip (RFC 6298 section 2.2): mean R, deviation R / 2, timeout their
    # sum with 4 deviations.
    row[tk.C_BASE] = row[tk.C_SRTT] = base
    row[tk.C_VAR] = base // 2
    limit = round(tcp.min_rto * PS_PER_MS), round(tcp.max_rto * PS_PER_MS)
    row[tk.C_RTO] = min(max(base + 4 * (base // 2), limit[0]), limit[1])
    return row


def _within(name: str, value: float, least: float, most: float, unit: str) -> None:
    if not least <= value <= most:
        got, low, high = (x if isinstance(x, int) else f"{x:g}" for x in (value, least, most))
        wanted = f"at least {low}" if most == UNBOUNDED else f"{low} to {high}"
        raise InputError(f"tcp: {name} is {got}, expected {wanted} {unit}".rstrip())
