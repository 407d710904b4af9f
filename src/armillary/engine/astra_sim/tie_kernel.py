"""Whether what came first within a tick made a difference that only the messages of all ranks tell: V_TIED.

ASTRA-sim takes the events of a tick in the order in which they were registered, all events of one rank in a row.
So of two events on a rank the one that was registered at an earlier tick comes first, except for point-to-point
messages, which arrive on their own: those that left before the other event was registered may come before or after it.
The order of events that were registered at the same tick is unknown here, unless `together` decides it. Where two such
events do not meet, in a queue of streams, at a slot of their rank or at a memory, their order has no effect.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import in_variant, inner, use
from armillary.engine.astra_sim import layout as lk

route_kernel = use("armillary.engine.astra_sim.route_kernel")
phase_row, queue_of, cost_of = route_kernel.phase_row, route_kernel.queue_of, route_kernel.cost_of
comms, completed, item_state, items = accessors(lk.COMMS, lk.COMPLETED, lk.ITEM_STATE, lk.ITEMS)
lines, members, phases, plans = accessors(lk.LINE_ROWS, lk.MEMBERS, lk.PHASES, lk.PLANS)
ready_size, ring_entries, rows, servers = accessors(lk.READY_SIZE, lk.RING_ENTRY, lk.ROWS, lk.SERVERS)
streams, touches = accessors(lk.STREAMS, lk.TOUCH)
LISTED = in_variant("contention")
"""Events are in the order in which they were registered: there is nothing to tell."""


@inner
def touch(prog, st, r, queue, stream, p, tick):
    """Note that a queue changes since phase `p` of a stream has ended (-1: since a node has); compare with before.

    Of two events of a tick that were registered at different ticks the order is known, and of the ends of two phases
    that took the same route at the same time: messages do not overtake each other there.
    """
    # One tie that matters is enough: nothing more needs to be known.
    if LISTED or st[lk.V_TIED] == 1:
        return
    at = r * prog[lk.Z_LEVELS] * prog[lk.Z_QUEUES] + queue
    registered = st[lk.V_REGISTERED]
    if touches.tick(st, at) == tick and touches.registered(st, at) == registered:
        before = touches.stream(st, at)
        if before != stream and (not together(prog, st, before, touches.phase(st, at), stream, p)):
            st[lk.V_TIED] = 1
    touches.set_tick(st, at, tick)
    touches.set_registered(st, at, registered)
    touches.set_stream(st, at, stream)
    touches.set_phase(st, at, p)


@inner
def together(prog, st, one, p, other, q):
    """Tell whether all members began phase `p` of a stream and phase `q` of another in turn, at the same ticks each."""
    item = streams.item(st, one)
    # Ends of nodes, and chunks of different collectives, have no phase to compare.
    if p < 0 or q < 0 or streams.item(st, other) != item:
        return False
    first = one - items.stream(prog, item)
    second = other - items.stream(prog, item)
    row = phase_row(prog, st, item, first, p)
    if queue_of(prog, st, item, first, p) != queue_of(prog, st, item, second, q):
        return False
    beside = phase_row(prog, st, item, second, q)
    # Other costs mean other directions or sizes: one may overtake the other.
    if cost_of(prog, st, item, row, first, p) != cost_of(prog, st, item, beside, second, q):
        return False
    comm = items.comm(prog, item)
    first_member = comms.items(prog, comm) + item_state.item_instance(st, item) * comms.reps(prog, comm)
    line = ring_entries.line(prog, phases.ring(prog, row) + items.local(prog, item))
    steps = plans.phases(prog, items.plan(prog, item))
    for i in range(lines.member_states(prog, line)):
        member = members.item(st, first_member + prog[lines.local(prog, line) + i])
        here = items.row(prog, member) + first * steps + p
        there = items.row(prog, member) + second * steps + q
        # Equal starts alone are not enough: the order of starts must be the same on every member.
        if rows.start(st, here) != rows.start(st, there):
            return False
        if rows.seq(st, here) > rows.seq(st, there):
            return False
    return True


@inner
def doubt(prog, st, r, kind, tick):
    """Note that a node of a kind completes; V_DOUBT: another one did, and might as well have been the second."""
    if LISTED:
        return
    pair = 1 if kind in (lk.SEND, lk.RECV) else 0
    st[lk.V_DOUBT] = 0
    if completed.tick(st, r) == tick:
        # Registered at one tick, or a message that may have come earlier: the two could be swapped.
        if completed.registered(st, r) == st[lk.V_REGISTERED] or (completed.pair(st, r) == 1 and pair == 0):
            st[lk.V_DOUBT] = 1
            # A node that was skipped before it deferred its children to this completion.
            if completed.skipped(st, r) == 1:
                st[lk.V_TIED] = 1
    # The first completion of a tick starts a new record.
    else:
        for slot in range(lk.NONE):
            completed.set_fresh(st, r, slot, 0)
            completed.set_issued(st, r, slot, 0)
        completed.set_skipped(st, r, 0)
        completed.set_pair(st, r, 0)
    completed.set_tick(st, r, tick)
    completed.set_registered(st, r, st[lk.V_REGISTERED])
    completed.set_pair(st, r, max(completed.pair(st, r), pair))


@inner
def freed(prog, st, r, slot):
    """A completion frees a node: in doubt it matters if one before it has taken its slot."""
    if LISTED or slot == lk.NONE:
        return
    # In the other order this node would have competed for the slot.
    if st[lk.V_DOUBT] == 1 and completed.issued(st, r, slot) == 1:
        st[lk.V_TIED] = 1
    completed.set_fresh(st, r, slot, 1)


@inner
def taken(prog, st, r, slot, skipped):
    """A node takes its slot: in doubt it matters if others wait, and some have done so since this tick only."""
    if LISTED:
        return
    if skipped:
        completed.set_skipped(st, r, 1)
        if st[lk.V_DOUBT] == 1:
            st[lk.V_TIED] = 1
    if slot == lk.NONE:
        return
    # Others wait for the slot that this node takes: in the other order one of them might have it.
    if st[lk.V_DOUBT] == 1 and completed.fresh(st, r, slot) == 1 and (ready_size.waiting(st, r, slot) > 0):
        st[lk.V_TIED] = 1
    completed.set_issued(st, r, slot, 1)


@inner
def served(prog, st, r, server, tick):
    """A memory that others share gets a request: who is first matters to all, and is known at the start only."""
    if LISTED:
        return
    # At tick 0 all ranks issue in rank order, which is known; what follows a node that took no time comes later.
    late = 1 if tick > 0 or completed.tick(st, r) == tick else 0
    before = servers.served_at(st, server)
    if before >> 1 == tick and (late == 1 or before & 1 == 1):
        st[lk.V_TIED] = 1
    servers.set_served_at(st, server, tick << 1 | late)
