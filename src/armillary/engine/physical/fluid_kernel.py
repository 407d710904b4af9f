"""The event loop of profile `physical`.

A tick has two halves: first all that ends at it (nodes, volumes, phases, messages), then all that starts:
free nodes are issued rank by rank, and lanes take their next volume and get their rates. Neither half depends on
the order of events within it, so ranks that behave alike stay alike.
"""

from __future__ import annotations

from armillary.engine.physical.fluid_layout_kernel import *
from armillary.jit import inner, njit, use

heaps = use("armillary.engine.heap_kernel")
pop, put, take = heaps.pop, heaps.put, heaps.take
choice = use("armillary.engine.physical.choice_kernel")
phase_row, must_ask, choose_all = choice.phase_row, choice.must_ask, choice.choose_all
share = use("armillary.engine.physical.share_kernel")
schedule, touch_lane, touch_ports = share.schedule, share.touch_lane, share.touch_ports
join, leave = share.join, share.leave
start_head, mark_stale, settle_ports = share.start_head, share.mark_stale, share.settle_ports


@inner
def node_row(prog, r, node):
    """Return the address of a node row."""
    return prog[NODES] + (prog[prog[RANKS] + r * R_COLUMNS + R_NODES] + node) * N_COLUMNS


@inner
def item_row(prog, r, row):
    """Return the address of the item of a node row of rank `r`."""
    return prog[ITEMS] + (prog[prog[RANKS] + r * R_COLUMNS + R_ITEMS] + prog[row + N_ITEM]) * I_COLUMNS


@inner
def touch_rank(st, r):
    """Have the rank issue what is free when the tick ends."""
    if st[st[IS_TOUCHED] + r] == 0:
        st[st[IS_TOUCHED] + r] = 1
        put(st, st[TOUCHED], st[V_TOUCHED], r)
        st[V_TOUCHED] += 1


@inner
def heap_of(prog, r, slot):
    """Return the number of a slot of rank `r` among all slots."""
    return prog[prog[RANKS] + r * R_COLUMNS + R_SLOT] + slot


@inner
def add_ready(prog, st, r, node):
    """Put a free node on the ready heap of its slot (lowest node first)."""
    number = heap_of(prog, r, prog[node_row(prog, r, node) + N_SLOT])
    ready = st[READY_SIZE] + 2 * number
    put(st, st[READY] + st[ready + 1], st[ready], node)
    st[ready] += 1


@inner
def complete_node(prog, st, r, node, tick):
    """Finish one node: free its slot and its children."""
    row = node_row(prog, r, node)
    state = prog[prog[RANKS] + r * R_COLUMNS + R_STATE]
    st[st[NODE_END] + state + node] = tick
    st[st[BUSY] + heap_of(prog, r, prog[row + N_SLOT])] = 0
    st[st[LEFT] + r] -= 1
    if st[st[LEFT] + r] == 0:
        st[st[FINISH] + r] = tick
    first = prog[row + N_CHILD]
    for i in range(first, first + prog[row + N_CHILDREN]):
        child = prog[prog[CHILDREN] + i]
        st[st[INDEGREE] + state + child] -= 1
        if st[st[INDEGREE] + state + child] == 0:
            add_ready(prog, st, r, child)
    touch_rank(st, r)


@inner
def issue_rank(prog, st, heap, r, tick):
    """Issue every free node of a rank whose slot is idle, the lowest first; slot 0 never is busy."""
    slots = prog[prog[RANKS] + r * R_COLUMNS + R_SLOTS]
    free = heap_of(prog, r, 0)
    while True:
        best = NEVER
        chosen = free
        for number in range(free, free + slots):
            ready = st[READY_SIZE] + 2 * number
            if st[ready] > 0 and (number == free or st[st[BUSY] + number] == 0):
                first = st[st[READY] + st[ready + 1]]
                if first < best:
                    best = first
                    chosen = number
        if best == NEVER:
            return
        ready = st[READY_SIZE] + 2 * chosen
        take(st, st[READY] + st[ready + 1], st[ready])
        st[ready] -= 1
        st[st[BUSY] + chosen] = 1
        issue(prog, st, heap, r, best, tick)


