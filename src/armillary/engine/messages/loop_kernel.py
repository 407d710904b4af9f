"""The event loop of profile `physical` over a network that moves messages.

What happens on a rank is that of `engine.physical`; a lane runs rounds of messages instead of volumes. A tick
ends with what the network delivers up to it; then free nodes are issued, and lanes begin chunks.
"""

from __future__ import annotations

from armillary.base.jit import inner, njit, use
from armillary.engine.common.layout_kernel import HEAP_COLUMNS
from armillary.engine.messages.message_layout_kernel import *
from armillary.engine.transport.layout_kernel import (
    FOREVER,
    N_DELIVERED,
    N_DELIVERED_LAST,
    N_NOW,
    N_STAGE,
    N_STATUS,
    P_COOKIE,
    P_NEXT,
    PS,
)
from armillary.engine.transport.layout_kernel import GROW as NET_GROW

heaps = use("armillary.engine.common.heap_kernel")
pop = heaps.pop
share = use("armillary.engine.physical.share_kernel")
schedule, touch_lane = share.schedule, share.touch_lane
phase_row = use("armillary.engine.physical.choice_kernel").phase_row
ranks = use("armillary.engine.physical.rank_kernel")
complete_node, touch_rank, arrived = ranks.complete_node, ranks.touch_rank, ranks.arrived
chunks = use("armillary.engine.physical.chunk_kernel")
enter_asking, phase_done = chunks.enter_asking, chunks.phase_done
issue_touched = use("armillary.engine.physical.issue_kernel").issue_touched
rounds = use("armillary.engine.messages.round_kernel")
begin_run, one_less, send, give_back = rounds.begin_run, rounds.one_less, rounds.send, rounds.give_back
size_row = rounds.size_row
switches = use("armillary.engine.messages.switch_kernel")
occupy, release, through_switch = switches.occupy, switches.release, switches.through_switch
events = use("armillary.engine.transport.queue_kernel")
full, free_row = events.full, events.free_row
mover = use("armillary.engine.transport.chosen_kernel")
advance, change = mover.advance, mover.change


@inner
def run_over(prog, st, mem, heap, run, tick):
    """All members of a run are through: the phase of the chunk is done."""
    lane = mem[run + RU_LANE]
    key = mem[run + RU_KEY]
    release(prog, st, mem[run + RU_LINE])
    give_back(st, mem, run, RU_HEAD + prog[mem[run + RU_SHAPE] + SH_MEMBERS] * ME_COLUMNS)
    st[st[LANE_ACTIVE] + lane] -= 1
    st[st[LANE_LOAD] + lane] -= prog[prog[PHASES] + mem[run + RU_PHASE] * PH_COLUMNS + PH_TICKS]
    phase_done(prog, st, heap, lane, key, tick)
    touch_lane(st, lane)


