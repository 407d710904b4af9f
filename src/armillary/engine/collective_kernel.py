"""Point-to-point messages, queues of collective phases, and the start of phases on a rank.

`prog` is the program and `st` the state (see `layout_kernel`), `mem` the machines of message-level
phases, `heap` the events.
"""

from __future__ import annotations

from armillary.engine.layout_kernel import *
from armillary.jit import in_variant, inner, use

phase = use("armillary.engine.phase_kernel")
push = use("armillary.engine.heap_kernel").push
queue = use("armillary.engine.congestion.queue_kernel")
send_message = use("armillary.engine.congestion.link_kernel").send_message
at_rank, at_end = queue.at_rank, queue.at_end
begin, chain, deliver = phase.begin, phase.chain, phase.deliver
set_up, machine_size = phase.set_up, phase.machine_size
CONTENTION = in_variant("contention")
"""Messages wait for links (`armillary.engine.congestion`)."""
SCHEDULED = CONTENTION or in_variant("scheduled")
"""Chunks may go several ways, and queues may be in another order than first come, first served."""


@inner
def node_row(prog, r, node):
    """Return the address of a node row."""
    return prog[NODES] + (prog[prog[RANKS] + r * R_COLUMNS + R_NODES] + node) * N_COLUMNS


@inner
def phase_row(prog, st, at, chunk, p):
    """Return the address of the row of phase p of a chunk of the item at address `at`."""
    plan = prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS
    if SCHEDULED and prog[plan + PL_ROUTES] >= 0:
        here = prog[at + I_ROW] + chunk * prog[plan + PL_PHASES] + p
        return prog[PHASES] + st[st[ROW_PHASE] + here] * PH_COLUMNS
    return prog[PHASES] + (prog[plan + PL_FIRST] + p) * PH_COLUMNS


@inner
def turn_of(prog, st, at, row, chunk, p, base, count, kept):
    """Return the how-many-eth one a phase is at its queues (or trees): from its item's `base`, or as it was `kept`."""
    if SCHEDULED:
        plan = prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS
        if prog[plan + PL_ROUTES] >= 0:
            return st[st[kept] + prog[at + I_ROW] + chunk * prog[plan + PL_PHASES] + p]
    return st[st[base] + prog[at + I_BASE] + p] + chunk * prog[row + count]


@inner
def schedule(prog, st, mem, heap, r, tick, registered, sent, seq, code, a, b):
    """Put an event of rank `r` on the heap."""
    if CONTENTION:
        at_rank(prog, st, mem, heap, r, tick, code, a, b)
    else:
        st[V_HEAP] = push(heap, 0, st[V_HEAP], tick, registered, sent, seq, code, a, b)


@inner
def next_seq(st):
    """Return a new sequence number."""
    st[V_SEQ] += 1
    return st[V_SEQ]


@inner
def post_send(prog, st, mem, heap, r, node, item, tick):
    """Send a point-to-point message; under rendezvous it waits for the receive."""
    at = prog[ITEMS] + item * I_COLUMNS
    channel = prog[at + I_CHANNEL]
    number = st[st[CHANNEL] + channel * CS_COLUMNS + CS_SENT]
    st[st[CHANNEL] + channel * CS_COLUMNS + CS_SENT] = number + 1
    first = prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_FIRST]
    st[st[SEND_NODE] + first + number] = node
    inject = tick
    control = prog[at + I_CONTROL]
    if CONTENTION:
        if control < 0:
            inject_pair(prog, st, mem, heap, r, node, item, tick)
        elif st[st[CHANNEL] + channel * CS_COLUMNS + CS_CLEARED] > number:
            at_end(prog, st, mem, heap, tick, EV_GO_PAIR, r, node)
        return
    if control >= 0:
        if st[st[CHANNEL] + channel * CS_COLUMNS + CS_POSTED] <= number:
            st[st[SEND_TICK] + first + number] = tick
            return
        inject = max(tick, st[st[SEND_TICK] + first + number] + control)
    schedule(
        prog, st, mem, heap, r, inject + prog[at + I_DELAY], inject, tick, next_seq(st), EV_SEND, r, node
    )


