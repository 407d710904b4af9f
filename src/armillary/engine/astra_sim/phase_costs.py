"""Lower schedules to the integer rows that `phase_kernel` reads, one *phase cost* per distinct phase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.jit import Mode, load
from armillary.base.tables import room
from armillary.engine.astra_sim import layout as lk
from armillary.engine.astra_sim.collective import Role, Schedule
from armillary.engine.astra_sim.congestion.network import Links
from armillary.engine.common import network
from armillary.platform.model import SharedBus
from armillary.platform.network import Dimension

Ints = NDArray[np.int64]
INNER_GAP = 0.0038
"""ns per byte of the inner pair of a shared bus."""
CONTROL_BYTES = 8192
"""Size of the message with which a receiver clears a send under rendezvous."""
INTERPRETED_STEPS = 10_000
"""Up to about this many steps a phase is evaluated by the interpreted kernel."""


@dataclass(frozen=True)
class Timing:
    """What the endpoints and the wires cost: the part of a platform that phases depend on."""

    dimensions: tuple[Dimension, ...]
    local_mem_bandwidth: float
    rendezvous: bool = False
    bus: SharedBus | None = None
    local_reduction_delay: int = 1

    def reduction(self, size: Ints) -> Ints:
        """Return ns to reduce `size` bytes: one write and two reads of local memory, each truncated."""
        if self.local_mem_bandwidth <= 0:
            return np.zeros_like(size)
        # Sizes may be huge: the overflow is refused by `whole_ticks` with a message of its own.
        with np.errstate(over="ignore"):
            return 3 * network.whole_ticks(size / self.local_mem_bandwidth * 1e9, "a reduction")


@dataclass
class PhaseCosts:
    """The phase costs of a program, as one table of integers that can be moved (`relocated`)."""

    timing: Timing
    links: Links | None = None
    """With contention: the tables hold message sizes, by number, in place of delays."""
    blocks: list[Ints] = field(default_factory=list)
    addresses: list[int] = field(default_factory=list)
    """Places in the table that hold addresses."""
    length: int = 0
    widest: int = 1
    member_state: int = 0
    """Most memory that one member of a phase needs."""
    instant: bool = False
    """Only moving messages tells their turn within the tick: some message takes no time, endpoint included, or comes in
    the tick in which its receive is posted."""
    all_chains: bool = True
    """No phase needs messages to be evaluated."""
    bursts: int = 1
    """Most events that one member of a phase can have pending."""
    known: dict[Any, int] = field(default_factory=dict)
    longest: dict[int, float] = field(default_factory=dict)
    """About the ticks of each phase when all members start at once; more on a shared bus."""
    on_bus: float = 0.0

    def relocated(self, base: int) -> Ints:
        """Return the table as it reads when it starts at address `base`."""
        table = np.concatenate(self.blocks) if self.blocks else np.zeros(0, np.int64)
        table[self.addresses] += base
        return table

    def add(
        self,
        schedule: Schedule,
        size: int,
        members: Ints,
        endpoint: int,
        *,
        uniform: bool,
        on_bus: bool = True,
    ) -> int:
        """Add a phase of `size` bytes; returns its place in the table.

        Args:
            schedule: What its members do.
            size: Phase bytes D.
            members: Ranks by position.
            endpoint: Endpoint delay of a chunk step in ns.
            uniform: Every member sees the same hops to its relative peers.
            on_bus: Its chunk steps go over the shared bus, if the machine has one.
        """
        # On a uniform ring two members tell the distance; others need all ranks to have the same cost.
        key = (schedule, size, endpoint, on_bus, members[:2].tobytes() if uniform else members.tobytes())
        if key not in self.known:
            self.known[key] = self._add(schedule, size, members, endpoint, uniform, on_bus)
        return self.known[key]

    def _add(
        self, schedule: Schedule, size: int, members: Ints, endpoint: int, uniform: bool, on_bus: bool
    ) -> int:
        absolute = schedule.relative == "absolute"
        block = _Block(lk.PC_COLUMNS + len(schedule.roles) * lk.RO_COLUMNS)
        columns = []
        for i, role in enumerate(schedule.roles):
            # Messages with the same peer and size share a delay: a ring has one column instead of n - 1.
            peers, of_send = np.unique(
                np.stack([role.send_peer, role.send_div, role.send_mul]), axis=1, return_inverse=True
            )
            columns.append(peers)
            at = lk.PC_COLUMNS + i * lk.RO_COLUMNS
            self._role(block, at, schedule, i if absolute else 0, of_send.ravel(), size, endpoint, on_bus)
        rows = [self._delays(schedule, members, columns, size, control=False, uniform=uniform)]
        if self.timing.rendezvous:
            rows.append(self._delays(schedule, members, columns, size, control=True, uniform=uniform))
        # All members have the same delays: one row is kept, and equal starts give equal ends.
        shared = not absolute and all((row == row[:1]).all() for row in rows)
        retained = [row[:1] if shared else row for row in rows]
        head = block.head
        head[lk.PC_N] = schedule.n
        head[lk.PC_RELATIVE] = ("rotate", "pair", "absolute").index(schedule.relative)
        block.point(lk.PC_ROLES, lk.PC_COLUMNS)
        block.attach(lk.PC_DELAY, retained[0])
        head[lk.PC_DELAY_STRIDE] = 0 if shared else rows[0].shape[1]
        head[lk.PC_CHAIN] = int(not absolute and _one_at_a_time(schedule.roles[0]))
        if self.timing.rendezvous:
            block.attach(lk.PC_CONTROL, retained[1])
        # -1 tells the kernel that there is no rendezvous.
        else:
            head[lk.PC_CONTROL] = -1
        head[lk.PC_EQUAL_ROWS] = 1 if shared else schedule.n
        self._measure(schedule)
        # Phases that share a bus never run alone: there is nothing to know in advance.
        apart = (self.timing.bus is None or not on_bus) and self.links is None
        equal, tied = (
            _equal(block, schedule, shared) if apart else (np.zeros((schedule.n, 3), np.int64), False)
        )
        # A message and its chunk step that take no time make the order within a tick matter.
        self.instant |= tied or (endpoint == 0 and any((row == 0).any() for row in rows))
        block.attach(lk.PC_EQUAL, equal)
        at = self.length
        self.longest[at] = float(equal[:, 0].max()) if apart else self.on_bus
        self.blocks.append(block.table(at))
        self.addresses += [at + place for place in block.addresses]
        self.length += len(self.blocks[-1])
        return at

    def _measure(self, schedule: Schedule) -> None:
        receives = max(len(role.recv_peer) for role in schedule.roles)
        self.widest = max(self.widest, schedule.n)
        self.member_state = max(self.member_state, lk.M_COLUMNS + 2 * receives)
        # A chain has one chunk step, one message and one receive pending at a time.
        chain = schedule.relative != "absolute" and _one_at_a_time(schedule.roles[0])
        most = max(role.initial + len(role.send_peer) + receives for role in schedule.roles)
        self.bursts = max(self.bursts, 3 if chain else most)
        self.all_chains &= chain

    def _role(
        self,
        block: _Block,
        at: int,
        schedule: Schedule,
        me: int,
        of_send: Ints,
        size: int,
        endpoint: int,
        on_bus: bool,
    ) -> None:
        role = schedule.roles[me]
        sends, receives = len(role.send_peer), len(role.recv_peer)
        send = np.zeros((sends, lk.SE_COLUMNS), np.int64)
        send[:, lk.SE_PEER], send[:, lk.SE_DELAY] = role.send_peer, of_send
        send[:, lk.SE_DONE], send[:, lk.SE_RECEIVED] = role.send_after_done, role.send_after_received
        receive = np.zeros((receives, lk.RE_COLUMNS), np.int64)
        receive[:, lk.RE_PEER] = role.recv_peer
        receive[:, lk.RE_DONE], receive[:, lk.RE_RECEIVED] = role.recv_after_done, role.recv_after_received
        if schedule.relative == "absolute":
            # In trees a pair of members exchanges one message per direction, so the first match is the only
            # one.
            send[:, lk.SE_MATCH] = [schedule.roles[p].recv_peer.tolist().index(me) for p in role.send_peer]
            receive[:, lk.RE_MATCH] = [schedule.roles[p].send_peer.tolist().index(me) for p in role.recv_peer]
        else:
            send[:, lk.SE_MATCH], receive[:, lk.RE_MATCH] = np.arange(sends), np.arange(receives)
        charge = np.zeros((len(role.charge_reduce), lk.CH_COLUMNS), np.int64)
        charge[:, lk.CH_WAIT] = endpoint
        reduced = self.timing.reduction(size // role.charge_div * role.charge_mul)
        charge[:, lk.CH_REDUCE] = np.where(role.charge_reduce != 0, reduced, 0)
        charge[:, lk.CH_BUS], charge[:, lk.CH_REDUCES] = -1, role.charge_reduce != 0
        if self.timing.bus and on_bus:
            self._bus(charge, size // role.charge_div * role.charge_mul, role)
        block.head[at + lk.RO_INITIAL] = role.initial
        block.head[at + lk.RO_SENDS], block.head[at + lk.RO_RECEIVES] = sends, receives
        block.attach(at + lk.RO_SEND, send)
        block.attach(at + lk.RO_RECEIVE, receive)
        block.attach(at + lk.RO_CHARGE, charge)

    def _bus(self, charge: Ints, size: Ints, role: Role) -> None:
        """Fill what chunk steps of `size` bytes take on the shared bus (spec: 1(i))."""
        bus = self.timing.bus or SharedBus(0, 0, 0, 0.0)
        ticks = network.whole_ticks
        charge[:, lk.CH_BUS] = ticks(np.maximum(size - 1, 0) * bus.G, "a chunk step on the shared bus")
        charge[:, lk.CH_INNER] = ticks(np.maximum(size - 1, 0) * INNER_GAP, "a chunk step on the shared bus")
        # ASTRA-sim counts the work of a reduction in whole units of 100 bytes.
        work = (size // 100).astype(np.float64) * float(self.timing.local_reduction_delay)
        ticks(work, "a reduction on the shared bus")
        charge[:, lk.CH_PROCESS] = size // 100 * self.timing.local_reduction_delay + 50
        # A chunk step crosses either pair of ends at most four times, and waits for others that do.
        once = charge[:, [lk.CH_BUS, lk.CH_INNER, lk.CH_PROCESS]].sum(dtype=np.float64)
        # An upper estimate: it is only compared with the limit of ticks.
        self.on_bus = max(self.on_bus, 4 * once + 16.0 * len(charge) * (bus.L + bus.o + bus.g))
        charge[:, lk.CH_LOADS], charge[:, lk.CH_REDUCES] = role.charge_loads, role.charge_reduce

    def _delays(
        self,
        schedule: Schedule,
        members: Ints,
        columns: list[Ints],
        size: int,
        *,
        control: bool,
        uniform: bool,
    ) -> Ints:
        """Delays of the messages (or of the rendezvous messages the other way): (members or 1, columns)."""
        n = schedule.n
        width = max(c.shape[1] for c in columns)
        me = np.arange(1 if uniform and schedule.relative != "absolute" else n)[:, None]
        # Columns of roles differ in number: missing ones stay 0, and are divided by 1.
        peer, divide, multiply = np.zeros((3, len(columns), width), np.int64)
        for i, column in enumerate(columns):
            peer[i, : column.shape[1]], divide[i, : column.shape[1]], multiply[i, : column.shape[1]] = column
        np.maximum(divide, 1, out=divide)
        to = np.broadcast_to(schedule.peers(me, peer), (len(me), width))
        sizes = np.full_like(peer, CONTROL_BYTES) if control else size // divide * multiply
        if self.links:
            return self.links.sizes(np.broadcast_to(sizes, to.shape))
        # A control message goes the other way.
        ends = (members[to], members[me]) if control else (members[me], members[to])
        dimension, hop = network.route(self.timing.dimensions, *ends)
        return network.delay(self.timing.dimensions, dimension, hop, sizes)


class _Block:
    """One phase cost while it grows: a head of fixed size, then the tables it points to."""

    def __init__(self, head: int) -> None:
        self.head = np.zeros(head, np.int64)
        self.tables: list[Ints] = []
        self.addresses: list[int] = []
        self.length = head

    def point(self, place: int, at: int) -> None:
        """Let `place` of the head hold the address of element `at` of this block."""
        self.head[place] = at
        self.addresses.append(place)

    def attach(self, place: int, table: Ints) -> None:
        """Append a table and let `place` of the head point to it."""
        self.point(place, self.length)
        self.tables.append(np.ravel(table))
        self.length += table.size

    def table(self, base: int) -> Ints:
        """Return the block as it reads at address `base`."""
        head = self.head.copy()
        # Addresses are relative to the block until its place is known.
        head[self.addresses] += base
        return np.concatenate([head, *self.tables])


def _one_at_a_time(role: Role) -> bool:
    steps = len(role.send_peer)
    return (
        role.initial == 1
        and steps == len(role.recv_peer)
        and bool((role.send_after_done == np.arange(1, steps + 1)).all())
    )


def _equal(block: _Block, schedule: Schedule, shared: bool) -> tuple[Ints, bool]:
    """Evaluate the phase for starts all at tick 0.

    Returns:
        Rows of (finish, registered, sent), and whether the order within a tick may make a difference.
    """
    members = 1 if shared else schedule.n
    steps = len(schedule.roles[0].send_peer) * members
    chain = bool(block.head[lk.PC_CHAIN])
    # A step of the recurrence takes less than moving a message, hence the factor.
    mode: Mode = "compiled" if steps > INTERPRETED_STEPS * (4 if chain else 1) else "interpreted"
    return _evaluated(block.table, schedule, np.zeros(members, np.int64), mode)


def evaluate(
    table: Callable[[int], Ints], schedule: Schedule, starts: Ints, mode: Mode, *, messages: bool = False
) -> Ints:
    """Return rows of (finish, registered, sent), one per start, of a phase.

    Args:
        table: Gives the phase cost as it reads at an address.
        schedule: The schedule it was lowered from.
        starts: One start per position, or a single one that stands for all (which must then behave alike).
        mode: Which kernel.
        messages: Move every message even where the recurrence would do.
    """
    return _evaluated(table, schedule, starts, mode, messages=messages)[0]


def _evaluated(
    table: Callable[[int], Ints], schedule: Schedule, starts: Ints, mode: Mode, *, messages: bool = False
) -> tuple[Ints, bool]:
    """Return `evaluate`, and whether the order within a tick may make a difference."""
    n, members = schedule.n, len(starts)
    line = np.zeros(n, np.int64) if members == 1 else np.arange(n)
    # Positions of the line, then one position per member state.
    lines = np.concatenate([line, np.arange(members)])
    prog, base = lk.PROGRAM.program({"LINES": lines, "COSTS": table}, mode)
    st, _ = lk.STATE.lay_out(dict.fromkeys(lk.SCRATCH, n), {}, mode)
    at = st[lk.STATE.places["STARTS"]]
    for i, start in enumerate(starts.tolist()):
        st[at + i] = start
    pc = base["COSTS"]
    if prog[pc + lk.PC_CHAIN] and not messages:
        load("armillary.engine.astra_sim.chain_kernel", mode).chain(prog, st, pc, members)
    else:
        costs = members * (lk.M_COLUMNS + 2 * max(len(role.recv_peer) for role in schedule.roles))
        pending = members * (
            2 + sum(max(getattr(r, c).size for r in schedule.roles) for c in ("send_peer", "recv_peer"))
        )
        heap = room((pending + members) * lk.HEAP_COLUMNS, mode)
        line_at = base["LINES"]
        kernel = load("armillary.engine.astra_sim.phase_kernel", mode)
        kernel.deliver(prog, st, room(costs, mode), heap, pc, line_at, line_at + n, members)
    places = [st[lk.STATE.places[name]] for name in ("ENDS", "REGISTERED", "SENT")]
    columns = [st[place : place + members] for place in places]
    return np.array(columns, np.int64).T, bool(st[lk.V_TIED])
