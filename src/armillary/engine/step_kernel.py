"""The event loop: nodes of every simulated rank, queues of collective phases, messages.

`prog` is the program and `st` the state (see `layout_kernel`), `mem` the machines of message-level
phases, `heap` the events. The order of events of one rank at one tick follows ASTRA-sim's
registration order (docs/architecture.md, "Ties").
"""

from __future__ import annotations

from armillary.engine.layout_kernel import *  # noqa: F403
from armillary.jit import inner, njit, use

heaps = use("armillary.engine.heap_kernel")
phase = use("armillary.engine.phase_kernel")
bus = use("armillary.engine.bus_kernel")
push, pop = heaps.push, heaps.pop
begin, arrive, complete, finished = phase.begin, phase.arrive, phase.complete, phase.finished
set_up, machine_size = phase.set_up, phase.machine_size
chain, deliver = phase.chain, phase.deliver
bus_event, bus_go_on = bus.bus_event, bus.bus_go_on


@inner
def node_row(prog, r, node):
    """Return the address of a node row."""
    return prog[NODES] + (prog[prog[RANKS] + r * R_COLUMNS + R_NODES] + node) * N_COLUMNS


@inner
def phase_row(prog, at, p):
    """Return the address of row p of the plan of the item at address `at`."""
    return prog[PHASES] + (prog[prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS + PL_FIRST] + p) * PH_COLUMNS


@inner
def schedule(st, heap, tick, registered, sent, seq, code, a, b):
    """Put an event on the heap."""
    st[V_HEAP] = push(heap, 0, st[V_HEAP], tick, registered, sent, seq, code, a, b)


@inner
def next_seq(st):
    """Return a new sequence number."""
    st[V_SEQ] += 1
    return st[V_SEQ]


@inner
def add_ready(prog, st, r, node):
    """Put a free node on the ready heap of its slot (lowest node first)."""
    slot = prog[node_row(prog, r, node) + N_SLOT]
    base = prog[prog[RANKS] + r * R_COLUMNS + R_READY + slot]
    i = st[st[READY_SIZE] + r * 4 + slot]
    st[st[READY_SIZE] + r * 4 + slot] = i + 1
    while i > 0:
        parent = (i - 1) >> 1
        if st[st[READY] + base + parent] <= node:
            break
        st[st[READY] + base + i] = st[st[READY] + base + parent]
        i = parent
    st[st[READY] + base + i] = node