@inner
def inject_pair(prog, st, mem, heap, r, node, item, tick):
    """Put a point-to-point message on the links."""
    at = prog[ITEMS] + item * I_COLUMNS
    to = prog[prog[CHANNELS] + prog[at + I_CHANNEL] * CN_COLUMNS + CN_RECEIVER]
    send_message(prog, st, mem, heap, r, to, prog[at + I_DELAY], EV_SEND, r, node, tick)


@inner
def clear_pair(prog, st, mem, heap, channel, tick):
    """The control message of the next receive of a channel is at the sender (rendezvous)."""
    number = st[st[CHANNEL] + channel * CS_COLUMNS + CS_CLEARED]
    st[st[CHANNEL] + channel * CS_COLUMNS + CS_CLEARED] = number + 1
    if st[st[CHANNEL] + channel * CS_COLUMNS + CS_SENT] > number:
        row = prog[CHANNELS] + channel * CN_COLUMNS
        go_pair(
            prog,
            st,
            mem,
            heap,
            prog[row + CN_SENDER],
            st[st[SEND_NODE] + prog[row + CN_FIRST] + number],
            tick,
        )


@inner
def go_pair(prog, st, mem, heap, r, node, tick):
    """Send a point-to-point message that its receiver has cleared."""
    item = prog[prog[RANKS] + r * R_COLUMNS + R_ITEMS] + prog[node_row(prog, r, node) + N_ITEM]
    inject_pair(prog, st, mem, heap, r, node, item, tick)


@inner
def post_recv(prog, st, mem, heap, r, node, item, tick):
    """Post a point-to-point receive; it completes at once if its message has arrived."""
    at = prog[ITEMS] + item * I_COLUMNS
    channel = prog[at + I_CHANNEL]
    number = st[st[CHANNEL] + channel * CS_COLUMNS + CS_POSTED]
    st[st[CHANNEL] + channel * CS_COLUMNS + CS_POSTED] = number + 1
    first = prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_FIRST]
    st[st[RECV_NODE] + first + number] = node
    control = prog[at + I_CONTROL]
    if CONTENTION:
        if st[st[CHANNEL] + channel * CS_COLUMNS + CS_ARRIVED] > number:
            at_end(prog, st, mem, heap, tick, EV_RECV, r, node)
        elif control >= 0:
            to = prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_SENDER]
            send_message(prog, st, mem, heap, r, to, control, EV_CLEAR_PAIR, channel, 0, tick)
        return
    if st[st[CHANNEL] + channel * CS_COLUMNS + CS_ARRIVED] > number:
        schedule(prog, st, mem, heap, r, tick, tick, tick, next_seq(st), EV_RECV, r, node)
    elif control >= 0 and st[st[CHANNEL] + channel * CS_COLUMNS + CS_SENT] > number:
        sent = st[st[SEND_TICK] + first + number]
        inject = max(sent, tick + control)
        sender = prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_SENDER]
        schedule(
            prog,
            st,
            mem,
            heap,
            sender,
            inject + prog[at + I_DELAY],
            inject,
            sent,
            next_seq(st),
            EV_SEND,
            sender,
            st[st[SEND_NODE] + first + number],
        )
    else:
        st[st[SEND_TICK] + first + number] = tick


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
def queue_of(prog, st, at, chunk, p):
    """Return the queue of one phase of one chunk: queues of a level are used in turn."""
    row = phase_row(prog, st, at, chunk, p)
    number = turn_of(prog, st, at, row, chunk, p, QUEUE_BASE, PH_COUNT, ROW_QUEUE)
    queues = prog[Z_QUEUES]
    family = prog[row + PH_FAMILY]
    half = queues >> 1
    if queues == 1:
        local = 0
    elif family == ALL:
        local = number % queues
    elif family == FIRST:
        local = number % half
    else:
        local = half + number % (queues - half)
    return prog[row + PH_LEVEL] * queues + local


@inner
def cost_of(prog, st, at, row, chunk, p):
    """Return the phase cost: the variant is the direction of the queue, or which of two trees."""
    if prog[row + PH_TREE] >= 0:
        number = turn_of(prog, st, at, row, chunk, p, TREE_BASE, PH_TREE_COUNT, ROW_TREE)
        variant = number & 1
    else:
        family = prog[row + PH_FAMILY]
        queues = prog[Z_QUEUES]
        variant = 1 if family == LAST else 0
        if family == ALL and queues > 1:
            number = turn_of(prog, st, at, row, chunk, p, QUEUE_BASE, PH_COUNT, ROW_QUEUE)
            variant = 1 if number % queues >= queues >> 1 else 0
    return prog[row + (PH_COST1 if variant == 1 else PH_COST0)]


