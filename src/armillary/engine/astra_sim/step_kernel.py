"""The event loop: nodes and slots of every simulated rank, and what each event does.

`prog` is the program and `st` the state (see `layout`), `mem` the member states of message-level
phases, `heap` the events. The order of events of one rank at one tick follows ASTRA-sim's
registration order (see `armillary.engine.astra_sim`).
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, njit, use
from armillary.engine.astra_sim import layout as lk
from armillary.engine.common import layout as common

heap_kernel = use("armillary.engine.common.heap_kernel")
pop, put, take = heap_kernel.pop, heap_kernel.put, heap_kernel.take
phase_kernel = use("armillary.engine.astra_sim.phase_kernel")
bus_kernel = use("armillary.engine.astra_sim.bus_kernel")
rank_kernel = use("armillary.engine.astra_sim.rank_kernel")
pair_kernel = use("armillary.engine.astra_sim.pair_kernel")
route_kernel = use("armillary.engine.astra_sim.route_kernel")
enqueue = use("armillary.engine.astra_sim.order_kernel").enqueue
tie_kernel = use("armillary.engine.astra_sim.tie_kernel")
touch, doubt, freed, taken, served = (
    tie_kernel.touch,
    tie_kernel.doubt,
    tie_kernel.freed,
    tie_kernel.taken,
    tie_kernel.served,
)
collective_kernel = use("armillary.engine.astra_sim.collective_kernel")
at_once = use("armillary.engine.astra_sim.congestion.queue_kernel").at_once
arrive, complete, finished, receive = (
    phase_kernel.arrive,
    phase_kernel.complete,
    phase_kernel.finished,
    phase_kernel.receive,
)
bus_event, bus_go_on = bus_kernel.bus_event, bus_kernel.bus_go_on
schedule, schedule_now, node_row, ticks_of_node, CONTENTION = (
    rank_kernel.schedule,
    rank_kernel.schedule_now,
    rank_kernel.node_row,
    rank_kernel.ticks_of_node,
    rank_kernel.CONTENTION,
)
post_send, post_recv = pair_kernel.post_send, pair_kernel.post_recv
phase_row, queue_of, SCHEDULED = route_kernel.phase_row, route_kernel.queue_of, route_kernel.SCHEDULED
issue_part, issue_collective = collective_kernel.issue_part, collective_kernel.issue_collective
start_waiting = collective_kernel.start_waiting
busy, channel_state, channels, children = accessors(lk.BUSY, lk.CHANNEL, lk.CHANNELS, lk.CHILDREN)
deferred, events, free_blocks, item_state = accessors(lk.DEFERRED, common.EVENT, lk.FREE, lk.ITEM_STATE)
items, member_states, messages, nodes = accessors(lk.ITEMS, lk.MEMBER_STATE, lk.MESSAGES, lk.NODES)
nodes_now, phases, plans, queues_now = accessors(lk.NODE_STATE, lk.PHASES, lk.PLANS, lk.QUEUES)
rank_state, ranks, ready, ready_size = accessors(lk.RANK_STATE, lk.RANKS, lk.READY, lk.READY_SIZE)
ring_entries, rows, servers, streams = accessors(lk.RING_ENTRY, lk.ROWS, lk.SERVERS, lk.STREAMS)


@inner
def add_ready(prog, st, r, node):
    """Put a free node on the ready heap of its slot (lowest node first)."""
    slot = nodes.slot(prog, node_row(prog, r, node))
    put(st, ready.at_node(st, ranks.ready(prog, r, slot)), ready_size.waiting(st, r, slot), node)
    ready_size.add_waiting(st, r, slot, 1)


@inner
def issue_free(prog, st, mem, heap, r, tick):
    """Issue every free node whose slot is idle, lowest node first."""
    while True:
        st[lk.V_DEFERRED] = 0
        while True:
            best = -1
            chosen = 0
            # Four heaps, one per slot: the lowest node over all slots that are free is issued next. Slot NONE
            # is always free.
            for slot in range(4):
                if ready_size.waiting(st, r, slot) > 0 and (slot == lk.NONE or busy.slot(st, r, slot) == 0):
                    node = ready.node(st, ranks.ready(prog, r, slot))
                    if best < 0 or node < best:
                        best = node
                        chosen = slot
            if best < 0:
                # Nothing is free: look at what skipped nodes left.
                break
            take(st, ready.at_node(st, ranks.ready(prog, r, chosen)), ready_size.waiting(st, r, chosen))
            ready_size.add_waiting(st, r, chosen, -1)
            taken(prog, st, r, chosen, nodes.kind(prog, node_row(prog, r, best)) == lk.SKIP)
            issue(prog, st, mem, heap, r, best, chosen, tick)
        for i in range(st[lk.V_DEFERRED]):
            add_ready(prog, st, r, deferred.node(st, i))
        # Children of a skipped node wait for the rank's next completion; if none will come, go on.
        if st[lk.V_DEFERRED] == 0 or rank_state.flying(st, r) > 0:
            break


@inner
def finish(st, r, tick):
    """A rank has no node left: note when, and how many did so before."""
    rank_state.set_finish(st, r, tick)
    st[lk.V_FINISHERS] += 1
    rank_state.set_finisher(st, r, st[lk.V_FINISHERS])


@inner
def issue(prog, st, mem, heap, r, node, slot, tick):
    """Start one node."""
    row = node_row(prog, r, node)
    state = ranks.state(prog, r)
    kind = nodes.kind(prog, row)
    nodes_now.set_node_start(st, state + node, tick)
    # A skipped node ends at once, but its children become ready only after this round of issues.
    if kind == lk.SKIP:
        nodes_now.set_node_end(st, state + node, tick)
        rank_state.add_left(st, r, -1)
        if rank_state.left(st, r) == 0:
            finish(st, r, tick)
        first = nodes.child(prog, row)
        for i in range(first, first + nodes.children(prog, row)):
            child = children.node(prog, i)
            nodes_now.add_indegree(st, state + child, -1)
            if nodes_now.indegree(st, state + child) == 0:
                deferred.set_node(st, st[lk.V_DEFERRED], child)
                st[lk.V_DEFERRED] += 1
        return
    rank_state.add_flying(st, r, 1)
    # Control nodes occupy no slot.
    if slot != lk.NONE:
        busy.set_slot(st, r, slot, 1)
    if kind == lk.FIXED:
        schedule_now(prog, st, mem, heap, r, tick + ticks_of_node(prog, r, node), tick, lk.EV_NODE, r, node)
        return
    item = ranks.items(prog, r) + nodes.item(prog, row)
    if kind == lk.COLLECTIVE:
        issue_collective(prog, st, mem, heap, r, item, tick)
    elif kind == lk.MEMORY:
        if CONTENTION:
            serve(prog, st, mem, heap, r, node, tick)
        else:
            # Requests of one tick are served in rank order, after everything else that happens in it.
            schedule(prog, st, mem, heap, r, tick, tick, lk.LATE, r, lk.EV_SERVE, r, node)
    elif kind == lk.SEND:
        post_send(prog, st, mem, heap, r, node, item, tick)
    else:
        post_recv(prog, st, mem, heap, r, node, item, tick)


@inner
def message_arrived(prog, st, mem, heap, r, node, tick):
    """A point-to-point message is at its destination: the send completes, then the receive."""
    row = node_row(prog, r, node)
    item = ranks.items(prog, r) + nodes.item(prog, row)
    channel = items.channel(prog, item)
    number = channel_state.arrived(st, channel)
    channel_state.set_arrived(st, channel, number + 1)
    # The sender first, as in ASTRA-sim: what it issues at this tick comes before what the receiver does.
    complete_node(prog, st, mem, heap, r, node, tick)
    # The receive is not posted: it completes when it is, see `pair_kernel.post_recv`.
    if channel_state.posted(st, channel) > number:
        receiver = channels.receiver(prog, channel)
        complete_node(
            prog,
            st,
            mem,
            heap,
            receiver,
            messages.recv_node(st, channels.first(prog, channel) + number),
            tick,
        )


@inner
def complete_node(prog, st, mem, heap, r, node, tick):
    """Finish one node: free its slot and its children, then issue what is free."""
    row = node_row(prog, r, node)
    state = ranks.state(prog, r)
    nodes_now.set_node_end(st, state + node, tick)
    slot = nodes.slot(prog, row)
    first = nodes.child(prog, row)
    # A node of a custom collective: it has no slot, and the rank does not count it.
    if slot == lk.INNER:
        complete_part(prog, st, mem, heap, r, row, tick)
        return
    doubt(prog, st, r, nodes.kind(prog, row), tick)
    rank_state.add_flying(st, r, -1)
    if slot != lk.NONE:
        busy.set_slot(st, r, slot, 0)
    rank_state.add_left(st, r, -1)
    # The finish of a rank is the end of its last node.
    if rank_state.left(st, r) == 0:
        finish(st, r, tick)
    for i in range(first, first + nodes.children(prog, row)):
        child = children.node(prog, i)
        nodes_now.add_indegree(st, state + child, -1)
        if nodes_now.indegree(st, state + child) == 0:
            freed(prog, st, r, nodes.slot(prog, node_row(prog, r, child)))
            add_ready(prog, st, r, child)
    issue_free(prog, st, mem, heap, r, tick)


@inner
def complete_part(prog, st, mem, heap, r, row, tick):
    """Finish one node of a custom collective: free its children; the last one ends the phase."""
    state = ranks.state(prog, r)
    first = nodes.child(prog, row)
    for i in range(first, first + nodes.children(prog, row)):
        child = children.node(prog, i)
        nodes_now.add_indegree(st, state + child, -1)
        if nodes_now.indegree(st, state + child) == 0:
            issue_part(prog, st, mem, heap, r, child, tick)
    # Its collective: the item of a computation, kept in place of the ticks of a message.
    owner = nodes.item(prog, row)
    if nodes.kind(prog, row) != lk.PART:
        owner = ticks_of_node(prog, r, row - node_row(prog, r, 0))
    item = ranks.items(prog, r) + owner
    item_state.add_parts_left(st, item, -1)
    if item_state.parts_left(st, item) == 0:
        stream = items.stream(prog, item)
        # The phase ends within this tick, before what else is registered for it.
        if CONTENTION:
            at_once(st, mem, lk.EV_PHASE, stream, 0)
        else:
            schedule_now(prog, st, mem, heap, r, tick, tick, lk.EV_PHASE, stream, 0)


@inner
def phase_done(prog, st, mem, heap, stream, tick):
    """One rank has finished the current phase of a stream: enter the next one, or end the stream."""
    item = streams.item(st, stream)
    r = items.rank(prog, item)
    chunk = stream - items.stream(prog, item)
    p = streams.phase(st, stream)
    steps = plans.phases(prog, items.plan(prog, item))
    rows.set_end(st, items.row(prog, item) + chunk * steps + p, tick)
    queue = queue_of(prog, st, item, chunk, p)
    q = r * prog[lk.Z_LEVELS] * prog[lk.Z_QUEUES] + queue
    if SCHEDULED and prog[lk.Z_ORDER] != lk.IN_TURN:
        # Where a stream goes in may depend on how many run and wait.
        touch(prog, st, r, queue, stream, p, tick)
    if p + 1 == steps:
        item_state.add_item_left(st, item, -1)
        if item_state.item_left(st, item) == 0:
            # The workload goes on before the stream leaves its queue.
            complete_node(prog, st, mem, heap, r, items.node(prog, item), tick)
        # Only now has the stream left the queue: what the workload issued above has been queued behind it.
        queues_now.add_running(st, q, -1)
        start_waiting(prog, st, mem, heap, r, queue, tick)
        return
    streams.set_phase(st, stream, p + 1)
    following = queue_of(prog, st, item, chunk, p + 1)
    touch(prog, st, r, following, stream, p, tick)
    # In a queue that it comes back to it does not run any more, but has not yet given up its place.
    enqueue(prog, st, r, following, stream, 1 if following == queue else 0)
    queues_now.add_running(st, q, -1)
    start_waiting(prog, st, mem, heap, r, queue, tick)
    start_waiting(prog, st, mem, heap, r, following, tick)


@inner
def chunk_step_done(prog, st, mem, heap, member_state, tick):
    """A chunk step of a message-level phase has completed."""
    st[lk.V_HEAP] = complete(prog, st, mem, member_state, tick, heap, 0, st[lk.V_HEAP])
    if finished(prog, mem, member_state):
        block = member_states.block(mem, member_state) - 1
        # The block counts members that run: the last one frees it.
        stream = member_states.owner(mem, member_state)
        mem[block] -= 1
        if mem[block] == 0:
            release(prog, st, mem, block, stream)
        phase_done(prog, st, mem, heap, stream, tick)


@inner
def release(prog, st, mem, block, stream):
    """Return the member states of a finished phase to the free list of its line."""
    item = streams.item(st, stream)
    row = phase_row(prog, st, item, stream - items.stream(prog, item), streams.phase(st, stream))
    line = ring_entries.line(prog, phases.ring(prog, row) + items.local(prog, item))
    mem[block] = free_blocks.block(st, line)
    free_blocks.set_block(st, line, block)


@inner
def serve(prog, st, mem, heap, r, node, tick):
    """Give a request to its memory server, first come first served."""
    row = node_row(prog, r, node)
    at = ranks.items(prog, r) + nodes.item(prog, row)
    server = items.server(prog, at)
    start = tick
    # A memory of its own serves any number of requests at once.
    if server >= 0:
        served(prog, st, r, server, tick)
        start = max(tick, servers.server_free(st, server))
        servers.set_server_free(st, server, start + items.ticks(prog, at))
    schedule_now(prog, st, mem, heap, r, start + items.ticks(prog, at), start, lk.EV_NODE, r, node)


@njit
def run(prog, st, mem, heap, budget, heap_room, member_state_room):
    """Process up to `budget` events; stops early for lack of room (GROW) or on an error (V_STATUS)."""
    st[lk.V_STATUS] = lk.OK
    while st[lk.V_HEAP] > 0 and budget > 0:
        if st[lk.V_HEAP] > heap_room or st[lk.V_MEMBER_STATE] > member_state_room:
            st[lk.V_STATUS] = lk.GROW
            return
        tick, registered, sent = events.tick(heap, 0), events.registered(heap, 0), events.sent(heap, 0)
        code, a, b = events.code(heap, 0), events.a(heap, 0), events.b(heap, 0)
        st[lk.V_HEAP] = pop(heap, 0, st[lk.V_HEAP])
        budget -= 1
        st[lk.V_EVENTS] += 1
        # Tie rules compare it with the event before.
        st[lk.V_REGISTERED] = registered
        if code == lk.EV_PHASE:
            phase_done(prog, st, mem, heap, a, tick)
        elif code in (lk.EV_NODE, lk.EV_RECV):
            complete_node(prog, st, mem, heap, a, b, tick)
        elif code == lk.EV_CHUNK_STEP:
            chunk_step_done(prog, st, mem, heap, a, tick)
        elif code == lk.EV_MESSAGE:
            st[lk.V_HEAP] = arrive(prog, st, mem, a, b, tick, sent, heap, 0, st[lk.V_HEAP])
        elif code == lk.EV_FIRE:
            # The first event of a rank: nothing can have come before it.
            st[lk.V_DOUBT] = 0
            issue_free(prog, st, mem, heap, a, tick)
        elif code == lk.EV_LATE:
            st[lk.V_HEAP] = receive(prog, st, mem, a, tick, b, heap, 0, st[lk.V_HEAP])
        elif code >= lk.EV_BUS_SENT:
            st[lk.V_THROUGH] = 0
            st[lk.V_HEAP] = bus_event(prog, st, mem, code, a, tick, heap, 0, st[lk.V_HEAP])
            if st[lk.V_THROUGH] > 0:
                chunk_step_done(prog, st, mem, heap, st[lk.V_THROUGH], tick)
            st[lk.V_HEAP] = bus_go_on(prog, st, mem, a, tick, heap, 0, st[lk.V_HEAP])
        elif code == lk.EV_SEND:
            message_arrived(prog, st, mem, heap, a, b, tick)
        else:
            serve(prog, st, mem, heap, a, b, tick)
        if st[lk.V_STATUS] != lk.OK:
            return
