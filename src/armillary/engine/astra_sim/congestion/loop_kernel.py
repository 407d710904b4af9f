"""The event loop of a network with contention; what happens on a rank is that of `step_kernel`."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, njit, use
from armillary.engine.astra_sim import layout as lk

queue_kernel = use("armillary.engine.astra_sim.congestion.queue_kernel")
link_kernel = use("armillary.engine.astra_sim.congestion.link_kernel")
step_kernel = use("armillary.engine.astra_sim.step_kernel")
phase_kernel = use("armillary.engine.astra_sim.phase_kernel")
bus_kernel = use("armillary.engine.astra_sim.bus_kernel")
pair_kernel = use("armillary.engine.astra_sim.pair_kernel")
at_rank, forget, free_row, pop, take = (
    queue_kernel.at_rank,
    queue_kernel.forget,
    queue_kernel.free_row,
    queue_kernel.pop,
    queue_kernel.take,
)
forward, link_free = link_kernel.forward, link_kernel.link_free
phase_done, complete_node, chunk_step_done = (
    step_kernel.phase_done,
    step_kernel.complete_node,
    step_kernel.chunk_step_done,
)
issue_free, message_arrived = step_kernel.issue_free, step_kernel.message_arrived
arrive, receive, launch, cleared = (
    phase_kernel.arrive,
    phase_kernel.receive,
    phase_kernel.launch,
    phase_kernel.cleared,
)
bus_event, bus_go_on = bus_kernel.bus_event, bus_kernel.bus_go_on
clear_pair, go_pair = pair_kernel.clear_pair, pair_kernel.go_pair
charges, pending_rows, hops, member_states, tasks = accessors(
    lk.CHARGE, lk.PENDING, lk.HOPS, lk.MEMBER_STATE, lk.TASK
)


@inner
def happen(prog, st, mem, heap, code, a, b, tick):
    """Process one event."""
    if code == lk.EV_MESSAGE:
        st[lk.V_HEAP] = arrive(prog, st, mem, a, b, tick, tick, heap, 0, st[lk.V_HEAP])
    elif code == lk.EV_CHUNK_STEP:
        # b is the charge of a reduction that has still to run; see `phase_kernel.insert`.
        if b > 0:
            # The chunk step is at the memory; it completes when it is reduced.
            at_rank(
                prog,
                st,
                mem,
                heap,
                member_states.rank(mem, a),
                tick + charges.reduce(prog, b),
                lk.EV_CHUNK_STEP,
                a,
                0,
            )
        else:
            chunk_step_done(prog, st, mem, heap, a, tick)
    elif code == lk.EV_FIRE:
        issue_free(prog, st, mem, heap, a, tick)
    elif code == lk.EV_PHASE:
        phase_done(prog, st, mem, heap, a, tick)
    elif code in (lk.EV_NODE, lk.EV_RECV):
        complete_node(prog, st, mem, heap, a, b, tick)
    elif code == lk.EV_SEND:
        message_arrived(prog, st, mem, heap, a, b, tick)
    elif code == lk.EV_LATE:
        st[lk.V_HEAP] = receive(prog, st, mem, a, tick, tick, heap, 0, st[lk.V_HEAP])
    elif code == lk.EV_CLEAR:
        cleared(prog, st, mem, a, b, tick, heap)
    elif code == lk.EV_GO:
        st[lk.V_HEAP] = launch(prog, st, mem, a, b, tick, tick, heap, 0, st[lk.V_HEAP])
    elif code == lk.EV_CLEAR_PAIR:
        clear_pair(prog, st, mem, heap, a, tick)
    elif code == lk.EV_GO_PAIR:
        go_pair(prog, st, mem, heap, a, b, tick)
    else:
        st[lk.V_THROUGH] = 0
        st[lk.V_HEAP] = bus_event(prog, st, mem, code, a, tick, heap, 0, st[lk.V_HEAP])
        if st[lk.V_THROUGH] > 0:
            chunk_step_done(prog, st, mem, heap, st[lk.V_THROUGH], tick)
        st[lk.V_HEAP] = bus_go_on(prog, st, mem, a, tick, heap, 0, st[lk.V_HEAP])


@inner
def hop_done(prog, st, mem, heap, message, tick):
    """A message is at a device: its destination, or one that forwards it."""
    if hops.at(mem, message) != hops.to(mem, message):
        forward(prog, st, mem, heap, message, tick)
        return
    code = hops.code(mem, message)
    a = hops.a(mem, message)
    b = hops.b(mem, message)
    # Freed before the event runs: what it sends may reuse the row.
    free_row(st, mem, message)
    happen(prog, st, mem, heap, code, a, b, tick)


@inner
def run_event(prog, st, mem, heap, event, tick):
    """Process the event in a row and give the row back."""
    code = tasks.code(mem, event)
    a = tasks.a(mem, event)
    b = tasks.b(mem, event)
    free_row(st, mem, event)
    happen(prog, st, mem, heap, code, a, b, tick)


@njit
def run(prog, st, mem, heap, budget, heap_room, member_state_room):
    """Process up to `budget` events; stops early for lack of room (GROW) or on an error (V_STATUS)."""
    st[lk.V_STATUS] = lk.OK
    tick = pending_rows.tick(mem, st[lk.V_NOW])
    while budget > 0 and st[lk.V_STATUS] == lk.OK:
        if st[lk.V_HEAP] > heap_room or st[lk.V_MEMBER_STATE] > member_state_room:
            st[lk.V_STATUS] = lk.GROW
            return
        budget -= 1
        st[lk.V_EVENTS] += 1
        # What cannot wait comes right after the event that caused it.
        if st[lk.V_ONCE] > 0:
            event = st[lk.V_ONCE] // lk.KINDS
            st[lk.V_ONCE] = hops.next(mem, event)
            run_event(prog, st, mem, heap, event, tick)
        # A batch runs to its end before the rest of its tick.
        elif st[lk.V_BATCH] > 0:
            event = take(mem, pending_rows.at_head(mem, st[lk.V_BATCH])) // lk.KINDS
            if event > 0:
                run_event(prog, st, mem, heap, event, tick)
            else:
                forget(prog, st, mem, st[lk.V_BATCH])
                st[lk.V_BATCH] = 0
                # Finding a list empty is no event.
                st[lk.V_EVENTS] -= 1
        elif st[lk.V_NOW] > 0:
            what = take(mem, pending_rows.at_head(mem, st[lk.V_NOW]))
            row = what // lk.KINDS
            kind = what % lk.KINDS
            if what == 0:
                forget(prog, st, mem, st[lk.V_NOW])
                st[lk.V_NOW] = 0
                st[lk.V_EVENTS] -= 1
            elif kind == lk.HOP:
                hop_done(prog, st, mem, heap, row, tick)
            elif kind == lk.FREE_LINK:
                link_free(prog, st, mem, heap, row, tick)
            elif kind == lk.BATCH:
                st[lk.V_BATCH] = row
                st[lk.V_EVENTS] -= 1
            else:
                run_event(prog, st, mem, heap, row, tick)
        # The tick is done: the next one comes from the heap.
        elif st[lk.V_HEAP] > 0:
            st[lk.V_EVENTS] -= 1
            st[lk.V_NOW] = pop(st, heap)
            tick = pending_rows.tick(mem, st[lk.V_NOW])
            if tick >= lk.LAST_TICK:
                st[lk.V_STATUS] = lk.TOO_LONG
        else:
            return