@inner
def take_ready(prog, st, r, slot):
    """Remove the lowest ready node of a slot."""
    base = prog[prog[RANKS] + r * R_COLUMNS + R_READY + slot]
    size = st[st[READY_SIZE] + r * 4 + slot] - 1
    st[st[READY_SIZE] + r * 4 + slot] = size
    last = st[st[READY] + base + size]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and st[st[READY] + base + child + 1] < st[st[READY] + base + child]:
            child += 1
        if st[st[READY] + base + child] >= last:
            break
        st[st[READY] + base + i] = st[st[READY] + base + child]
        i = child
    st[st[READY] + base + i] = last


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
            take_ready(prog, st, r, chosen)
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
        schedule(st, heap, tick + prog[row + N_TICKS], tick, tick, next_seq(st), EV_NODE, r, node)
        return
    item = prog[prog[RANKS] + r * R_COLUMNS + R_ITEMS] + prog[row + N_ITEM]
    if kind == COLLECTIVE:
        issue_collective(prog, st, mem, heap, r, item, tick)
    elif kind == MEMORY:
        # Requests of one tick are served in rank order, after everything else that happens in it.
        schedule(st, heap, tick, tick, LATE, r, EV_SERVE, r, node)
    elif kind == SEND:
        post_send(prog, st, mem, heap, r, node, item, tick)
    else:
        post_recv(prog, st, mem, heap, r, node, item, tick)


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
    if control >= 0:
        if st[st[CHANNEL] + channel * CS_COLUMNS + CS_POSTED] <= number:
            st[st[SEND_TICK] + first + number] = tick
            return
        inject = max(tick, st[st[SEND_TICK] + first + number] + control)
    schedule(st, heap, inject + prog[at + I_DELAY], inject, tick, next_seq(st), EV_SEND, r, node)


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
    if st[st[CHANNEL] + channel * CS_COLUMNS + CS_ARRIVED] > number:
        schedule(st, heap, tick, tick, tick, next_seq(st), EV_RECV, r, node)
    elif control >= 0 and st[st[CHANNEL] + channel * CS_COLUMNS + CS_SENT] > number:
        sent = st[st[SEND_TICK] + first + number]
        inject = max(sent, tick + control)
        sender = prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_SENDER]
        schedule(
            st,
            heap,
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
        schedule(st, heap, tick, tick, tick, next_seq(st), EV_PHASE, stream, 0)


@inner
def issue_part(prog, st, mem, heap, r, node, tick):
    """Start one node of a custom collective: no slot holds it back."""
    row = node_row(prog, r, node)
    st[st[NODE_START] + prog[prog[RANKS] + r * R_COLUMNS + R_STATE] + node] = tick
    kind = prog[row + N_KIND]
    if kind == PART:
        schedule(st, heap, tick + prog[row + N_TICKS], tick, tick, next_seq(st), EV_NODE, r, node)
        return
    item = prog[prog[RANKS] + r * R_COLUMNS + R_ITEMS] + prog[row + N_ITEM]
    if kind == PART_SEND:
        post_send(prog, st, mem, heap, r, node, item, tick)
    else:
        post_recv(prog, st, mem, heap, r, node, item, tick)


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
    st[st[ITEM_INSTANCE] + item] = ordinal
    st[st[ITEM_LEFT] + item] = chunks
    if chunks == 0 or prog[plan + PL_PHASES] == 0:
        schedule(st, heap, tick, tick, tick, next_seq(st), EV_NODE, r, prog[at + I_NODE])
        return
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
    stream = prog[at + I_STREAM]
    for chunk in range(chunks):
        st[st[STREAM_ITEM] + stream + chunk] = item
        st[st[STREAM_PHASE] + stream + chunk] = 0
        queue = queue_of(prog, st, item, chunk, 0)
        enqueue(prog, st, r, queue, stream + chunk)
        start_waiting(prog, st, mem, heap, r, queue, tick)


@inner
def queue_of(prog, st, item, chunk, p):
    """Return the queue of one phase of one chunk: queues of a level are used in turn."""
    at = prog[ITEMS] + item * I_COLUMNS
    row = phase_row(prog, at, p)
    number = st[st[QUEUE_BASE] + prog[at + I_BASE] + p] + chunk * prog[row + PH_COUNT]
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
def cost_of(prog, st, item, chunk, p):
    """Return the phase cost: the variant is the direction of the queue, or which of two trees."""
    at = prog[ITEMS] + item * I_COLUMNS
    row = phase_row(prog, at, p)
    if prog[row + PH_TREE] >= 0:
        number = st[st[TREE_BASE] + prog[at + I_BASE] + p] + chunk * prog[row + PH_TREE_COUNT]
        variant = number & 1
    else:
        family = prog[row + PH_FAMILY]
        queues = prog[Z_QUEUES]
        variant = 1 if family == LAST else 0
        if family == ALL and queues > 1:
            number = st[st[QUEUE_BASE] + prog[at + I_BASE] + p] + chunk * prog[row + PH_COUNT]
            variant = 1 if number % queues >= queues >> 1 else 0
    return prog[row + (PH_COST1 if variant == 1 else PH_COST0)]


@inner
def enqueue(prog, st, r, queue, stream):
    """Append a stream to a queue of its rank."""
    q = r * prog[Z_LEVELS] * prog[Z_QUEUES] + queue
    st[st[STREAM_NEXT] + stream] = -1
    if st[st[QUEUE_HEAD] + q] < 0:
        st[st[QUEUE_HEAD] + q] = stream
    else:
        st[st[STREAM_NEXT] + st[st[QUEUE_TAIL] + q]] = stream
    st[st[QUEUE_TAIL] + q] = stream


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
    row = phase_row(prog, at, p)
    entry = prog[RING_ENTRY] + 2 * (prog[row + PH_RING] + prog[at + I_LOCAL])
    line = prog[entry]
    comm = prog[COMMS] + prog[at + I_COMM] * CO_COLUMNS
    count = prog[comm + CO_ARRIVED] + st[st[ITEM_INSTANCE] + item] * prog[comm + CO_STRIDE]
    count += chunk * prog[plan + PL_LINES] + prog[row + PH_LINE] + line
    pc = cost_of(prog, st, item, chunk, p)
    if prog[Z_MESSAGES] == 1:
        size = machine_size(prog, pc)
        if st[st[ARRIVED_AT] + count] == 0:
            st[st[ARRIVED_AT] + count] = 1 + allocate(prog, st, mem, pc, line, size)
        block = st[st[ARRIVED_AT] + count] - 1
        machine = block + 1 + prog[entry + 1] * size
        mem[machine + M_OWNER] = stream
        mem[machine + M_RANK] = r
        st[V_HEAP] = begin(prog, st, mem, machine, tick, st[st[ROW_SEQ] + here], heap, 0, st[V_HEAP])
        return
    st[st[ARRIVED_AT] + count] += 1
    if st[st[ARRIVED_AT] + count] == prog[prog[LINE_ROWS] + line * LN_COLUMNS + LN_MACHINES]:
        evaluate(prog, st, mem, heap, item, chunk, p, line, pc)


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
    return block


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
        schedule(st, heap, st[ends + i], st[registered + i], st[sent + i], seq, EV_PHASE, stream, 0)


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
    queue = queue_of(prog, st, item, chunk, p)
    q = r * prog[Z_LEVELS] * prog[Z_QUEUES] + queue
    if p + 1 == phases:
        st[st[ITEM_LEFT] + item] -= 1
        if st[st[ITEM_LEFT] + item] == 0:
            # The workload goes on before the stream leaves its queue.
            complete_node(prog, st, mem, heap, r, prog[at + I_NODE], tick)
        st[st[QUEUE_RUNNING] + q] -= 1
        start_waiting(prog, st, mem, heap, r, queue, tick)
        return
    st[st[STREAM_PHASE] + stream] = p + 1
    following = queue_of(prog, st, item, chunk, p + 1)
    enqueue(prog, st, r, following, stream)
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
    row = phase_row(prog, at, st[st[STREAM_PHASE] + stream])
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
        start = max(tick, st[st[SERVER_FREE] + server])
        st[st[SERVER_FREE] + server] = start + prog[at + I_TICKS]
    schedule(st, heap, start + prog[at + I_TICKS], start, start, next_seq(st), EV_NODE, r, node)


@njit
def run(prog, st, mem, heap, budget, heap_room, machine_room):
    """Process up to `budget` events; stops early for lack of room (GROW) or on an error (V_STATUS)."""
    st[V_STATUS] = OK
    while st[V_HEAP] > 0 and budget > 0:
        if st[V_HEAP] > heap_room or st[V_MACHINE] > machine_room:
            st[V_STATUS] = GROW
            return
        tick, sent = heap[0], heap[2]
        code, a, b = heap[4], heap[5], heap[6]
        st[V_HEAP] = pop(heap, 0, st[V_HEAP])
        budget -= 1
        st[V_EVENTS] += 1
        if code == EV_PHASE:
            phase_done(prog, st, mem, heap, a, tick)
        elif code == EV_NODE or code == EV_RECV:
            complete_node(prog, st, mem, heap, a, b, tick)
        elif code == EV_BUNDLE:
            bundle_done(prog, st, mem, heap, a, tick)
        elif code == EV_MESSAGE:
            st[V_HEAP] = arrive(prog, st, mem, a, b, tick, sent, heap, 0, st[V_HEAP])
        elif code == EV_FIRE:
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