@inner
def issue(prog, st, heap, r, node, tick):
    """Start one node."""
    row = node_row(prog, r, node)
    kind = prog[row + N_KIND]
    st[st[NODE_START] + prog[prog[RANKS] + r * R_COLUMNS + R_STATE] + node] = tick
    if kind == SKIP:
        complete_node(prog, st, r, node, tick)
        return
    if kind == FIXED:
        schedule(st, heap, tick + prog[row + N_TICKS], EV_NODE, r, node)
        return
    at = item_row(prog, r, row)
    if kind == COLLECTIVE:
        issue_collective(prog, st, heap, r, node, at, tick)
    elif kind == MEMORY:
        server = prog[at + I_SERVER]
        start = tick
        if server >= 0:
            start = max(tick, st[st[SERVER_FREE] + server])
            st[st[SERVER_FREE] + server] = start + prog[at + I_SERVICE]
        schedule(st, heap, start + prog[at + I_SERVICE], EV_NODE, r, node)
    elif kind in (SEND, TRANSFER):
        channel = prog[at + I_CHANNEL]
        number = st[st[SENT] + channel]
        st[st[SENT] + channel] = number + 1
        row = prog[CHANNELS] + channel * CN_COLUMNS
        st[st[SEND_NODE] + prog[row + CN_FIRST] + number] = node
        lane = prog[row + CN_LANE]
        st[st[LANE_LINE] + lane] = prog[row + CN_LINE]
        st[st[LANE_ITEM] + lane] = (at - prog[ITEMS]) // I_COLUMNS
        st[st[SEND_KEY] + prog[row + CN_FIRST] + number] = order_of(prog, prog[at + I_PRIORITY], tick)
        touch_lane(st, lane)
    else:
        channel = prog[at + I_CHANNEL]
        number = st[st[POSTED] + channel]
        st[st[POSTED] + channel] = number + 1
        st[st[RECV_NODE] + prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_FIRST] + number] = node
        if st[st[CAME] + channel] > number:
            schedule(st, heap, tick, EV_NODE, r, node)


@inner
def issue_collective(prog, st, heap, r, node, at, tick):
    """Let one rank join a collective: it enters the first phase of every chunk."""
    plan = prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS
    comm = prog[COMMS] + prog[at + I_COMM] * CO_COLUMNS
    item = (at - prog[ITEMS]) // I_COLUMNS
    ordinal = st[st[ORDINALS] + prog[at + I_ORDINAL]]
    st[st[ORDINALS] + prog[at + I_ORDINAL]] = ordinal + 1
    instance = prog[comm + CO_INSTANCE] + ordinal
    members = prog[comm + CO_ITEMS] + ordinal * prog[comm + CO_REPS]
    st[st[INSTANCE_ITEM] + members + prog[at + I_LOCAL]] = item
    if st[st[INSTANCE_PLAN] + instance] < 0:
        st[st[INSTANCE_PLAN] + instance] = item
    elif prog[prog[ITEMS] + st[st[INSTANCE_PLAN] + instance] * I_COLUMNS + I_PLAN] != prog[at + I_PLAN]:
        st[V_STATUS] = MISMATCH
        st[V_A] = st[st[INSTANCE_PLAN] + instance]
        st[V_B] = item
        return
    st[st[ITEM_INSTANCE] + item] = ordinal
    chunks = prog[at + I_CHUNKS]
    st[st[ITEM_LEFT] + item] = chunks
    if chunks == 0 or prog[plan + PL_PHASES] == 0:
        schedule(st, heap, tick, EV_NODE, r, node)
        return
    for chunk in range(chunks):
        enter(prog, st, heap, item, chunk, 0, tick)


