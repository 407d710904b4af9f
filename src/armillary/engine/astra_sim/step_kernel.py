"""The event loop: nodes and slots of every simulated rank, and what each event does.

`prog` is the program and `st` the state (see `layout_kernel`), `mem` the machines of message-level
phases, `heap` the events. The order of events of one rank at one tick follows ASTRA-sim's
registration order (docs/architecture.md, "Ties").
"""

from __future__ import annotations

from armillary.base.jit import inner, njit, use
from armillary.engine.common.layout_kernel import *

heaps = use("armillary.engine.common.heap_kernel")
pop, put, take = heaps.pop, heaps.put, heaps.take
phase = use("armillary.engine.astra_sim.phase_kernel")
bus = use("armillary.engine.astra_sim.bus_kernel")
rank = use("armillary.engine.astra_sim.rank_kernel")
pair = use("armillary.engine.astra_sim.pair_kernel")
way = use("armillary.engine.astra_sim.way_kernel")
enqueue = use("armillary.engine.astra_sim.order_kernel").enqueue
tie = use("armillary.engine.astra_sim.tie_kernel")
touch, doubt, freed, taken, served = tie.touch, tie.doubt, tie.freed, tie.taken, tie.served
collective = use("armillary.engine.astra_sim.collective_kernel")
at_once = use("armillary.engine.astra_sim.congestion.queue_kernel").at_once
arrive, complete, finished = phase.arrive, phase.complete, phase.finished
bus_event, bus_go_on = bus.bus_event, bus.bus_go_on
schedule, next_seq, node_row, CONTENTION = rank.schedule, rank.next_seq, rank.node_row, rank.CONTENTION
post_send, post_recv = pair.post_send, pair.post_recv
phase_row, queue_of, SCHEDULED = way.phase_row, way.queue_of, way.SCHEDULED
issue_part, issue_collective = collective.issue_part, collective.issue_collective
start_waiting = collective.start_waiting


@inner
def add_ready(prog, st, r, node):
    """Put a free node on the ready heap of its slot (lowest node first)."""
    slot = prog[node_row(prog, r, node) + N_SLOT]
    size = st[READY_SIZE] + r * 4 + slot
    put(st, st[READY] + prog[prog[RANKS] + r * R_COLUMNS + R_READY + slot], st[size], node)
    st[size] += 1


@inner
def issue_free(prog, st, mem, heap, r, tick):
    """Issue every free node whose slot is idle, lowest node first."""
    while True:
        st[V_DEFERRED] = 0
        while True:
            best = -1
            chosen = 0
            for slot in range(4):
                if st[st[READY_SIZE] + r * 4 + slot] > 0 and (
                    slot == NONE or st[st[BUSY] + r * 3 + slot] == 0
                ):
                    node = st[st[READY] + prog[prog[RANKS] + r * R_COLUMNS + R_READY + slot]]
                    if best < 0 or node < best:
                        best = node
                        chosen = slot
            if best < 0:
                break
            size = st[READY_SIZE] + r * 4 + chosen
            take(st, st[READY] + prog[prog[RANKS] + r * R_COLUMNS + R_READY + chosen], st[size])
            st[size] -= 1
            taken(prog, st, r, chosen, prog[node_row(prog, r, best) + N_KIND] == SKIP)
            issue(prog, st, mem, heap, r, best, chosen, tick)
        for i in range(st[V_DEFERRED]):
            add_ready(prog, st, r, st[st[DEFERRED] + i])
        # Children of a skipped node wait for the rank's next completion; if none will come, go on.
        if st[V_DEFERRED] == 0 or st[st[FLYING] + r] > 0:
            break


@inner
def issue(prog, st, mem, heap, r, node, slot, tick):
    """Start one node."""
    row = node_row(prog, r, node)
    state = prog[prog[RANKS] + r * R_COLUMNS + R_STATE]
    kind = prog[row + N_KIND]
    st[st[NODE_START] + state + node] = tick
    if kind == SKIP:
        st[st[NODE_END] + state + node] = tick
        st[st[LEFT] + r] -= 1
        if st[st[LEFT] + r] == 0:
            st[st[FINISH] + r] = tick
        first = prog[row + N_CHILD]
        for i in range(first, first + prog[row + N_CHILDREN]):
            child = prog[prog[CHILDREN] + i]
            st[st[INDEGREE] + state + child] -= 1
            if st[st[INDEGREE] + state + child] == 0:
                st[st[DEFERRED] + st[V_DEFERRED]] = child
                st[V_DEFERRED] += 1
        return
    st[st[FLYING] + r] += 1
    if slot != NONE:
        st[st[BUSY] + r * 3 + slot] = 1
    if kind == FIXED:
        schedule(
            prog, st, mem, heap, r, tick + prog[row + N_TICKS], tick, tick, next_seq(st), EV_NODE, r, node
        )
        return
    item = prog[prog[RANKS] + r * R_COLUMNS + R_ITEMS] + prog[row + N_ITEM]
    if kind == COLLECTIVE:
        issue_collective(prog, st, mem, heap, r, item, tick)
    elif kind == MEMORY:
        if CONTENTION:
            serve(prog, st, mem, heap, r, node, tick)
        else:
            # Requests of one tick are served in rank order, after everything else that happens in it.
            schedule(prog, st, mem, heap, r, tick, tick, LATE, r, EV_SERVE, r, node)
    elif kind == SEND:
        post_send(prog, st, mem, heap, r, node, item, tick)
    else:
        post_recv(prog, st, mem, heap, r, node, item, tick)


