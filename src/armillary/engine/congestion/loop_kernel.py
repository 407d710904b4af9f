"""The event loop of a network with contention; what happens on a rank is that of `step_kernel`."""

from __future__ import annotations

from armillary.engine.layout_kernel import *
from armillary.jit import inner, njit, use

queue = use("armillary.engine.congestion.queue_kernel")
links = use("armillary.engine.congestion.link_kernel")
step = use("armillary.engine.step_kernel")
phase = use("armillary.engine.phase_kernel")
bus = use("armillary.engine.bus_kernel")
collective = use("armillary.engine.collective_kernel")
drop, free_row, end_batch, at_rank = queue.drop, queue.free_row, queue.end_batch, queue.at_rank
forward, link_free = links.forward, links.link_free
phase_done, complete_node, bundle_done = step.phase_done, step.complete_node, step.bundle_done
issue_free, message_arrived = step.issue_free, step.message_arrived
arrive, receive, launch, cleared = phase.arrive, phase.receive, phase.launch, phase.cleared
bus_event, bus_go_on = bus.bus_event, bus.bus_go_on
clear_pair, go_pair = collective.clear_pair, collective.go_pair


@inner
def happen(prog, st, mem, heap, code, a, b, tick):
    """Process one event."""
    if code == EV_MESSAGE:
        st[V_HEAP] = arrive(prog, st, mem, a, b, tick, tick, heap, 0, st[V_HEAP])
    elif code == EV_BUNDLE:
        if b > 0:
            # The bundle is at the memory; it completes when it is reduced.
            at_rank(prog, st, mem, heap, mem[a + M_RANK], tick + prog[b + CH_REDUCE], EV_BUNDLE, a, 0)
        else:
            bundle_done(prog, st, mem, heap, a, tick)
    elif code == EV_PHASE:
        phase_done(prog, st, mem, heap, a, tick)
    elif code in (EV_NODE, EV_RECV):
        complete_node(prog, st, mem, heap, a, b, tick)
    elif code == EV_SEND:
        message_arrived(prog, st, mem, heap, a, b, tick)
    elif code == EV_LATE:
        st[V_HEAP] = receive(prog, st, mem, a, tick, tick, heap, 0, st[V_HEAP])
    elif code == EV_CLEAR:
        cleared(prog, st, mem, a, b, tick, heap)
    elif code == EV_GO:
        st[V_HEAP] = launch(prog, st, mem, a, b, tick, tick, heap, 0, st[V_HEAP])
    elif code == EV_CLEAR_PAIR:
        clear_pair(prog, st, mem, heap, a, tick)
    elif code == EV_GO_PAIR:
        go_pair(prog, st, mem, heap, a, b, tick)
    else:
        st[V_THROUGH] = 0
        st[V_HEAP] = bus_event(prog, st, mem, code, a, tick, heap, 0, st[V_HEAP])
        if st[V_THROUGH] > 0:
            bundle_done(prog, st, mem, heap, st[V_THROUGH], tick)
        st[V_HEAP] = bus_go_on(prog, st, mem, a, tick, heap, 0, st[V_HEAP])


@inner
def hop_done(prog, st, mem, heap, message, tick):
    """A message is at a device: its destination, or one from which it goes on."""
    if mem[message + W_AT] != mem[message + W_TO]:
        forward(prog, st, mem, heap, message, tick)
        return
    code = mem[message + W_CODE]
    a = mem[message + W_A]
    b = mem[message + W_B]
    free_row(st, mem, message)
    happen(prog, st, mem, heap, code, a, b, tick)


@inner
def run_event(prog, st, mem, heap, event, tick):
    """Process the event in a row and give the row back."""
    code = mem[event + G_CODE]
    a = mem[event + G_A]
    b = mem[event + G_B]
    free_row(st, mem, event)
    happen(prog, st, mem, heap, code, a, b, tick)


@njit
def run(prog, st, mem, heap, budget, heap_room, machine_room):
    """Process up to `budget` events; stops early for lack of room (GROW) or on an error (V_STATUS)."""
    st[V_STATUS] = OK
    while budget > 0:
        if st[V_HEAP] > heap_room or st[V_MACHINE] > machine_room:
            st[V_STATUS] = GROW
            return
        budget -= 1
        batch = st[V_BATCH]
        if batch > 0 and (st[V_HEAP] == 0 or heap[1] >= 0):
            event = mem[batch + B_HEAD]
            if event > 0:
                mem[batch + B_HEAD] = mem[event + W_NEXT]
                st[V_EVENTS] += 1
                run_event(prog, st, mem, heap, event, mem[batch + B_TICK])
            else:
                end_batch(prog, st, mem, batch)
                st[V_BATCH] = 0
        elif st[V_HEAP] > 0:
            tick = heap[0]
            if tick >= LAST_TICK:
                st[V_STATUS] = TOO_LONG
                return
            if heap[1] >= 0:
                st[V_NOW] = heap[1]
            what = heap[2]
            drop(st, heap)
            kind = what % KINDS
            what = what // KINDS
            st[V_EVENTS] += 1
            if kind == BATCH:
                st[V_BATCH] = what
            elif kind == HOP:
                hop_done(prog, st, mem, heap, what, tick)
            elif kind == FREE_LINK:
                link_free(prog, st, mem, heap, what, tick)
            elif kind == ITEM:
                run_event(prog, st, mem, heap, what, tick)
            else:
                issue_free(prog, st, mem, heap, what, tick)
        else:
            return
        if st[V_STATUS] != OK:
            return
