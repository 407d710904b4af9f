"""Network model `credit`: packets through routers with virtual channels and credit flow control.

Whole packets move, one event per packet and link, with the times that their flits would have (virtual cut-through).
Back-pressure, head-of-line blocking, round-robin arbitration and deadlock of credits follow from the buffers. Ignored:
wormhole switching (buffers smaller than a packet), contention inside a router's crossbar, errors and retransmission.
A run costs O(packets x hops) events of O(log events) each; an arbitration also scans the slots of its node, that is
incoming links x virtual channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine.transport import layout as lk
from armillary.engine.transport.credit import layout as ck
from armillary.engine.transport.deadlock import down_links
from armillary.engine.transport.transport import Transport
from armillary.platform.network import TOPOLOGIES
from armillary.platform.topology.graph import UNBOUNDED, Topology

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Credit(Transport):
    """Lossless links with credits, as networks on chip, InfiniBand and NVLink have them.

    Messages are cut into packets, packets into flits. A packet goes to the next router when its head has passed
    the pipeline of this one, the link is free, and credits say that all of it fits into one virtual channel (VC) of
    the buffer there (virtual cut-through); its flits follow without a pause unless they come by a slower link.
    Credits of a packet go back together, with the latency of the link, when its last flit has left the buffer. An
    output takes turns among the VCs of all inputs and the NIC, a packet each; an input feeds several outputs at once.
    An NPU has a queue for each of its links, and takes in what has come as fast as links bring it. A packet alone
    takes hops * (router delay + latency) and its time on the slowest link.

    On rings and tori of dimensions with two or more VCs, packets use the lower half of them up to and on the link that
    closes the ring (the dateline), and the upper half after it, so that dimension-order routing cannot deadlock:
    Dally and Seitz, "Deadlock-free message routing in multiprocessor interconnection networks", IEEE Trans. Comp.
    1987. On other links any VC will do, the next in turn.

    Wormhole switching, with buffers smaller than a packet, is not modelled.

    Attributes:
        packet: Bytes of a packet; the last of a message may be shorter.
        flit: Bytes of a flit; the last of a packet is filled up.
        vcs: Virtual channels of a link.
        depth: Flits that fit into a VC at the end of links without a limit of their own (`Topology.buffer`, which
            all VCs of a link share in equal parts); None: enough that credits alone never hold up a link.
        router_delay: ns that a router takes to pass on a flit, on top of the latency of links.
        switching: Whether packets go on when their head is there, or when all of them is.

    Raises:
        InputError: a number is too small.
    """

    packet: int = 4096
    flit: int = 64
    vcs: int = 2
    depth: int | None = None
    router_delay: float = 0.0
    switching: Literal["virtual-cut-through", "store-and-forward"] = "virtual-cut-through"

    name: ClassVar[str] = "credit"
    kernel: ClassVar[str] = "armillary.engine.transport.credit.credit_kernel"
    # Two slots are served, each packet of them takes a row of credits and makes two events at most; and a few more.
    burst = 4 * ck.STEP + 8
    message = 2

    def __post_init__(self) -> None:
        for what, least in (("packet", self.flit), ("flit", 1), ("vcs", 1), ("router_delay", 0)):
            if getattr(self, what) < least:
                raise InputError(f"credit: {what} is {getattr(self, what)}, expected at least {least}")
        if self.switching not in ("virtual-cut-through", "store-and-forward"):
            raise InputError(
                f"credit: switching is '{self.switching}', expected 'virtual-cut-through' or 'store-and-forward'"
            )

    @property
    def grain(self) -> int:
        """See `Transport.grain`."""
        return self.packet

    def options(self, topology: Topology) -> list[int]:
        """See `Transport.options`."""
        whole = int(self.switching == "store-and-forward")
        return [self.packet, self.flit, self.vcs, round(self.router_delay * lk.PS), whole]

    def tables(self, topology: Topology) -> list[Ints]:
        """See `Transport.tables`."""
        rows = np.zeros((topology.links, ck.C_COLUMNS), np.int64)
        rows[:, ck.C_RING], rows[:, ck.C_DATELINE] = datelines(topology)
        first, links = topology.incoming
        # Slots of one node stand side by side, in the order of its incoming links: an output scans a
        # contiguous range.
        rows[links, ck.C_END] = np.arange(topology.links) * self.vcs
        rows[:, ck.C_FIRST] = first[topology.tail] * self.vcs
        rows[:, ck.C_SLOTS] = np.diff(first)[topology.tail] * self.vcs
        return [rows]

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`."""
        rows = np.zeros((topology.links, ck.S_COLUMNS), np.int64)
        rows[:, ck.S_WAKE] = lk.FOREVER
        # The place after the last slot is that of the NIC; the first round-robin step from there reaches slot
        # 0.
        rows[:, ck.S_TURN] = np.diff(topology.incoming[0])[topology.tail] * self.vcs
        slots = np.zeros((topology.links * self.vcs, ck.V_COLUMNS), np.int64)
        slots[:, ck.V_CREDITS] = np.repeat(self._depths(topology)[topology.incoming[1]], self.vcs)
        return [rows, np.zeros((len(slots), ck.W_COLUMNS), np.int64), slots]

    def blocked(self, net: Any, pool: Any, table: Any, topology: Topology) -> list[int]:
        """See `Transport.blocked`."""
        first = int(net[lk.N_OWN])
        rows = np.reshape(net[first : first + topology.links * ck.S_COLUMNS], (-1, ck.S_COLUMNS))
        wanted = np.flatnonzero((rows[:, ck.S_WANTED] > 0) | (rows[:, ck.S_NIC] > 0))
        return down_links(net, table, wanted.tolist()) or blocked_cycle(net, pool, table, topology)

    def _depths(self, topology: Topology) -> Ints:
        """Return (links) the flits that fit into a VC."""
        most = -(-self.packet // self.flit)
        if self.depth is None:
            # Bandwidth-delay product of the credit loop. Two packets more, because the credits of a packet
            # return together, when its last flit has left.
            round_trip = topology.bandwidth * (2 * topology.latency + self.router_delay)
            free = np.ceil(round_trip / self.flit).astype(np.int64) + 2 * most + 1
        else:
            free = np.full(topology.links, self.depth)
        finite = topology.buffer < UNBOUNDED
        depths: Ints = np.where(finite, topology.buffer // self.vcs // self.flit, free)
        # Virtual cut-through claims room for a whole packet; with less a packet could never move.
        if topology.links and depths.min() < most:
            link = int(np.argmin(depths))
            has = (
                f"a buffer of {topology.buffer[link]} bytes" if finite[link] else f"{self.depth} flits per VC"
            )
            raise InputError(
                f"{topology.called}: link {topology.link_name(link)} has {has}, so {depths[link] * self.flit} bytes "
                f"for each of {self.vcs} VCs, expected room for a packet of {self.packet} bytes"
            )
        return depths


def datelines(topology: Topology) -> tuple[Ints, Ints]:
    """Return (links) the sort of ring of each link, 0 for none, and whether it is where such a ring closes.

    Rings of one dimension and direction are of a sort: between two of them a message takes other links.
    """
    ring, dateline = np.zeros(topology.links, np.int64), np.zeros(topology.links, np.int64)
    tail, head = topology.tail, topology.head
    between_npus = (tail < topology.npus) & (head < topology.npus)
    stride = 1
    for number, dimension in enumerate(topology.dimensions):
        size = dimension.size
        # Between two NPUs a message takes one hop: no ring closes.
        if TOPOLOGIES[dimension.topology].loop and size > 2:
            here, there = tail // stride % size, head // stride % size
            for way, step, last in ((1, 1, size - 1), (2, -1, 0)):
                # Links of other dimensions can connect NPUs at the same distance; only neighbours along this
                # dimension count.
                on = between_npus & (here != there) & (there == (here + step) % size)
                ring[on] = 2 * number + way
                # Going up the ring closes on the link out of the last NPU, going down on that out of the
                # first.
                dateline[on & (here == last)] = 1
        stride *= size
    return ring, dateline


def blocked_cycle(net: Any, pool: Any, table: Any, topology: Topology) -> list[int]:
    """Return links that wait for each other when no event is left: the buffer at the end of each is full.

    Each slot waits for the first full slot that its first packet may use, so a deadlock is a cycle of this functional
    graph. The cycle begins with its lowest link; empty if there is none.
    """
    vcs = int(table[table[lk.T_OPTIONS] + ck.O_VCS])
    wants, slots = int(net[lk.N_OWN + 1]), int(net[lk.N_OWN + 2])
    first_own = int(table[lk.T_OWN])
    own = np.asarray(table[first_own : first_own + topology.links * ck.C_COLUMNS]).reshape(-1, ck.C_COLUMNS)
    # Slots are numbered by place at their node; this maps each back to its link.
    link_of = np.repeat(np.argsort(own[:, ck.C_END], kind="stable"), vcs)
    followed = set()
    for start in range(topology.links * vcs):
        way: list[int] = []
        slot = start
        # A walk that meets a slot of an earlier walk finds no new cycle: one visit per slot is enough.
        while slot >= 0 and net[wants + slot * ck.W_COLUMNS] > 0 and slot not in followed:
            followed.add(slot)
            way.append(slot)
            packet = pool[int(net[slots + slot * ck.V_COLUMNS + ck.V_FIRST]) :][: lk.P_COLUMNS]
            row = own[int(net[wants + slot * ck.W_COLUMNS]) - 1]
            low, high = 0, vcs
            # The same halves as in `credit_kernel._channel`: the waiting packet could use only these VCs.
            if vcs > 1 and row[ck.C_RING]:
                after = packet[ck.K_CROSSED] and packet[ck.K_RING] == row[ck.C_RING]
                low, high = ((vcs + 1) // 2, vcs) if after else (0, (vcs + 1) // 2)
            full = [
                at
                for at in range(row[ck.C_END] + low, row[ck.C_END] + high)
                if net[slots + at * ck.V_COLUMNS + ck.V_CREDITS] < packet[ck.K_FLITS]
                and net[wants + at * ck.W_COLUMNS] > 0
            ]
            slot = full[0] if full else -1
        if slot in way:
            links = [int(link_of[on]) for on in way[way.index(slot) :]]
            lowest = links.index(min(links))
            return links[lowest:] + links[:lowest]
    return []
