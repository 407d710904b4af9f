"""Collectives on a rank: the start of their phases, evaluated at once or message by message.

`prog` is the program and `st` the state (see `layout_kernel`), `mem` the machines of message-level
phases, `heap` the events.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.common.layout_kernel import *

phase = use("armillary.engine.astra_sim.phase_kernel")
push = use("armillary.engine.common.heap_kernel").push
rank = use("armillary.engine.astra_sim.rank_kernel")
pair = use("armillary.engine.astra_sim.pair_kernel")
way = use("armillary.engine.astra_sim.way_kernel")
enqueue = use("armillary.engine.astra_sim.order_kernel").enqueue
touch = use("armillary.engine.astra_sim.tie_kernel").touch
begin, chain, deliver = phase.begin, phase.chain, phase.deliver
set_up, machine_size = phase.set_up, phase.machine_size
node_row, schedule, next_seq, CONTENTION = rank.node_row, rank.schedule, rank.next_seq, rank.CONTENTION
post_send, post_recv = pair.post_send, pair.post_recv
phase_row, queue_of, cost_of, SCHEDULED = way.phase_row, way.queue_of, way.cost_of, way.SCHEDULED
count_way, count_ways, after_kept = way.count_way, way.count_ways, way.after_kept


@inner
def issue_part(prog, st, mem, heap, r, node, tick):
    """Start one node of a custom collective: no slot holds it back."""
    row = node_row(prog, r, node)
    st[st[NODE_START] + prog[prog[RANKS] + r * R_COLUMNS + R_STATE] + node] = tick
    kind = prog[row + N_KIND]
    if kind == PART:
        schedule(
            prog, st, mem, heap, r, tick + prog[row + N_TICKS], tick, tick, next_seq(st), EV_NODE, r, node
        )
        return
    item = prog[prog[RANKS] + r * R_COLUMNS + R_ITEMS] + prog[row + N_ITEM]
    if kind == PART_SEND:
        post_send(prog, st, mem, heap, r, node, item, tick)
    else:
        post_recv(prog, st, mem, heap, r, node, item, tick)


@inner
def start_parts(prog, st, mem, heap, r, item, tick):
    """Start a custom collective: issue the nodes of its graph that wait for nothing."""
    at = prog[ITEMS] + item * I_COLUMNS
    st[st[PARTS_LEFT] + item] = prog[at + I_PARTS]
    nodes = prog[prog[RANKS] + r * R_COLUMNS + R_NODES]
    first = prog[at + I_FIRST]
    for node in range(first, first + prog[at + I_PARTS]):
        if prog[prog[NODES] + (nodes + node) * N_COLUMNS + N_INDEGREE] == 0:
            issue_part(prog, st, mem, heap, r, node, tick)


@inner
def allocate(prog, st, mem, pc, line, size):
    """Return a block of empty machines for one phase on one line; its first integer counts those running."""
    row = prog[LINE_ROWS] + line * LN_COLUMNS
    machines = prog[row + LN_MACHINES]
    block = st[st[FREE] + line]
    if block >= 0 and mem[block + 1 + M_COST] == pc:
        st[st[FREE] + line] = mem[block]
    else:
        block = st[V_MACHINE]
        st[V_MACHINE] += 1 + machines * size
    mem[block] = machines
    for i in range(machines):
        position = prog[prog[row + LN_POSITION] + i]
        set_up(mem, block + 1 + i * size, size, pc, position, block + 1, prog[row + LN_INDEX])
        mem[block + 1 + i * size + M_RANK] = prog[prog[row + LN_RANK] + i]
    return block


@inner
def evaluate(prog, st, mem, heap, item, chunk, p, line, pc):
    """The last member of a phase has started: schedule when each of them finishes it."""
    at = prog[ITEMS] + item * I_COLUMNS
    comm = prog[COMMS] + prog[at + I_COMM] * CO_COLUMNS
    members = prog[comm + CO_ITEMS] + st[st[ITEM_INSTANCE] + item] * prog[comm + CO_REPS]
    row = prog[LINE_ROWS] + line * LN_COLUMNS
    machines = prog[row + LN_MACHINES]
    local = prog[row + LN_LOCAL]
    positions = prog[row + LN_POSITION]
    phases = prog[prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS + PL_PHASES]
    starts, ends, registered, sent = st[STARTS], st[ENDS], st[REGISTERED], st[SENT]
    equal = True
    for i in range(machines):
        other = prog[ITEMS] + st[st[INSTANCE_ITEM] + members + prog[local + i]] * I_COLUMNS
        st[starts + i] = st[st[ROW_START] + prog[other + I_ROW] + chunk * phases + p]
        if st[starts + i] != st[starts]:
            equal = False
    if equal:
        tick = st[starts]
        for i in range(machines):
            known = prog[pc + PC_EQUAL] + (0 if prog[pc + PC_EQUAL_ROWS] == 1 else 3 * prog[positions + i])
            st[ends + i] = tick + prog[known]
            st[registered + i] = tick + prog[known + 1]
            st[sent + i] = tick + prog[known + 2]
    elif prog[pc + PC_CHAIN] == 1:
        # The recurrence runs over positions: spread the starts of machines that stand for several.
        n = prog[row + LN_N]
        for j in range(n):
            st[st[READY_AT] + j] = st[starts + prog[prog[row + LN_INDEX] + j]]
        for j in range(n):
            st[starts + j] = st[st[READY_AT] + j]
        chain(prog, st, pc, n)
        for i in range(machines):
            j = prog[positions + i]
            st[ends + i] = st[ends + j]
            st[registered + i] = st[registered + j]
            st[sent + i] = st[sent + j]
    else:
        deliver(prog, st, mem, heap, pc, prog[row + LN_INDEX], positions, machines)
    for i in range(machines):
        other = prog[ITEMS] + st[st[INSTANCE_ITEM] + members + prog[local + i]] * I_COLUMNS
        seq = st[st[ROW_SEQ] + prog[other + I_ROW] + chunk * phases + p]
        stream = prog[other + I_STREAM] + chunk
        st[V_HEAP] = push(
            heap, 0, st[V_HEAP], st[ends + i], st[registered + i], st[sent + i], seq, EV_PHASE, stream, 0
        )


@inner
def start_phase(prog, st, mem, heap, r, stream, tick):
    """Start the current phase of a stream at one rank."""
    item = st[st[STREAM_ITEM] + stream]
    at = prog[ITEMS] + item * I_COLUMNS
    plan = prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS
    chunk = stream - prog[at + I_STREAM]
    p = st[st[STREAM_PHASE] + stream]
    here = prog[at + I_ROW] + chunk * prog[plan + PL_PHASES] + p
    st[st[ROW_START] + here] = tick
    st[st[ROW_SEQ] + here] = next_seq(st)
    if prog[at + I_PARTS] > 0:
        start_parts(prog, st, mem, heap, r, item, tick)
        return
    row = phase_row(prog, st, at, chunk, p)
    entry = prog[RING_ENTRY] + 2 * (prog[row + PH_RING] + prog[at + I_LOCAL])
    line = prog[entry]
    comm = prog[COMMS] + prog[at + I_COMM] * CO_COLUMNS
    count = prog[comm + CO_ARRIVED] + st[st[ITEM_INSTANCE] + item] * prog[comm + CO_STRIDE]
    count += chunk * prog[plan + PL_LINES] + prog[row + PH_LINE] + line
    pc = cost_of(prog, st, at, row, chunk, p)
    if CONTENTION or prog[Z_MESSAGES] == 1:
        move(prog, st, mem, heap, entry, count, pc, stream, here, tick)
    else:
        join(prog, st, mem, heap, item, chunk, p, line, count, pc)


@inner
def move(prog, st, mem, heap, entry, count, pc, stream, here, tick):
    """Start one member of a phase whose messages are moved one by one."""
    size = machine_size(prog, pc)
    if st[st[ARRIVED_AT] + count] == 0:
        st[st[ARRIVED_AT] + count] = 1 + allocate(prog, st, mem, pc, prog[entry], size)
    block = st[st[ARRIVED_AT] + count] - 1
    machine = block + 1 + prog[entry + 1] * size
    mem[machine + M_OWNER] = stream
    st[V_HEAP] = begin(prog, st, mem, machine, tick, st[st[ROW_SEQ] + here], heap, 0, st[V_HEAP])


@inner
def join(prog, st, mem, heap, item, chunk, p, line, count, pc):
    """Count one member in to a phase; the last one evaluates it."""
    # Members may be at odds about the direction: that of the first one counts. Kept above the count.
    if st[st[ARRIVED_AT] + count] == 0:
        st[st[ARRIVED_AT] + count] = pc << 24
    st[st[ARRIVED_AT] + count] += 1
    pc = st[st[ARRIVED_AT] + count] >> 24
    if st[st[ARRIVED_AT] + count] - (pc << 24) == prog[prog[LINE_ROWS] + line * LN_COLUMNS + LN_MACHINES]:
        evaluate(prog, st, mem, heap, item, chunk, p, line, pc)


@inner
def start_waiting(prog, st, mem, heap, r, queue, tick):
    """Start waiting streams while the queue has room."""
    q = r * prog[Z_LEVELS] * prog[Z_QUEUES] + queue
    while st[st[QUEUE_RUNNING] + q] < prog[Z_LIMIT] and st[st[QUEUE_HEAD] + q] >= 0:
        stream = st[st[QUEUE_HEAD] + q]
        st[st[QUEUE_HEAD] + q] = st[st[STREAM_NEXT] + stream]
        st[st[QUEUE_RUNNING] + q] += 1
        start_phase(prog, st, mem, heap, r, stream, tick)


@inner
def issue_collective(prog, st, mem, heap, r, item, tick):
    """Create the streams (chunks) of one collective and enter their first phases."""
    at = prog[ITEMS] + item * I_COLUMNS
    plan = prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS
    comm = prog[COMMS] + prog[at + I_COMM] * CO_COLUMNS
    chunks = prog[at + I_CHUNKS]
    ordinal = st[st[ORDINALS] + prog[at + I_ORDINAL]]
    st[st[ORDINALS] + prog[at + I_ORDINAL]] = ordinal + 1
    instance = prog[comm + CO_INSTANCE] + ordinal
    st[st[INSTANCE_ITEM] + prog[comm + CO_ITEMS] + ordinal * prog[comm + CO_REPS] + prog[at + I_LOCAL]] = item
    if st[st[INSTANCE_PLAN] + instance] < 0:
        st[st[INSTANCE_PLAN] + instance] = item
    elif prog[prog[ITEMS] + st[st[INSTANCE_PLAN] + instance] * I_COLUMNS + I_PLAN] != prog[at + I_PLAN]:
        st[V_STATUS] = MISMATCH
        st[V_A] = st[st[INSTANCE_PLAN] + instance]
        st[V_B] = item
        return
    routes = -1
    if SCHEDULED:
        routes = prog[plan + PL_ROUTES]
        if prog[Z_CARRIES] == 1:
            routes = after_kept(prog, st, r, at, plan, instance)
            if st[V_STATUS] == CARRIED:
                st[V_A] = item
                return
        if routes >= 0 and prog[plan + PL_GREEDY] == 1:
            chunks = prog[prog[ROUTES] + routes]
    st[st[ITEM_INSTANCE] + item] = ordinal
    st[st[ITEM_LEFT] + item] = chunks
    if chunks == 0 or prog[plan + PL_PHASES] == 0:
        schedule(prog, st, mem, heap, r, tick, tick, tick, next_seq(st), EV_NODE, r, prog[at + I_NODE])
        return
    if routes < 0:
        count_way(prog, st, r, at, plan)
    if SCHEDULED and routes >= 0:
        count_ways(prog, st, r, at, plan, prog[ROUTES] + routes, chunks)
    stream = prog[at + I_STREAM]
    for chunk in range(chunks):
        st[st[STREAM_ITEM] + stream + chunk] = item
        st[st[STREAM_PHASE] + stream + chunk] = 0
        queue = queue_of(prog, st, at, chunk, 0)
        touch(prog, st, r, queue, stream, -1, tick)
        enqueue(prog, st, r, queue, stream + chunk, 0)
        start_waiting(prog, st, mem, heap, r, queue, tick)
