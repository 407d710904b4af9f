"""The start of free nodes, rank by rank: what each asks for."""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.physical.fluid_layout_kernel import *

heaps = use("armillary.engine.common.heap_kernel")
take = heaps.take
share = use("armillary.engine.physical.share_kernel")
schedule, touch_lane, room_for = share.schedule, share.touch_lane, share.room_for
ranks = use("armillary.engine.physical.rank_kernel")
node_row, heap_of, complete_node = ranks.node_row, ranks.heap_of, ranks.complete_node
touch_rank = ranks.touch_rank
chunks = use("armillary.engine.physical.chunk_kernel")
enter, enter_train, order_of = chunks.enter, chunks.enter_train, chunks.order_of


@inner
def item_row(prog, r, row):
    """Return the address of the item of a node row of rank `r`."""
    return prog[ITEMS] + (prog[prog[RANKS] + r * R_COLUMNS + R_ITEMS] + prog[row + N_ITEM]) * I_COLUMNS


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
    if prog[plan + PL_TRAIN] > 0:
        enter_train(prog, st, item, tick)
        return
    for chunk in range(chunks):
        enter(prog, st, heap, item, chunk, 0, tick)


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
def issue_rank(prog, st, heap, r, tick):
    """Issue every free node of a rank whose slot is idle, the lowest first; slot 0 never is busy.

    Returns whether there was room for what they bring: each makes one event at most.
    """
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
            return True
        if not room_for(st, heap, 1):
            return False
        ready = st[READY_SIZE] + 2 * chosen
        take(st, st[READY] + st[ready + 1], st[ready])
        st[ready] -= 1
        st[st[BUSY] + chosen] = 1
        issue(prog, st, heap, r, best, tick)


@inner
def issue_touched(prog, st, heap, tick):
    """Let every rank that something happened to issue its free nodes, the lowest rank first.

    Returns whether there was room for all of it; else it is called again, and goes on where it stopped.
    """
    while st[V_TOUCHED] > 0:
        r = take(st, st[TOUCHED], st[V_TOUCHED])
        st[V_TOUCHED] -= 1
        st[st[IS_TOUCHED] + r] = 0
        if tick >= prog[prog[RANKS] + r * R_COLUMNS + R_DELAY] and not issue_rank(prog, st, heap, r, tick):
            touch_rank(st, r)
            return False
    return True