@inner
def enter(prog, st, heap, item, chunk, p, tick):
    """One rank is ready for a phase of a chunk; the last one of its line puts it on the lane."""
    if must_ask(prog, st, item, chunk, p):
        return
    at = prog[ITEMS] + item * I_COLUMNS
    plan = prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS
    comm = prog[COMMS] + prog[at + I_COMM] * CO_COLUMNS
    phases = prog[plan + PL_PHASES]
    row = prog[PHASES] + phase_row(prog, st, item, chunk, p) * PH_COLUMNS
    number = prog[prog[RING_ENTRY] + 2 * (prog[row + PH_RING] + prog[at + I_LOCAL])]
    line = prog[LINE_ROWS] + number * LN_COLUMNS
    ordinal = st[st[ITEM_INSTANCE] + item]
    count = st[ARRIVED] + prog[comm + CO_ARRIVED] + ordinal * prog[comm + CO_STRIDE]
    count += chunk * prog[plan + PL_LINES] + prog[row + PH_LINE] + number
    st[count] += 1
    if st[count] < prog[line + LN_MACHINES]:
        return
    lane = prog[comm + CO_LANE] + ordinal * prog[comm + CO_LANES] + prog[row + PH_LANE] + number
    members = prog[comm + CO_ITEMS] + ordinal * prog[comm + CO_REPS]
    first = st[st[INSTANCE_ITEM] + members + prog[prog[LINES] + prog[line + LN_LOCAL]]]
    st[st[LANE_LINE] + lane] = number
    st[st[LANE_ITEM] + lane] = first
    if st[st[LANE_KEY] + lane] == 0:
        urgent = prog[at + I_PRIORITY]
        for i in range(prog[line + LN_MACHINES]):
            other = st[st[INSTANCE_ITEM] + members + prog[prog[LINES] + prog[line + LN_LOCAL] + i]]
            urgent = min(urgent, prog[prog[ITEMS] + other * I_COLUMNS + I_PRIORITY])
        st[st[LANE_KEY] + lane] = order_of(prog, urgent, tick)
    if p + 1 >= prog[plan + PL_CHOICES]:
        st[st[LANE_LOAD] + lane] += prog[row + PH_TICKS]  # else it was when its level was chosen
    place = 0
    if prog[Z_WITHIN] == FIFO:
        place = tick
    elif prog[Z_WITHIN] == SMALLEST:
        place = prog[row + PH_VOLUME]
    insert(prog, st, lane, first, chunk * phases + p, phases, place)
    touch_lane(st, lane)


@inner
def enter_asking(prog, st, heap, tick):
    """Let those enter that waited for the choice of a level."""
    choose_all(prog, st)
    for i in range(st[V_ASKING]):
        waits = st[ASKING] + i * AS_COLUMNS
        enter(prog, st, heap, st[waits + AS_ITEM], st[waits + AS_CHUNK], st[waits + AS_PHASE], tick)
    st[V_ASKING] = 0


@inner
def order_of(prog, priority, tick):
    """Return the place of a lane in the global order: lowest is served first, 0 means none yet."""
    return priority * (1 << 50) + prog[Z_SIGN] * (tick + 1)


@inner
def before(st, places, a, b, phases):
    """Tell whether a volume comes before another in the list of its lane: by place, then phase, then chunk."""
    if st[places + a] != st[places + b]:
        return st[places + a] < st[places + b]
    if a % phases != b % phases:
        return a % phases < b % phases
    return a < b


@inner
def insert(prog, st, lane, item, key, phases, place):
    """Insert a waiting volume into a lane's list.

    Of one place, what other dimensions wait for comes first: with the lowest chunk first, a faster dimension could
    bring chunks back so early that they hold up those that have not left yet.
    """
    first = prog[prog[ITEMS] + item * I_COLUMNS + I_ROW]
    rows = st[ROW_NEXT] + first
    places = st[ROW_PLACE] + first
    st[places + key] = place
    at = st[st[LANE_QUEUE] + lane]
    if at < 0 or before(st, places, key, at, phases):
        st[rows + key] = at
        st[st[LANE_QUEUE] + lane] = key
        return
    while st[rows + at] >= 0 and before(st, places, st[rows + at], key, phases):
        at = st[rows + at]
    st[rows + key] = st[rows + at]
    st[rows + at] = key