@inner
def message_arrived(prog, st, mem, heap, r, node, tick):
    """A point-to-point message is at its destination: the send completes, then the receive."""
    row = node_row(prog, r, node)
    item = prog[prog[RANKS] + r * R_COLUMNS + R_ITEMS] + prog[row + N_ITEM]
    channel = prog[prog[ITEMS] + item * I_COLUMNS + I_CHANNEL]
    number = st[st[CHANNEL] + channel * CS_COLUMNS + CS_ARRIVED]
    st[st[CHANNEL] + channel * CS_COLUMNS + CS_ARRIVED] = number + 1
    complete_node(prog, st, mem, heap, r, node, tick)
    if st[st[CHANNEL] + channel * CS_COLUMNS + CS_POSTED] > number:
        receiver = prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_RECEIVER]
        complete_node(
            prog,
            st,
            mem,
            heap,
            receiver,
            st[st[RECV_NODE] + prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_FIRST] + number],
            tick,
        )


@inner
def complete_node(prog, st, mem, heap, r, node, tick):
    """Finish one node: free its slot and its children, then issue what is free."""
    row = node_row(prog, r, node)
    state = prog[prog[RANKS] + r * R_COLUMNS + R_STATE]
    st[st[NODE_END] + state + node] = tick
    slot = prog[row + N_SLOT]
    first = prog[row + N_CHILD]
    if slot == INNER:
        complete_part(prog, st, mem, heap, r, row, tick)
        return
    doubt(prog, st, r, prog[row + N_KIND], tick)
    st[st[FLYING] + r] -= 1
    if slot != NONE:
        st[st[BUSY] + r * 3 + slot] = 0
    st[st[LEFT] + r] -= 1
    if st[st[LEFT] + r] == 0:
        st[st[FINISH] + r] = tick
    for i in range(first, first + prog[row + N_CHILDREN]):
        child = prog[prog[CHILDREN] + i]
        st[st[INDEGREE] + state + child] -= 1
        if st[st[INDEGREE] + state + child] == 0:
            freed(prog, st, r, prog[node_row(prog, r, child) + N_SLOT])
            add_ready(prog, st, r, child)
    issue_free(prog, st, mem, heap, r, tick)


@inner
def complete_part(prog, st, mem, heap, r, row, tick):
    """Finish one node of a custom collective: free its children; the last one ends the phase."""
    state = prog[prog[RANKS] + r * R_COLUMNS + R_STATE]
    first = prog[row + N_CHILD]
    for i in range(first, first + prog[row + N_CHILDREN]):
        child = prog[prog[CHILDREN] + i]
        st[st[INDEGREE] + state + child] -= 1
        if st[st[INDEGREE] + state + child] == 0:
            issue_part(prog, st, mem, heap, r, child, tick)
    # Its collective: the item of a computation, kept in place of the ticks of a message.
    owner = prog[row + (N_ITEM if prog[row + N_KIND] == PART else N_TICKS)]
    item = prog[prog[RANKS] + r * R_COLUMNS + R_ITEMS] + owner
    st[st[PARTS_LEFT] + item] -= 1
    if st[st[PARTS_LEFT] + item] == 0:
        stream = prog[prog[ITEMS] + item * I_COLUMNS + I_STREAM]
        if CONTENTION:
            at_once(st, mem, EV_PHASE, stream, 0)
        else:
            schedule(prog, st, mem, heap, r, tick, tick, tick, next_seq(st), EV_PHASE, stream, 0)


