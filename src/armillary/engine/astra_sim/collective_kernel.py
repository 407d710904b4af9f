"""Collectives on a rank: the start of their phases, evaluated at once or message by message.

`prog` is the program and `st` the state (see `layout`), `mem` the member states of message-level
phases, `heap` the events.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.astra_sim import layout as lk

phase_kernel = use("armillary.engine.astra_sim.phase_kernel")
push = use("armillary.engine.common.heap_kernel").push
rank_kernel = use("armillary.engine.astra_sim.rank_kernel")
pair_kernel = use("armillary.engine.astra_sim.pair_kernel")
route_kernel = use("armillary.engine.astra_sim.route_kernel")
enqueue = use("armillary.engine.astra_sim.order_kernel").enqueue
touch = use("armillary.engine.astra_sim.tie_kernel").touch
chain = use("armillary.engine.astra_sim.chain_kernel").chain
begin, deliver = phase_kernel.begin, phase_kernel.deliver
set_up, member_state_size = phase_kernel.set_up, phase_kernel.member_state_size
node_row, ticks_of_node, schedule_now, next_seq, CONTENTION = (
    rank_kernel.node_row,
    rank_kernel.ticks_of_node,
    rank_kernel.schedule_now,
    rank_kernel.next_seq,
    rank_kernel.CONTENTION,
)
post_send, post_recv = pair_kernel.post_send, pair_kernel.post_recv
phase_row, queue_of, cost_of, SCHEDULED = (
    route_kernel.phase_row,
    route_kernel.queue_of,
    route_kernel.cost_of,
    route_kernel.SCHEDULED,
)
count_route, count_routes, after_retained = (
    route_kernel.count_route,
    route_kernel.count_routes,
    route_kernel.after_retained,
)
arrivals, comms, costs, free_blocks = accessors(lk.ARRIVALS, lk.COMMS, lk.COST, lk.FREE)
instances, item_state, items, lines = accessors(lk.INSTANCES, lk.ITEM_STATE, lk.ITEMS, lk.LINE_ROWS)
member_states, member, members, nodes = accessors(lk.MEMBER_STATE, lk.MEMBER, lk.MEMBERS, lk.NODES)
nodes_now, ordinals, phases, plans = accessors(lk.NODE_STATE, lk.ORDINALS, lk.PHASES, lk.PLANS)
queues_now, ranks, ring_entries, rows = accessors(lk.QUEUES, lk.RANKS, lk.RING_ENTRY, lk.ROWS)
streams, route_rows = accessors(lk.STREAMS, lk.ROUTES)


@inner
def issue_part(prog, st, mem, heap, r, node, tick):
    """Start one node of a custom collective: no slot holds it back."""
    # Inner nodes have no slot: a custom collective starts all that is free at once.
    row = node_row(prog, r, node)
    nodes_now.set_node_start(st, ranks.state(prog, r) + node, tick)
    kind = nodes.kind(prog, row)
    if kind == lk.PART:
        schedule_now(prog, st, mem, heap, r, tick + ticks_of_node(prog, r, node), tick, lk.EV_NODE, r, node)
        return
    item = ranks.items(prog, r) + nodes.item(prog, row)
    if kind == lk.PART_SEND:
        post_send(prog, st, mem, heap, r, node, item, tick)
    else:
        post_recv(prog, st, mem, heap, r, node, item, tick)


@inner
def start_parts(prog, st, mem, heap, r, item, tick):
    """Start a custom collective: issue the nodes of its graph that wait for nothing."""
    item_state.set_parts_left(st, item, items.parts(prog, item))
    first_node = ranks.nodes(prog, r)
    first = items.first(prog, item)
    for node in range(first, first + items.parts(prog, item)):
        if nodes.indegree(prog, first_node + node) == 0:
            issue_part(prog, st, mem, heap, r, node, tick)


@inner
def allocate(prog, st, mem, pc, line, size):
    """Return a block of empty member states for one phase on one line; its first integer counts those running."""
    # Blocks of a line all have the same number of members, but their size depends on the phase: only a block
    # of the same cost is reused.
    count = lines.member_states(prog, line)
    block = free_blocks.block(st, line)
    if block >= 0 and member_states.cost(mem, block + 1) == pc:
        free_blocks.set_block(st, line, mem[block])
    else:
        block = st[lk.V_MEMBER_STATE]
        st[lk.V_MEMBER_STATE] += 1 + count * size
    mem[block] = count
    for i in range(count):
        position = prog[lines.position(prog, line) + i]
        set_up(mem, block + 1 + i * size, size, pc, position, block + 1, lines.index(prog, line))
        member_states.set_rank(mem, block + 1 + i * size, prog[lines.rank(prog, line) + i])
    return block


@inner
def evaluate(prog, st, mem, heap, item, chunk, p, line, pc):
    """The last member of a phase has started: schedule when each of them finishes it."""
    comm = items.comm(prog, item)
    first_member = comms.items(prog, comm) + item_state.item_instance(st, item) * comms.reps(prog, comm)
    count = lines.member_states(prog, line)
    local = lines.local(prog, line)
    positions = lines.position(prog, line)
    # The common case is that all started together: then the answer was computed when the program was lowered.
    steps = plans.phases(prog, items.plan(prog, item))
    equal = True
    for i in range(count):
        other = members.item(st, first_member + prog[local + i])
        member.set_starts(st, i, rows.start(st, items.row(prog, other) + chunk * steps + p))
        if member.starts(st, i) != member.starts(st, 0):
            equal = False
    # One row for all members, or one per position where they differ.
    if equal:
        tick = member.starts(st, 0)
        for i in range(count):
            known = costs.equal(prog, pc) + (
                0 if costs.equal_rows(prog, pc) == 1 else 3 * prog[positions + i]
            )
            member.set_ends(st, i, tick + prog[known])
            member.set_registered(st, i, tick + prog[known + 1])
            member.set_sent(st, i, tick + prog[known + 2])
    elif costs.chain(prog, pc) == 1:
        # The recurrence runs over positions: spread the starts of member states that stand for several members.
        n = lines.n(prog, line)
        for j in range(n):
            member.set_ready_at(st, j, member.starts(st, prog[lines.index(prog, line) + j]))
        # Spread through READY_AT: a start may be read again after its place was overwritten.
        for j in range(n):
            member.set_starts(st, j, member.ready_at(st, j))
        chain(prog, st, pc, n)
        # The first position of each member state stands for it.
        for i in range(count):
            j = prog[positions + i]
            member.set_ends(st, i, member.ends(st, j))
            member.set_registered(st, i, member.registered(st, j))
            member.set_sent(st, i, member.sent(st, j))
    else:
        deliver(prog, st, mem, heap, pc, lines.index(prog, line), positions, count)
    # The members' streams continue in their own queues: one event each, at the end of the phase.
    for i in range(count):
        other = members.item(st, first_member + prog[local + i])
        seq = rows.seq(st, items.row(prog, other) + chunk * steps + p)
        stream = items.stream(prog, other) + chunk
        end, registered, sent = member.ends(st, i), member.registered(st, i), member.sent(st, i)
        size = st[lk.V_HEAP]
        st[lk.V_HEAP] = push(heap, 0, size, end, registered, sent, seq, lk.EV_PHASE, stream, 0)


@inner
def start_phase(prog, st, mem, heap, r, stream, tick):
    """Start the current phase of a stream at one rank."""
    item = streams.item(st, stream)
    plan = items.plan(prog, item)
    chunk = stream - items.stream(prog, item)
    p = streams.phase(st, stream)
    here = items.row(prog, item) + chunk * plans.phases(prog, plan) + p
    # Kept for ties: the sequence number of the start decides between ends of one tick.
    rows.set_start(st, here, tick)
    rows.set_seq(st, here, next_seq(st))
    if items.parts(prog, item) > 0:
        start_parts(prog, st, mem, heap, r, item, tick)
        return
    row = phase_row(prog, st, item, chunk, p)
    entry = phases.ring(prog, row) + items.local(prog, item)
    line = ring_entries.line(prog, entry)
    comm = items.comm(prog, item)
    # Each (chunk, phase, line) of an instance has a counter of its own.
    count = comms.arrived(prog, comm) + item_state.item_instance(st, item) * comms.stride(prog, comm)
    count += chunk * plans.lines(prog, plan) + phases.line(prog, row) + line
    pc = cost_of(prog, st, item, row, chunk, p)
    if CONTENTION or prog[lk.Z_MESSAGES] == 1:
        move(prog, st, mem, heap, entry, count, pc, stream, here, tick)
    else:
        join(prog, st, mem, heap, item, chunk, p, line, count, pc)


@inner
def move(prog, st, mem, heap, entry, count, pc, stream, here, tick):
    """Start one member of a phase whose messages are moved one by one."""
    size = member_state_size(prog, pc)
    # The counter holds 1 + the block while messages are moved; the first member allocates.
    if arrivals.count(st, count) == 0:
        arrivals.set_count(st, count, 1 + allocate(prog, st, mem, pc, ring_entries.line(prog, entry), size))
    block = arrivals.count(st, count) - 1
    # The last member to finish frees the block, see `step_kernel.release`.
    member_state = block + 1 + ring_entries.place(prog, entry) * size
    member_states.set_owner(mem, member_state, stream)
    st[lk.V_HEAP] = begin(prog, st, mem, member_state, tick, rows.seq(st, here), heap, 0, st[lk.V_HEAP])


@inner
def join(prog, st, mem, heap, item, chunk, p, line, count, pc):
    """Count one member in to a phase; the last one evaluates it."""
    # Members may be at odds about the direction: that of the first one counts. Kept above the count.
    if arrivals.count(st, count) == 0:
        arrivals.set_count(st, count, pc << 24)
    arrivals.add_count(st, count, 1)
    pc = arrivals.count(st, count) >> 24
    if arrivals.count(st, count) - (pc << 24) == lines.member_states(prog, line):
        evaluate(prog, st, mem, heap, item, chunk, p, line, pc)


@inner
def start_waiting(prog, st, mem, heap, r, queue, tick):
    """Start waiting streams while the queue has room."""
    # The head of the queue starts, which need not be the stream that was just entered.
    q = r * prog[lk.Z_LEVELS] * prog[lk.Z_QUEUES] + queue
    while queues_now.running(st, q) < prog[lk.Z_LIMIT] and queues_now.head(st, q) >= 0:
        stream = queues_now.head(st, q)
        queues_now.set_head(st, q, streams.next(st, stream))
        queues_now.add_running(st, q, 1)
        start_phase(prog, st, mem, heap, r, stream, tick)


@inner
def issue_collective(prog, st, mem, heap, r, item, tick):
    """Create the streams (chunks) of one collective and enter their first phases."""
    plan = items.plan(prog, item)
    comm = items.comm(prog, item)
    chunks = items.chunks(prog, item)
    ordinal = ordinals.joined(st, items.ordinal(prog, item))
    ordinals.set_joined(st, items.ordinal(prog, item), ordinal + 1)
    # The n-th collective of each member of a communicator is the same collective: members are matched by
    # count.
    instance = comms.instance(prog, comm) + ordinal
    members.set_item(
        st, comms.items(prog, comm) + ordinal * comms.reps(prog, comm) + items.local(prog, item), item
    )
    if instances.plan(st, instance) < 0:
        instances.set_plan(st, instance, item)
    # The members disagree about what their n-th collective is: the run ends with both items named.
    elif items.plan(prog, instances.plan(st, instance)) != items.plan(prog, item):
        st[lk.V_STATUS] = lk.MISMATCH
        st[lk.V_A] = instances.plan(st, instance)
        st[lk.V_B] = item
        return
    routes = -1
    if SCHEDULED:
        routes = plans.routes(prog, plan)
        if prog[lk.Z_CARRIES] == 1:
            routes = after_retained(prog, st, r, item, plan, instance)
            if st[lk.V_STATUS] == lk.CARRIED:
                st[lk.V_A] = item
                return
        if routes >= 0 and plans.greedy(prog, plan) == 1:
            chunks = route_rows.route(prog, routes)
    item_state.set_item_instance(st, item, ordinal)
    item_state.set_item_left(st, item, chunks)
    # Nothing to move: the node ends at this tick, after what is registered before.
    if chunks == 0 or plans.phases(prog, plan) == 0:
        schedule_now(prog, st, mem, heap, r, tick, tick, lk.EV_NODE, r, items.node(prog, item))
        return
    if routes < 0:
        count_route(prog, st, r, item, plan)
    if SCHEDULED and routes >= 0:
        count_routes(prog, st, r, item, plan, routes, chunks)
    stream = items.stream(prog, item)
    # Streams are entered one by one, and each may start at once: the order of chunks is that of ASTRA-sim's
    # issue loop.
    for chunk in range(chunks):
        streams.set_item(st, stream + chunk, item)
        streams.set_phase(st, stream + chunk, 0)
        queue = queue_of(prog, st, item, chunk, 0)
        touch(prog, st, r, queue, stream, -1, tick)
        enqueue(prog, st, r, queue, stream + chunk, 0)
        start_waiting(prog, st, mem, heap, r, queue, tick)