@inner
def phase_at(prog, st, item, key):
    """Return the address of the phase of the chunk in `key`."""
    plan = prog[PLANS] + prog[prog[ITEMS] + item * I_COLUMNS + I_PLAN] * PL_COLUMNS
    phases = prog[plan + PL_PHASES]
    return prog[PHASES] + phase_row(prog, st, item, key // phases, key % phases) * PH_COLUMNS


@inner
def volume_done(prog, st, heap, lane, tick):
    """The head of a lane is through its ports; its last byte arrives after the latency."""
    key = st[st[LANE_HEAD] + lane]
    st[st[LANE_HEAD] + lane] = -1
    touch_lane(st, lane)
    item = st[st[LANE_ITEM] + lane]
    if prog[prog[LINE_ROWS] + st[st[LANE_LINE] + lane] * LN_COLUMNS + LN_MACHINES] == 0:
        channel = prog[prog[ITEMS] + item * I_COLUMNS + I_CHANNEL]
        schedule(st, heap, tick + prog[prog[ITEMS] + item * I_COLUMNS + I_LATENCY], EV_ARRIVED, channel, 0)
        return
    phase = phase_at(prog, st, item, key)
    st[st[LANE_LOAD] + lane] -= prog[phase + PH_TICKS]
    schedule(st, heap, tick + prog[phase + PH_LATENCY], EV_PHASE, lane, key)


@inner
def phase_done(prog, st, heap, lane, key, tick):
    """Every member of a line has finished a phase of a chunk: they enter the next, or end the chunk."""
    line = prog[LINE_ROWS] + st[st[LANE_LINE] + lane] * LN_COLUMNS
    at = prog[ITEMS] + st[st[LANE_ITEM] + lane] * I_COLUMNS
    comm = prog[COMMS] + prog[at + I_COMM] * CO_COLUMNS
    phases = prog[prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS + PL_PHASES]
    ordinal = st[st[ITEM_INSTANCE] + st[st[LANE_ITEM] + lane]]
    members = prog[comm + CO_ITEMS] + ordinal * prog[comm + CO_REPS]
    begun = st[st[ROW_START] + prog[at + I_ROW] + key]
    for i in range(prog[line + LN_MACHINES]):
        item = st[st[INSTANCE_ITEM] + members + prog[prog[LINES] + prog[line + LN_LOCAL] + i]]
        row = prog[ITEMS] + item * I_COLUMNS
        st[st[ROW_START] + prog[row + I_ROW] + key] = begun
        st[st[ROW_END] + prog[row + I_ROW] + key] = tick
        if key % phases + 1 < phases:
            enter(prog, st, heap, item, key // phases, key % phases + 1, tick)
        else:
            st[st[ITEM_LEFT] + item] -= 1
            if st[st[ITEM_LEFT] + item] == 0:
                complete_node(prog, st, prog[row + I_RANK], prog[row + I_NODE], tick)


@inner
def arrived(prog, st, channel, tick):
    """A point-to-point message is there: its send completes, and its receive if it is posted."""
    row = prog[CHANNELS] + channel * CN_COLUMNS
    number = st[st[CAME] + channel]
    st[st[CAME] + channel] = number + 1
    place = prog[row + CN_FIRST] + number
    complete_node(prog, st, prog[row + CN_SENDER], st[st[SEND_NODE] + place], tick)
    if st[st[POSTED] + channel] > number:
        complete_node(prog, st, prog[row + CN_RECEIVER], st[st[RECV_NODE] + place], tick)


@inner
def next_head(prog, st, lane, tick):
    """Let an idle lane take its next waiting volume, if there is one."""
    item = st[st[LANE_ITEM] + lane]
    at = prog[ITEMS] + item * I_COLUMNS
    if prog[prog[LINE_ROWS] + st[st[LANE_LINE] + lane] * LN_COLUMNS + LN_MACHINES] == 0:
        channel = prog[at + I_CHANNEL]
        number = st[st[STARTED] + channel]
        if number < st[st[SENT] + channel]:
            st[st[STARTED] + channel] = number + 1
            place = prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_FIRST] + number
            st[st[LANE_KEY] + lane] = st[st[SEND_KEY] + place]  # every message has its own place
            start_head(st, lane, 0, prog[at + I_VOLUME], tick)
        return
    key = st[st[LANE_QUEUE] + lane]
    if key >= 0:
        st[st[LANE_QUEUE] + lane] = st[st[ROW_NEXT] + prog[at + I_ROW] + key]
        st[st[ROW_START] + prog[at + I_ROW] + key] = tick  # of the whole line, see `phase_done`
        start_head(st, lane, key, prog[phase_at(prog, st, item, key) + PH_VOLUME], tick)


@inner
def issue_touched(prog, st, heap, tick):
    """Let every rank that something happened to issue its free nodes, the lowest rank first."""
    while st[V_TOUCHED] > 0:
        r = take(st, st[TOUCHED], st[V_TOUCHED])
        st[V_TOUCHED] -= 1
        st[st[IS_TOUCHED] + r] = 0
        if tick >= prog[prog[RANKS] + r * R_COLUMNS + R_DELAY]:
            issue_rank(prog, st, heap, r, tick)


@inner
def settle(prog, st, mem, heap, tick):
    """The second half of a tick: issue, start volumes, share ports."""
    issue_touched(prog, st, heap, tick)
    enter_asking(prog, st, heap, tick)
    for i in range(st[V_DIRTY]):
        lane = st[st[DIRTY] + i]
        st[st[LANE_DIRTY] + lane] = 0
        if st[st[LANE_HEAD] + lane] < 0:
            next_head(prog, st, lane, tick)
        on = st[st[LANE_ENTRY] + lane] > 0
        if st[st[LANE_HEAD] + lane] >= 0 and not on:
            join(prog, st, mem, lane)
        elif st[st[LANE_HEAD] + lane] < 0 and on:
            leave(prog, st, mem, lane)
        elif on and prog[Z_POLICY] == ORDERED:
            touch_ports(prog, st, lane)  # its place in the order may be another now
        if st[st[LANE_RESET] + lane] == 1:
            mark_stale(st, lane)
    st[V_DIRTY] = 0
    settle_ports(prog, st, mem, heap, tick)


@njit
def run(prog, st, mem, heap, budget, heap_room, entry_room):
    """Process about `budget` events; stops early for lack of room (GROW) or on an error (V_STATUS)."""
    st[V_STATUS] = OK
    while st[V_HEAP] > 0 and budget > 0:
        if st[V_HEAP] > heap_room or st[V_ENTRIES] > entry_room:
            st[V_STATUS] = GROW
            return
        tick = heap[0]
        # One event at a time while ticks last: room is checked between them, the second half comes after.
        while st[V_HEAP] > 0 and heap[0] == tick and st[V_HEAP] <= heap_room:
            code, a, b = heap[4], heap[5], heap[6]
            st[V_HEAP] = pop(heap, 0, st[V_HEAP])
            budget -= 1
            st[V_EVENTS] += 1
            if code == EV_NODE:
                complete_node(prog, st, a, b, tick)
            elif code == EV_VOLUME:
                if st[st[LANE_VERSION] + a] == b and st[st[LANE_HEAD] + a] >= 0:
                    volume_done(prog, st, heap, a, tick)
            elif code == EV_PHASE:
                phase_done(prog, st, heap, a, b, tick)
            elif code == EV_ARRIVED:
                arrived(prog, st, a, tick)
            else:
                touch_rank(st, a)
        if st[V_HEAP] == 0 or heap[0] > tick:
            settle(prog, st, mem, heap, tick)
        if st[V_STATUS] != OK:
            return