@inner
def phase_done(prog, st, mem, heap, stream, tick):
    """One rank has finished the current phase of a stream: enter the next one, or end the stream."""
    item = st[st[STREAM_ITEM] + stream]
    at = prog[ITEMS] + item * I_COLUMNS
    r = prog[at + I_RANK]
    chunk = stream - prog[at + I_STREAM]
    p = st[st[STREAM_PHASE] + stream]
    phases = prog[prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS + PL_PHASES]
    st[st[ROW_END] + prog[at + I_ROW] + chunk * phases + p] = tick
    queue = queue_of(prog, st, at, chunk, p)
    q = r * prog[Z_LEVELS] * prog[Z_QUEUES] + queue
    if SCHEDULED and prog[Z_ORDER] != IN_TURN:
        # Where a stream goes in may depend on how many run and wait.
        touch(prog, st, r, queue, stream, p, tick)
    if p + 1 == phases:
        st[st[ITEM_LEFT] + item] -= 1
        if st[st[ITEM_LEFT] + item] == 0:
            # The workload goes on before the stream leaves its queue.
            complete_node(prog, st, mem, heap, r, prog[at + I_NODE], tick)
        st[st[QUEUE_RUNNING] + q] -= 1
        start_waiting(prog, st, mem, heap, r, queue, tick)
        return
    st[st[STREAM_PHASE] + stream] = p + 1
    following = queue_of(prog, st, at, chunk, p + 1)
    touch(prog, st, r, following, stream, p, tick)
    # In a queue that it comes back to it does not run any more, but has not yet given up its place.
    enqueue(prog, st, r, following, stream, 1 if following == queue else 0)
    st[st[QUEUE_RUNNING] + q] -= 1
    start_waiting(prog, st, mem, heap, r, queue, tick)
    start_waiting(prog, st, mem, heap, r, following, tick)


@inner
def bundle_done(prog, st, mem, heap, machine, tick):
    """A bundle of a message-level phase has completed."""
    st[V_HEAP] = complete(prog, st, mem, machine, tick, heap, 0, st[V_HEAP])
    if finished(prog, mem, machine):
        block = mem[machine + M_BLOCK] - 1
        stream = mem[machine + M_OWNER]
        mem[block] -= 1
        if mem[block] == 0:
            release(prog, st, mem, block, stream)
        phase_done(prog, st, mem, heap, stream, tick)


@inner
def release(prog, st, mem, block, stream):
    """Give the machines of a finished phase back to the free list of its line."""
    item = st[st[STREAM_ITEM] + stream]
    at = prog[ITEMS] + item * I_COLUMNS
    row = phase_row(prog, st, at, stream - prog[at + I_STREAM], st[st[STREAM_PHASE] + stream])
    line = prog[prog[RING_ENTRY] + 2 * (prog[row + PH_RING] + prog[at + I_LOCAL])]
    mem[block] = st[st[FREE] + line]
    st[st[FREE] + line] = block


@inner
def serve(prog, st, mem, heap, r, node, tick):
    """Give a request to its memory server, first come first served."""
    row = node_row(prog, r, node)
    at = prog[ITEMS] + (prog[prog[RANKS] + r * R_COLUMNS + R_ITEMS] + prog[row + N_ITEM]) * I_COLUMNS
    server = prog[at + I_SERVER]
    start = tick
    if server >= 0:
        served(prog, st, server, tick)
        start = max(tick, st[st[SERVER_FREE] + server])
        st[st[SERVER_FREE] + server] = start + prog[at + I_TICKS]
    schedule(prog, st, mem, heap, r, start + prog[at + I_TICKS], start, start, next_seq(st), EV_NODE, r, node)


@njit
def run(prog, st, mem, heap, budget, heap_room, machine_room):
    """Process up to `budget` events; stops early for lack of room (GROW) or on an error (V_STATUS)."""
    st[V_STATUS] = OK
    while st[V_HEAP] > 0 and budget > 0:
        if st[V_HEAP] > heap_room or st[V_MACHINE] > machine_room:
            st[V_STATUS] = GROW
            return
        tick, registered, sent = heap[0], heap[1], heap[2]
        code, a, b = heap[4], heap[5], heap[6]
        st[V_HEAP] = pop(heap, 0, st[V_HEAP])
        budget -= 1
        st[V_EVENTS] += 1
        st[V_REGISTERED] = registered
        if code == EV_PHASE:
            phase_done(prog, st, mem, heap, a, tick)
        elif code in (EV_NODE, EV_RECV):
            complete_node(prog, st, mem, heap, a, b, tick)
        elif code == EV_BUNDLE:
            bundle_done(prog, st, mem, heap, a, tick)
        elif code == EV_MESSAGE:
            st[V_HEAP] = arrive(prog, st, mem, a, b, tick, sent, heap, 0, st[V_HEAP])
        elif code == EV_FIRE:
            st[V_DOUBT] = 0
            issue_free(prog, st, mem, heap, a, tick)
        elif code >= EV_BUS_SENT:
            st[V_THROUGH] = 0
            st[V_HEAP] = bus_event(prog, st, mem, code, a, tick, heap, 0, st[V_HEAP])
            if st[V_THROUGH] > 0:
                bundle_done(prog, st, mem, heap, st[V_THROUGH], tick)
            st[V_HEAP] = bus_go_on(prog, st, mem, a, tick, heap, 0, st[V_HEAP])
        elif code == EV_SEND:
            message_arrived(prog, st, mem, heap, a, b, tick)
        else:
            serve(prog, st, mem, heap, a, b, tick)
        if st[V_STATUS] != OK:
            return