@inner
def start_chunks(prog, st, mem, heap, net_table, net, pool, queue, lane, tick, block):
    """Let waiting chunks of a lane start, as many as may be under way at a time; returns whether there was room."""
    item = st[st[LANE_ITEM] + lane]
    at = prog[ITEMS] + item * I_COLUMNS
    line = st[st[LANE_LINE] + lane]
    if prog[prog[LINE_ROWS] + line * LN_COLUMNS + LN_MACHINES] == 0:
        channel = prog[at + I_CHANNEL]
        while st[st[STARTED] + channel] < st[st[SENT] + channel]:
            if not room(st, mem, heap, net, block):
                return False
            number = st[st[STARTED] + channel]
            st[st[STARTED] + channel] = number + 1
            place = prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_FIRST] + number
            key = st[st[SEND_KEY] + place] if prog[Z_POLICY] == ORDERED else 0
            pair = prog[prog[CHANNEL_ROUTE] + 2 * channel]
            size = prog[prog[CHANNEL_ROUTE] + 2 * channel + 1]
            cookie = ((channel << MOVE_BITS) + number) * 2 + 1
            send(prog, st, net_table, net, pool, queue, cookie, pair, size, key, tick)
        return True
    plan = prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS
    while st[st[LANE_QUEUE] + lane] >= 0:
        if not room(st, mem, heap, net, block):
            return False
        key = st[st[LANE_QUEUE] + lane]
        phases = prog[plan + PL_PHASES]
        phase = phase_row(prog, st, item, key // phases, key % phases)
        if st[st[LANE_ACTIVE] + lane] >= prog[prog[PHASE_SHAPE] + phase * PS_COLUMNS + PS_WINDOW]:
            return True
        row = prog[LINE_ROUTES]
        row += (prog[prog[PHASE_SHAPE] + phase * PS_COLUMNS + PS_LINES] + line) * LI_COLUMNS
        if not occupy(prog, st, row, lane):
            return True
        st[st[LANE_QUEUE] + lane] = st[st[ROW_NEXT] + prog[at + I_ROW] + key]
        st[st[ROW_START] + prog[at + I_ROW] + key] = tick
        st[st[LANE_ACTIVE] + lane] += 1
        run = begin_run(prog, st, mem, net_table, net, pool, queue, lane, key, phase, row, tick)
        if mem[run + RU_LEFT] == 0:
            schedule(st, heap, tick, EV_OVER, run, 0)
        if prog[row + LI_SWITCHES] > 0:
            # Other lanes that wait for the switches have their turn first.
            touch_lane(st, lane)
            return True
    return True


@inner
def came(prog, st, mem, heap, net_table, net, pool, queue, cookie, tick):
    """The network has delivered a message."""
    st[V_FLYING] -= 1
    what = cookie // 2
    delay = prog[Z_ENDPOINT]
    if cookie % 2 == 1:
        # Messages of a channel arrive in any order: the k-th that comes is the k-th.
        schedule(st, heap, tick + delay, EV_ARRIVED, what >> MOVE_BITS, 0)
        return
    run = what >> MOVE_BITS
    move = what & ((1 << MOVE_BITS) - 1)
    row = prog[MOVES] + (prog[mem[run + RU_SHAPE] + SH_MOVE] + move) * MV_COLUMNS
    if delay > 0:
        schedule(st, heap, tick + delay, EV_SENT, run, prog[row + MV_SOURCE])
    else:
        one_less(prog, st, mem, net_table, net, pool, queue, run, prog[row + MV_SOURCE], tick)
    done = tick + delay
    if prog[row + MV_REDUCE] >= ADDED_IN_SWITCH:
        done = through_switch(prog, st, mem, run, move, row, tick)
    elif prog[row + MV_REDUCE] == REDUCED:
        # A member reduces one message after the other.
        busy = run + RU_HEAD + prog[row + MV_TARGET] * ME_COLUMNS + ME_BUSY
        done = max(done, mem[busy]) + prog[size_row(prog, mem, run, row) + 1]
        mem[busy] = done
    if done > tick:
        schedule(st, heap, done, EV_RECEIVED, run, prog[row + MV_TARGET])
        return
    one_less(prog, st, mem, net_table, net, pool, queue, run, prog[row + MV_TARGET], tick)
    if mem[run + RU_LEFT] == 0:
        run_over(prog, st, mem, heap, run, tick)


@inner
def happen(prog, st, mem, heap, net_table, net, pool, queue, tick):
    """Process the first event of the heap."""
    code, a, b = heap[4], heap[5], heap[6]
    st[V_HEAP] = pop(heap, 0, st[V_HEAP])
    if code == EV_NODE:
        complete_node(prog, st, a, b, tick)
    elif code == EV_ARRIVED:
        arrived(prog, st, a, tick)
    elif code in (EV_SENT, EV_RECEIVED):
        one_less(prog, st, mem, net_table, net, pool, queue, a, b, tick)
        if mem[a + RU_LEFT] == 0:
            run_over(prog, st, mem, heap, a, tick)
    elif code == EV_OVER:
        run_over(prog, st, mem, heap, a, tick)
    else:
        touch_rank(st, a)


@inner
def room(st, mem, heap, net, block):
    """Tell whether there is room for what a message or a chunk may bring: `EVENTS`, and a block of memory."""
    if (
        (st[V_HEAP] + EVENTS) * HEAP_COLUMNS <= len(heap)
        and st[V_MEMORY] + block <= len(mem)
        and not full(net)
    ):
        return True
    if st[V_STATUS] == OK:
        st[V_STATUS] = GROW
    return False


@inner
def settle(prog, st, mem, heap, net_table, net, pool, queue, tick, block):
    """Start what can start now: nodes, and chunks of lanes.

    Returns whether all has started that can. Where there was no room (GROW) it is called again, and goes on where it
    stopped.
    """
    if not issue_touched(prog, st, heap, tick):
        return False
    enter_asking(prog, st, heap, tick)
    if st[V_COUNT] == 0:
        # What these lanes make others look at is looked at after them.
        st[V_COUNT] = st[V_DIRTY]
    while st[V_LOOKED] < st[V_COUNT]:
        lane = st[st[DIRTY] + st[V_LOOKED]]
        st[st[LANE_DIRTY] + lane] = 0
        if not start_chunks(prog, st, mem, heap, net_table, net, pool, queue, lane, tick, block):
            st[st[LANE_DIRTY] + lane] = 1
            return False
        st[V_LOOKED] += 1
    for i in range(st[V_LOOKED], st[V_DIRTY]):
        st[st[DIRTY] + i - st[V_LOOKED]] = st[st[DIRTY] + i]
    st[V_DIRTY] -= st[V_LOOKED]
    st[V_LOOKED] = 0
    st[V_COUNT] = 0
    return st[V_DIRTY] == 0


@inner
def wait(prog, st, heap, net_table, net, pool, queue):
    """Let the network run to its next delivery, the next event or the next stage; returns False if nothing is left."""
    limit = FOREVER
    if st[V_HEAP] > 0:
        limit = heap[0] * PS
    stage = FOREVER
    if st[V_STAGE] + 1 < prog[Z_STAGES]:
        stage = prog[prog[STAGES] + st[V_STAGE] + 1]
    if limit == FOREVER and st[V_FLYING] == 0:
        return False
    now = advance(net_table, net, pool, queue, min(limit, stage))
    if net[N_STATUS] == NET_GROW:
        st[V_STATUS] = GROW
        return True
    if now == FOREVER:
        return False
    st[V_TICK] = (now + PS - 1) // PS
    st[V_STEP] = COLLECT
    if now == stage:
        st[V_STAGE] += 1
        net[N_STAGE] = st[V_STAGE]
        change(net_table, net, pool, queue, now)
    return True


@inner
def collect(st, net_table, net, pool, queue):
    """Let the network run to the end of the tick, and keep what it delivers: a message leaves at whole ticks only."""
    end = st[V_TICK] * PS
    while True:
        row = net[N_DELIVERED]
        if row > 0:
            if st[V_CAME] == 0:
                st[V_CAME] = row
            else:
                pool[st[V_CAME_LAST] + P_NEXT] = row
            st[V_CAME_LAST] = net[N_DELIVERED_LAST]
            net[N_DELIVERED] = 0
        if net[N_NOW] >= end and row == 0:
            st[V_STEP] = HAPPEN
            return
        advance(net_table, net, pool, queue, end)
        if net[N_STATUS] == NET_GROW:
            st[V_STATUS] = GROW
            return


@njit
def run(prog, st, mem, heap, net_table, net, pool, queue, budget, block):
    """Process about `budget` events; returns whether something is left: stops for lack of room (GROW) or an error.

    `block` is the most memory that a chunk takes.
    """
    st[V_STATUS] = OK
    net[N_STATUS] = OK
    while budget > 0:
        budget -= 1
        if st[V_STEP] == WAIT and not wait(prog, st, heap, net_table, net, pool, queue):
            return False
        if st[V_STEP] == COLLECT:
            collect(st, net_table, net, pool, queue)
        if st[V_STATUS] != OK:
            return True
        tick = st[V_TICK]
        if st[V_STEP] == HAPPEN:
            # What the network delivers, and what is due at this tick, comes before what starts.
            while st[V_CAME] > 0:
                if not room(st, mem, heap, net, block):
                    return True
                budget -= 1
                st[V_EVENTS] += 1
                row = st[V_CAME]
                st[V_CAME] = pool[row + P_NEXT]
                cookie = pool[row + P_COOKIE]
                free_row(net, pool, row)
                came(prog, st, mem, heap, net_table, net, pool, queue, cookie, tick)
            while st[V_HEAP] > 0 and heap[0] <= tick:
                if not room(st, mem, heap, net, block):
                    return True
                budget -= 1
                st[V_EVENTS] += 1
                happen(prog, st, mem, heap, net_table, net, pool, queue, tick)
            st[V_STEP] = START
        over = settle(prog, st, mem, heap, net_table, net, pool, queue, tick, block)
        if st[V_STATUS] != OK:
            return True
        st[V_STEP] = WAIT if over else HAPPEN
    return True
