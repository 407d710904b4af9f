"""Protocol `rdma` of network model `packet`: options, and the connections of a network.

Numbered packets with an ACK each, over queues that pause, drop or trim; loss recovery; and the congestion controls of
RoCE and Ultra Ethernet. Ignored: costs of the host and of its bus, limits on connections in a NIC, ACKs that share a
packet, urgency of messages, and the bandwidth of pauses. A run costs O(packets x hops) events, and as many for ACKs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from armillary.base.errors import InputError, nearest
from armillary.engine.transport import layout as lk
from armillary.engine.transport.control.dcqcn import Dcqcn
from armillary.engine.transport.deadlock import blocked_cycle, down_links
from armillary.engine.transport.network import Routes, Stage, times_to_end
from armillary.engine.transport.packet.transport import LARGEST_PACKET, Packet, reverse_links
from armillary.engine.transport.rdma import layout as rl
from armillary.engine.transport.rdma.queues import DEEP_QUEUES, Queues, oversubscription
from armillary.engine.transport.switch import hop_layout as hl
from armillary.engine.transport.switch import layout as pk
from armillary.engine.transport.switch.hops import PER_PACKET, Ways, hop_options, hop_tables
from armillary.engine.transport.transport import Ints, Transport
from armillary.platform.topology.graph import UNBOUNDED, Topology

CONTROLS = ("line-rate", "dcqcn", "timely", "swift", "hpcc", "ndp", "nscc", "rccc", "nscc+rccc")
FULL = ("pause", "drop", "trim")
SPREADS = ("message", "packet", "flowlet", "bitmap", "reps", "permuted")
RECOVERIES = ("selective", "go-back-n", "timeout")
USUAL_FULL = {"swift": "drop", **dict.fromkeys(("ndp", *DEEP_QUEUES), "trim")}
RATES = ("line-rate", "dcqcn", "timely")
"""Controls without a window: what is not acknowledged is limited by slots only."""
MOST_WORDS = 1 << 28
US = 1e6  # ps


@dataclass(frozen=True)
class Rdma(Transport):
    """Connections with congestion control.

    Attributes:
        control: Which congestion control; see docs/how-to/transports.md for equations and sources.
        full: What a full queue does: `pause` (PFC), `drop`, or `trim` to a header. None: trim for ndp and the three of
            Ultra Ethernet (nscc, rccc, nscc+rccc), drop for swift, else pause.
        recovery: What is sent again after a loss: the lost packets, or with `go-back-n` all from the first on. With
            `timeout` the lost packets, but nothing tells that one is lost but its timeout.
        spread: How a sender chooses paths: `message` (one per queue pair), `packet` (all in turn), `flowlet` (switches
            choose), `bitmap`, `reps`. None: permuted for ndp, reps for Ultra Ethernet, else message.
        paths: Values that it chooses among, a power of two (htsim: 64).
        mtu: Most bytes of a message in a packet.
        header: Bytes of a packet besides.
        ack: Bytes of an ACK, and of a packet that was trimmed.
        buffer: Bytes that fit a queue (drop, trim) or the end of a link (pause). None: what the topology says; else 8
            packets for ndp, the bandwidth-delay carried (BDP) for Ultra Ethernet, five where that drops, 256 KiB
            for other controls that drop, no limit for those that pause.
        window: Largest window in bytes. None: 100 packets for swift, one BDP for hpcc, 1.5 BDP for others.
        kmin, kmax, pmax: Marks, as `Packet`. None: 20 % and 80 % of the BDP and all for Ultra Ethernet; 5 kB, 200 kB
            and 1 % for dcqcn (its paper's, at 40 Gb/s).
        rto: ns after which what is unacknowledged is lost. None: as htsim, 15 µs, 6 times what the slowest queue takes
            to empty, and the base round trip.
        retries: Timeouts in a row after which a connection is given up.
        target: ns of delay that the control allows. None: 20 µs for swift (htsim), 50 µs for timely (its T_low), a base
            round trip or 0.75 of it where queues trim for nscc.
        step: What a step adds: bytes to a window (swift: a packet; hpcc: 80 bytes), bytes/ns to the rate of timely
            (a thousandth of the line: 10 Mb/s at the paper's 10 Gb/s).
        dcqcn: Options of DCQCN.
        ways: As `Packet.ways`; its `spread` has no effect.
        seed: Random seed of marks and of what is trimmed.

    Raises:
        InputError: A value is out of range, or options contradict each other.
    """

    name: ClassVar[str] = "packet"
    kernel: ClassVar[str] = "armillary.engine.transport.rdma.rdma_kernel"
    control: str = "line-rate"
    full: str | None = None
    recovery: str = "selective"
    spread: str | None = None
    paths: int = 64
    mtu: int = 4096
    header: int = 62
    ack: int = 64
    buffer: int | None = None
    window: int | None = None
    kmin: int | None = None
    kmax: int | None = None
    pmax: float | None = None
    rto: float | None = None
    retries: int = 15
    target: float | None = None
    step: float | None = None
    dcqcn: Dcqcn = field(default_factory=Dcqcn)
    ways: Ways = field(default_factory=Ways)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, names in (
            ("control", self.control, CONTROLS), ("full", self.full, FULL), ("spread", self.spread, SPREADS),
            ("recovery", self.recovery, RECOVERIES),
        ):  # fmt: skip
            if value is not None and value not in names:
                raise InputError(
                    f"rdma: {name} is '{value}', expected one of {', '.join(names)}{nearest(value, names)}"
                )
        for name, low, high, unit in (
            ("mtu", 1, LARGEST_PACKET, "bytes, e.g. 4096"), ("header", 0, LARGEST_PACKET, "bytes, e.g. 62"),
            ("ack", 1, LARGEST_PACKET, "bytes, e.g. 64"), ("paths", 1, 1 << 16, "paths, e.g. 64"),
            ("window", self.mtu, 1 << 30, "bytes (mtu), e.g. 1 MiB"), ("kmin", 0, 1 << 40, "bytes, e.g. 5000"),
            ("kmax", self.kmin or 0, 1 << 40, "bytes (kmin), e.g. 200000"), ("pmax", 0, 1, "e.g. 0.01"),
            ("rto", 1, 1e12, "ns, e.g. 100000"), ("retries", 1, 1 << 20, "timeouts, e.g. 15"),
            ("target", 1, 1e12, "ns, e.g. 20000"), ("step", 1e-6, 1e9, "bytes or bytes/ns"),
            ("seed", 0, UNBOUNDED, ""), ("buffer", self.packet, 1 << 40, "bytes (a packet), e.g. 262144"),
        ):  # fmt: skip
            got = getattr(self, name)
            if got is not None and not low <= got <= high:
                # Whole numbers have all their digits: 1.07374e+09 bytes is nobody's limit.
                least, most = (
                    f"{bound}" if isinstance(bound, int) else f"{bound:g}" for bound in (low, high)
                )
                raise InputError(f"rdma: {name} is {got:g}, expected {least} to {most} {unit}".rstrip())
        if self.paths & (self.paths - 1):
            raise InputError(f"rdma: paths is {self.paths}, expected a power of two, e.g. 64")
        if self.recovery == "go-back-n" and self.when_full == "trim":
            raise InputError(
                "rdma: recovery go-back-n needs full drop or pause: a header says what to send again"
            )
        if self.recovery == "go-back-n" and self.choice not in ("message", "flowlet"):
            raise InputError(
                f"rdma: recovery go-back-n takes packets in order only, got spread {self.choice}, expected message"
            )
        if self.control == "hpcc" and self.choice != "message":
            raise InputError(
                f"rdma: control hpcc measures one path, got spread {self.choice}, expected message"
            )

    @property
    def packet(self) -> int:
        """Bytes of the largest packet."""
        return self.mtu + self.header

    @property
    def grain(self) -> int:
        """See `Transport.grain`."""
        return self.mtu

    @property
    def when_full(self) -> str:
        """What a full queue does."""
        return self.full or USUAL_FULL.get(self.control, "pause")

    @property
    def choice(self) -> str:
        """How paths are chosen."""
        usual = "reps" if self.control in DEEP_QUEUES else "message"
        return self.spread or ("permuted" if self.control == "ndp" else usual)

    def on(self, stages: Sequence[Stage], routes: Routes) -> Transport:
        """See `Transport.on`."""
        return RdmaNetwork(self, stages, routes)

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`; connections are known after `on` only."""
        raise TypeError("rdma has a state on known routes only: see Transport.on")


class RdmaNetwork(Transport):
    """Protocol `rdma` on the routes of a network."""

    name = Rdma.name
    kernel = Rdma.kernel
    # An event makes at most a packet, an answer, a pull and records of links; a message takes its row, DCQCN's, an ASK.
    burst = 16
    message = 6

    def __init__(self, rdma: Rdma, stages: Sequence[Stage], routes: Routes) -> None:
        """Give every pair of NPUs a connection.

        Raises:
            InputError: A link of a route has none back, or there are too many connections.
        """
        self.rdma, self.stages = rdma, stages
        topology, routing = stages[0].topology, stages[0].routing
        # Routings by queue and detours choose at every node: numbers of ways mean nothing there.
        own = type(routing) in PER_PACKET
        if own and rdma.spread == "permuted":
            raise InputError(
                "rdma: spread is 'permuted', expected packet with a routing that decides per packet"
            )
        self.choice = "packet" if own and rdma.choice == "permuted" else rdma.choice
        way = "flowlet" if rdma.choice == "flowlet" else "packet"
        self.ways = Ways(way, rdma.ways.qps, rdma.ways.flowlet_gap, rdma.ways.ugal_bias)
        self.hops = hop_tables(stages)
        self.reverse = reverse_links(topology)
        first = np.concatenate(routes.first)
        links = np.concatenate([np.zeros(0, np.int64), *routes.link])
        begin, end = first[:-1], first[1:]
        self.place = np.full(routes.count, -1, np.int64)
        some = np.flatnonzero(begin < end)
        out, into = links[begin[some]], links[end[some] - 1]
        plane = topology.plane[into] if topology.planes > 1 else np.full(len(some), -1)
        ends = np.stack([topology.tail[out], topology.head[into], plane], axis=1)
        # In every stage a pair has a route of its own; they share the connection, of which there is one in each plane.
        _, chosen, which = np.unique(ends, axis=0, return_index=True, return_inverse=True)
        self.place[some] = which.ravel()
        back = self.reverse[links]
        if (back < 0).any():
            link, name = int(links[np.argmin(back)]), topology.node_name
            raise InputError(
                f"{topology.called}: no link leads from {name(int(topology.head[link]))} back to "
                f"{name(int(topology.tail[link]))}; expected links both ways, as ACKs go back"
            )
        ways = [links[begin[route] : end[route]] for route in some[chosen].tolist()]
        packet, ack = times_to_end(topology, rdma.packet), times_to_end(topology, rdma.ack)
        self.base = np.array([packet[way].sum() + ack[self.reverse[way]].sum() for way in ways], np.int64)
        self.flows = self._rows(topology, ends[chosen], out[chosen], self.reverse[into[chosen]], ways)
        words = len(self.flows) * (rl.FLOW.width + 3 * self.slots + rdma.paths)
        if words > MOST_WORDS:
            raise InputError(
                f"{topology.called}: rdma keeps {words:.3g} words for {len(self.flows)} connections of {self.slots} "
                f"packets each, expected at most {MOST_WORDS:.3g}: fewer pairs, or a smaller packets.window"
            )

    @property
    def grain(self) -> int:
        """See `Transport.grain`."""
        return self.rdma.mtu

    def _rows(self, topology: Topology, ends: Ints, out: Ints, back: Ints, ways: list[Ints]) -> Ints:
        """Return the connections before anything is sent."""
        rdma, count = self.rdma, len(ends)
        rates = topology.bandwidth[out] if count else np.ones(1)
        #  The largest round trip at the rate of the fastest first link, in whole packets.
        self.largest_base = int(self.base.max(initial=lk.PS))
        carried = float(rates.max()) * self.largest_base / lk.PS
        self.bdp = max(1, round(carried / rdma.packet)) * rdma.packet
        self.queues = Queues(
            rdma.control, rdma.when_full, rdma.packet, self.bdp, rdma.buffer, rdma.kmin, rdma.kmax, rdma.pmax
        )
        usual = {"swift": 100 * rdma.mtu, "hpcc": self.bdp, "ndp": self.bdp * 3 // 2}
        self.most = rdma.window or usual.get(rdma.control, self.bdp * 3 // 2)
        self.most = max(self.most, rdma.mtu)
        wanted = 1024 if rdma.control in RATES and not rdma.window else 4 * -(-self.most // rdma.mtu) + 8
        self.slots = 1 << (wanted - 1).bit_length()
        rows = np.zeros((count, rl.FLOW.width), np.int64)
        rows[:, rl.C_SOURCE], rows[:, rl.C_GOAL], plane = ends.T
        # The receiver has a port in every plane, each with a link of its own to fill.
        rows[:, rl.FLOW.declared["pacer"].offset] = ends[:, 1] * topology.planes + np.maximum(plane, 0)
        rows[:, rl.C_OUT], rows[:, rl.C_BACK] = out, back
        rows[:, rl.C_BASE] = self.base
        rows[:, rl.C_LINKS] = [len(way) for way in ways]
        rows[:, rl.C_RATE] = np.minimum(np.rint(rates[:count] * 1e9), pk.MOST_RATE)
        # As in htsim: a flow that finds a queue when it begins would take it for the way, and be unfair to others.
        rows[:, rl.C_LEAST] = self.base
        window = np.full(count, self.most)
        if rdma.control in RATES:
            window[:] = rdma.window or lk.FOREVER // rl.PART
        rows[:, rl.C_WINDOW] = rows[:, rl.FLOW.declared["agreed"].offset] = window * rl.PART
        rows[:, rl.FLOW.declared["recent"].offset] = 0 if rdma.control == "timely" else self.base
        return rows

    def options(self, topology: Topology) -> list[int]:
        """See `Transport.options`."""
        rdma = self.rdma
        fast = float(topology.bandwidth.max())
        up = topology.bandwidth > 0
        drained = np.minimum(self.queues.rooms(topology), 1 << 40)[up] / topology.bandwidth[up]
        usual = 15_000 + 6 * float(drained.max()) + self.largest_base / lk.PS
        # Nothing is lost where queues pause.
        rto = 0 if rdma.when_full == "pause" else round((rdma.rto or usual) * lk.PS)
        values = [*self._control(fast), self._least_credit(topology)]
        paths = hop_options(self.ways, self.stages[0].routing, self.hops)
        if self.choice == "permuted":
            paths[1] = hl.DIGITS
        dcqcn = [1, *rdma.dcqcn.options()]
        own = [rdma.mtu, rdma.header, *self.queues.marks, rdma.seed, *dcqcn]
        assert len(own) == pk.OPTION_WORDS
        return [
            *own, *paths, CONTROLS.index(rdma.control), FULL.index(rdma.when_full),
            int(rdma.recovery == "go-back-n"), rdma.ack, SPREADS.index(self.choice), rdma.paths, self.slots, self.most,
            rto, rdma.retries, self._reorder(), self.largest_base,
            *values,
        ]  # fmt: skip

    def _reorder(self) -> int:
        """Return how much later (ps) a packet may be sent than one that it overtakes and that is not lost."""
        if self.rdma.recovery == "timeout":
            return lk.FOREVER
        return 0 if self.rdma.choice in ("message", "flowlet") else self.largest_base

    def _control(self, fast: float) -> list[int]:
        """Return the options from `target` on."""
        rdma, base = self.rdma, self.largest_base
        control = "nscc" if rdma.control == "nscc+rccc" else rdma.control
        step, target = rdma.step, None if rdma.target is None else rdma.target * lk.PS
        # NSCC is scaled from a network of 100 Gb/s and 12 us (7.1 of the specification's table of parameters).
        scale = self.bdp / (12.5 * 12_000)
        usual = {
            "swift": 20 * US,
            "timely": 50 * US,
            "nscc": base * (0.75 if rdma.when_full == "trim" else 1.0),
        }
        target = usual.get(control, float(base)) if target is None else target
        up = {"swift": rdma.mtu, "hpcc": 80, "timely": fast / 1000, "nscc": 5 * rdma.mtu * scale}.get(
            control, 0
        )
        up = up if step is None else step
        # Swift: target plus alpha / sqrt(window) - alpha / 10, which is 5 targets at a tenth of a packet.
        scaled = 5 * target / (10**0.5 - 0.1)
        aim = {"hpcc": 0.95, "rccc": 0.99, "nscc+rccc": 0.99}.get(rdma.control, 1.0)
        quantum = 4 * rdma.mtu if rdma.control in DEEP_QUEUES else rdma.mtu
        return [
            round(target), round(500 * US), round(target / 6.55), round(scaled),
            max(1, round(up * 1e9 if rdma.control == "timely" else up)), round(aim * pk.ONE), 5,
            round(0.15 * rdma.mtu * scale), round(4 * rdma.mtu * scale / 12), round(0.25 * scale * pk.ONE), quantum,
        ]  # fmt: skip

    def _least_credit(self, topology: Topology) -> int:
        """Return the least share of its link (of ONE) for which a receiver grants credit, 0: it does not slow down."""
        over = oversubscription(topology)
        return round(max(0.9 / over, 0.01) * pk.ONE) if self.rdma.control == "rccc" and over > 1 else 0

    def tables(self, topology: Topology) -> list[Ints]:
        """See `Transport.tables`.

        Raises:
            InputError: A buffer is smaller than a packet, or too small to lose nothing.
        """
        rdma = self.rdma
        if rdma.when_full == "pause":
            above = Packet(mtu=rdma.mtu, header=rdma.header, buffer=rdma.buffer).tables(topology)
        else:
            above = [np.zeros(0, np.int64), *(np.full(topology.links, lk.FOREVER) for _ in range(2))]
            room = self.queues.rooms(topology)
            small = np.flatnonzero(room < rdma.packet)
            if len(small):
                raise InputError(
                    f"{topology.called}: the queue of {topology.link_name(int(small[0]))} has room for "
                    f"{room[small[0]]} bytes, expected at least a packet of {rdma.packet} bytes"
                )
        return [*above, *self.hops, self.place, self.queues.table(topology).ravel()]

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`."""
        count = len(self.flows)
        return [
            np.zeros((topology.links, pk.PO_COLUMNS), np.int64),
            np.zeros(topology.nodes * hl.SLOTS * hl.FLOWLET.width, np.int64), self.flows,
            np.zeros(count * self.slots * rl.SLOT.width, np.int64),
            np.zeros(count * self.rdma.paths * rl.PATH.width + 8, np.int64),
            np.zeros(topology.npus * topology.planes * rl.PACER.width, np.int64),
        ]  # fmt: skip

    def blocked(self, net: Ints, pool: Ints, table: Ints, topology: Topology) -> list[int]:
        """See `Transport.blocked`."""
        ports = np.reshape(net[net[pk.PORTS] :][: topology.links * pk.PO_COLUMNS], (-1, pk.PO_COLUMNS))
        work = np.flatnonzero((ports[:, pk.PO_FIRST] > 0) | (ports[:, pk.PO_CLASS] > 0))
        return down_links(net, table, work.tolist()) or blocked_cycle(net, pool, topology)

    def abandoned(self, net: Ints, topology: Topology) -> list[str]:
        """See `Transport.abandoned`."""
        at = net[rl.NET.places["RDMA_FLOW"]]
        rows = np.asarray(net[at:][: self.flows.size]).reshape(self.flows.shape)
        given_up = rows[rows[:, rl.C_TRIES] > self.rdma.retries]
        if not len(given_up):
            return []
        ends = [topology.node_name(int(given_up[0, column])) for column in (rl.C_SOURCE, rl.C_GOAL)]
        return [
            f"{len(given_up)} connection{'s' if len(given_up) > 1 else ''} gave up after {self.rdma.retries} timeouts "
            f"in a row, the first from {ends[0]} to {ends[1]}: larger packets.retries, packets.rto or "
            "packets.buffer may avoid this"
        ]