@inner
def enqueue(prog, st, r, queue, stream, left):
    """Put a stream into a queue of its rank, of whose running streams `left` have ended: in turn, or as ordered."""
    q = r * prog[Z_LEVELS] * prog[Z_QUEUES] + queue
    after = st[st[QUEUE_TAIL] + q]
    if st[st[QUEUE_HEAD] + q] < 0:
        after = -1
    elif SCHEDULED and prog[Z_ORDER] != IN_TURN:
        after = place_of(prog, st, q, stream, st[st[QUEUE_RUNNING] + q] - left)
    if after < 0:
        st[st[STREAM_NEXT] + stream] = st[st[QUEUE_HEAD] + q]
        st[st[QUEUE_HEAD] + q] = stream
    else:
        st[st[STREAM_NEXT] + stream] = st[st[STREAM_NEXT] + after]
        st[st[STREAM_NEXT] + after] = stream
    if st[st[STREAM_NEXT] + stream] < 0:
        st[st[QUEUE_TAIL] + q] = stream


@inner
def row_of(prog, st, stream):
    """Return the row of the phase that a stream is in."""
    at = prog[ITEMS] + st[st[STREAM_ITEM] + stream] * I_COLUMNS
    return phase_row(prog, st, at, stream - prog[at + I_STREAM], st[st[STREAM_PHASE] + stream])


@inner
def phases_left(prog, st, stream):
    """Return how many phases of a stream come after the one it is in."""
    plan = prog[prog[ITEMS] + st[st[STREAM_ITEM] + stream] * I_COLUMNS + I_PLAN]
    return prog[prog[PLANS] + plan * PL_COLUMNS + PL_PHASES] - 1 - st[st[STREAM_PHASE] + stream]


@inner
def place_of(prog, st, q, stream, running):
    """Return the waiting stream of a queue that another one goes after, -1: before all.

    As in ASTRA-sim, streams that are equal in what they are ordered by go before those that came earlier.
    """
    order = prog[Z_ORDER]
    row = row_of(prog, st, stream)
    left = phases_left(prog, st, stream)
    if prog[row + PH_KIND] == OTHER or (order == SMALLEST and left == 1):
        return st[st[QUEUE_TAIL] + q]
    after = -1
    here = st[st[QUEUE_HEAD] + q]
    last = -1
    while here >= 0:
        there = row_of(prog, st, here)
        if order == SMALLEST:
            passes = prog[there + PH_BYTES] < prog[row + PH_BYTES]
        elif order == FEWEST_LEFT:
            passes = phases_left(prog, st, here) < left
        elif after < 0:
            # The first one that waits keeps its place behind those that run.
            passes = running > 0
        else:
            passes = last != OTHER and prog[there + PH_KIND] != OTHER and last != prog[there + PH_KIND]
        if not passes:
            break
        last = prog[there + PH_KIND]
        after = here
        here = st[st[STREAM_NEXT] + here]
    return after


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
    if SCHEDULED and prog[Z_LEADS] == 1:
        st[st[ROW_LEAD] + here] = moved_lead(prog, row, pc, st[st[LEAD] + r])
    if CONTENTION or prog[Z_MESSAGES] == 1:
        move(prog, st, mem, heap, entry, count, pc, stream, here, tick)
    else:
        join(prog, st, mem, heap, item, chunk, p, line, count, pc)


@inner
def moved_lead(prog, row, pc, lead):
    """Return the rank that is first to end a phase which `lead` is first to start."""
    stride = prog[row + PH_STRIDE]
    shift = prog[row + (PH_SHIFT0 if pc == prog[row + PH_COST0] else PH_SHIFT1)]
    place = lead // stride % prog[row + PH_MEMBERS]
    to = place ^ (-1 - shift) if shift < 0 else (place + shift) % prog[row + PH_MEMBERS]
    return lead + (to - place) * stride


