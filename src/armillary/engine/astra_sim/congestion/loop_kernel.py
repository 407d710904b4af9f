"""The event loop of a network with contention; what happens on a rank is that of `step_kernel`."""

from __future__ import annotations

from armillary.base.jit import inner, njit, use
from armillary.engine.common.layout_kernel import *

queue = use("armillary.engine.astra_sim.congestion.queue_kernel")
links = use("armillary.engine.astra_sim.congestion.link_kernel")
step = use("armillary.engine.astra_sim.step_kernel")
phase = use("armillary.engine.astra_sim.phase_kernel")
bus = use("armillary.engine.astra_sim.bus_kernel")
pair = use("armillary.engine.astra_sim.pair_kernel")
at_rank, forget, free_row, pop, take = queue.at_rank, queue.forget, queue.free_row, queue.pop, queue.take
forward, link_free = links.forward, links.link_free
phase_done, complete_node, bundle_done = step.phase_done, step.complete_node, step.bundle_done
issue_free, message_arrived = step.issue_free, step.message_arrived
arrive, receive, launch, cleared = phase.arrive, phase.receive, phase.launch, phase.cleared
bus_event, bus_go_on = bus.bus_event, bus.bus_go_on
clear_pair, go_pair = pair.clear_pair, pair.go_pair


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
    elif code == EV_FIRE:
        issue_free(prog, st, mem, heap, a, tick)
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
    tick = mem[st[V_NOW] + B_TICK]
    while budget > 0 and st[V_STATUS] == OK:
        if st[V_HEAP] > heap_room or st[V_MACHINE] > machine_room:
            st[V_STATUS] = GROW
            return
        budget -= 1
        st[V_EVENTS] += 1
        if st[V_ONCE] > 0:
            event = st[V_ONCE] // KINDS
            st[V_ONCE] = mem[event + W_NEXT]
            run_event(prog, st, mem, heap, event, tick)
        elif st[V_BATCH] > 0:
            event = take(mem, st[V_BATCH] + B_HEAD) // KINDS
            if event > 0:
                run_event(prog, st, mem, heap, event, tick)
            else:
                forget(prog, st, mem, st[V_BATCH])
                st[V_BATCH] = 0
                st[V_EVENTS] -= 1
        elif st[V_NOW] > 0:
            what = take(mem, st[V_NOW] + B_HEAD)
            row = what // KINDS
            kind = what % KINDS
            if what == 0:
                forget(prog, st, mem, st[V_NOW])
                st[V_NOW] = 0
                st[V_EVENTS] -= 1
            elif kind == HOP:
                hop_done(prog, st, mem, heap, row, tick)
            elif kind == FREE_LINK:
                link_free(prog, st, mem, heap, row, tick)
            elif kind == BATCH:
                st[V_BATCH] = row
                st[V_EVENTS] -= 1
            else:
                run_event(prog, st, mem, heap, row, tick)
        elif st[V_HEAP] > 0:
            st[V_EVENTS] -= 1
            st[V_NOW] = pop(st, heap)
            tick = mem[st[V_NOW] + B_TICK]
            if tick >= LAST_TICK:
                st[V_STATUS] = TOO_LONG
        else:
            return