@inner
def follow(st, r, lead, tick):
    """What happens first at a tick says which rank is first in all that happens in it."""
    if st[st[LEAD_TICK] + r] < tick:
        st[st[LEAD_TICK] + r] = tick
        st[st[LEAD] + r] = lead


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
        if prog[Z_LEADS] == 1:
            routes = after_kept(prog, st, r, at, plan)
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
        enqueue(prog, st, r, queue, stream + chunk, 0)
        start_waiting(prog, st, mem, heap, r, queue, tick)


@inner
def after_kept(prog, st, r, at, plan):
    """Return the routes of a collective, given whether work of an earlier one is left over.

    Rank 0 forgets that work when it starts a collective, but who starts it first chooses the routes for all.
    """
    kept = st[st[KEPT] + r]
    st[st[KEPT] + r] = -1
    if prog[plan + PL_GREEDY] == 0:
        return prog[plan + PL_ROUTES]
    if st[st[LEAD] + r] == 0:
        st[st[KEPT] + r] = prog[at + I_PLAN]
    elif kept >= 0:
        routes = prog[prog[AFTER] + prog[at + I_PLAN] * prog[Z_PLANS] + kept]
        if routes < 0:
            st[V_STATUS] = CARRIED
            st[V_B] = kept
        return routes
    return prog[plan + PL_ROUTES]


@inner
def count_ways(prog, st, r, at, plan, routes, chunks):
    """Note for each chunk of a collective which way it goes, and its turn at the queues and trees there."""
    phases = prog[plan + PL_PHASES]
    period = prog[routes]
    levels = prog[Z_LEVELS]
    own = st[COUNTERS] + r * (levels * 3 + prog[Z_TREES])
    turn = st[st[TURN] + r] if prog[plan + PL_IN_TURN] == 1 else 0
    for chunk in range(chunks):
        way = prog[routes + 1 + (turn + chunk) % period]
        for p in range(phases):
            here = prog[at + I_ROW] + chunk * phases + p
            number = prog[plan + PL_FIRST] + way * phases + p
            row = prog[PHASES] + number * PH_COLUMNS
            st[st[ROW_PHASE] + here] = number
            counter = own + prog[row + PH_LEVEL] * 3 + prog[row + PH_FAMILY]
            st[st[ROW_QUEUE] + here] = st[counter]
            st[counter] += 1
            if prog[row + PH_TREE] >= 0:
                counter = own + levels * 3 + prog[row + PH_TREE]
                st[st[ROW_TREE] + here] = st[counter]
                st[counter] += 1
    if prog[plan + PL_IN_TURN] == 1:
        st[st[TURN] + r] = (turn + chunks) % period


@inner
def count_way(prog, st, r, at, plan):
    """Note the turn of the first chunk of a collective at the queues and trees of each of its phases."""
    chunks = prog[at + I_CHUNKS]
    phases = prog[plan + PL_PHASES]
    first = prog[plan + PL_FIRST]
    base = prog[at + I_BASE]
    levels = prog[Z_LEVELS]
    own = r * (levels * 3 + prog[Z_TREES])
    for p in range(phases):
        row = prog[PHASES] + (first + p) * PH_COLUMNS
        counter = own + prog[row + PH_LEVEL] * 3 + prog[row + PH_FAMILY]
        st[st[QUEUE_BASE] + base + p] = st[st[COUNTERS] + counter] + prog[row + PH_INDEX]
        if prog[row + PH_TREE] >= 0:
            counter = own + levels * 3 + prog[row + PH_TREE]
            st[st[TREE_BASE] + base + p] = st[st[COUNTERS] + counter] + prog[row + PH_TREE_INDEX]
    for p in range(phases):
        row = prog[PHASES] + (first + p) * PH_COLUMNS
        if prog[row + PH_INDEX] == 0:
            counter = own + prog[row + PH_LEVEL] * 3 + prog[row + PH_FAMILY]
            st[st[COUNTERS] + counter] += chunks * prog[row + PH_COUNT]
        if prog[row + PH_TREE] >= 0 and prog[row + PH_TREE_INDEX] == 0:
            counter = own + levels * 3 + prog[row + PH_TREE]
            st[st[COUNTERS] + counter] += chunks * prog[row + PH_TREE_COUNT]
