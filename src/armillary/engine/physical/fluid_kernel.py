"""The event loop of profile `physical`.

A tick has two halves: first all that ends at it (nodes, volumes, phases, messages), then all that starts:
free nodes are issued rank by rank, and lanes take their next volume and get their rates. Neither half depends on
the order of events within it, so ranks that behave alike stay alike.
"""

from __future__ import annotations

from armillary.base.jit import inner, njit, use
from armillary.engine.common.layout_kernel import HEAP_COLUMNS
from armillary.engine.physical.fluid_layout_kernel import *

heaps = use("armillary.engine.common.heap_kernel")
push, pop = heaps.push, heaps.pop
share = use("armillary.engine.physical.share_kernel")
schedule, touch_lane, touch_ports = share.schedule, share.touch_lane, share.touch_ports
join, leave, room_to_join = share.join, share.leave, share.room_to_join
start_head, mark_stale, settle_ports = share.start_head, share.mark_stale, share.settle_ports
ranks = use("armillary.engine.physical.rank_kernel")
complete_node, touch_rank, arrived = ranks.complete_node, ranks.touch_rank, ranks.arrived
chunks = use("armillary.engine.physical.chunk_kernel")
enter_asking, phase_at, phase_done = chunks.enter_asking, chunks.phase_at, chunks.phase_done
trains = use("armillary.engine.physical.train_kernel")
plan_of, phase_of, end_train = trains.plan_of, trains.phase_of, trains.end_train
issue_touched = use("armillary.engine.physical.issue_kernel").issue_touched


@inner
def volume_done(prog, st, heap, lane, tick):
    """The head of a lane is through its ports; its last byte arrives after the latency."""
    key = st[st[LANE_HEAD] + lane]
    item = st[st[LANE_ITEM] + lane]
    if st[st[LANE_CHUNKS] + lane] > 0:
        schedule(st, heap, end_train(prog, st, lane, tick), EV_PHASE, lane, key)
    elif prog[prog[LINE_ROWS] + st[st[LANE_LINE] + lane] * LN_COLUMNS + LN_MACHINES] == 0:
        channel = prog[prog[ITEMS] + item * I_COLUMNS + I_CHANNEL]
        schedule(st, heap, tick + prog[prog[ITEMS] + item * I_COLUMNS + I_LATENCY], EV_ARRIVED, channel, 0)
    else:
        phase = phase_at(prog, st, item, key)
        st[st[LANE_LOAD] + lane] -= prog[phase + PH_TICKS]
        schedule(st, heap, tick + prog[phase + PH_LATENCY], EV_PHASE, lane, key)
    st[st[LANE_HEAD] + lane] = -1
    touch_lane(st, lane)


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
    if key < 0:
        return
    plan = plan_of(prog, item)
    if prog[plan + PL_TRAIN] > 0:
        st[st[LANE_QUEUE] + lane] = WHOLE
        st[st[LANE_CHUNKS] + lane] = prog[at + I_CHUNKS]
        st[st[ROW_START] + prog[at + I_ROW]] = tick
        start_head(st, lane, 0, prog[phase_of(prog, plan, 0) + PH_VOLUME], tick)
    else:
        st[st[LANE_QUEUE] + lane] = st[st[ROW_NEXT] + prog[at + I_ROW] + key]
        st[st[ROW_START] + prog[at + I_ROW] + key] = tick  # of the whole line, see `phase_done`
        start_head(st, lane, key, prog[phase_at(prog, st, item, key) + PH_VOLUME], tick)


@inner
def settle(prog, st, mem, heap, tick):
    """The second half of a tick: issue, start volumes, share ports.

    Returns whether there was room for all of it; else it is called again, and goes on where it stopped.
    """
    if not issue_touched(prog, st, heap, tick):
        return False
    enter_asking(prog, st, heap, tick)
    while st[V_LOOKED] < st[V_DIRTY]:
        lane = st[st[DIRTY] + st[V_LOOKED]]
        st[st[LANE_DIRTY] + lane] = 0
        if st[st[LANE_HEAD] + lane] < 0:
            next_head(prog, st, lane, tick)
        on = st[st[LANE_ENTRY] + lane] > 0
        if st[st[LANE_HEAD] + lane] >= 0 and not on:
            if not room_to_join(prog, st, mem, lane):
                return False
            join(prog, st, mem, lane)
        elif st[st[LANE_HEAD] + lane] < 0 and on:
            leave(prog, st, mem, lane)
        elif on and prog[Z_POLICY] == ORDERED:
            touch_ports(prog, st, lane)  # its place in the order may be another now
        if st[st[LANE_RESET] + lane] == 1:
            mark_stale(st, lane)
        st[V_LOOKED] += 1
    st[V_DIRTY] = 0
    st[V_LOOKED] = 0
    return settle_ports(prog, st, mem, heap, tick)


@inner
def forget_stale(st, heap):
    """Take events off the heap that nothing will come of: the ends of volumes whose rate has changed since.

    There may be many: every change of a port leaves one for each of its lanes.
    """
    size = 0
    for i in range(st[V_HEAP]):
        at = i * HEAP_COLUMNS
        tick, sequence, code, a, b = heap[at], heap[at + 3], heap[at + 4], heap[at + 5], heap[at + 6]
        if code != EV_VOLUME or (st[st[LANE_VERSION] + a] == b and st[st[LANE_HEAD] + a] >= 0):
            size = push(heap, 0, size, tick, 0, 0, sequence, code, a, b)
    st[V_HEAP] = size


@njit
def run(prog, st, mem, heap, budget):
    """Process about `budget` events; returns whether something is left.

    Stops early for lack of room (GROW) or on an error (V_STATUS). The first half of a tick needs no room: an event
    makes one other at most, and has left the heap.
    """
    st[V_STATUS] = OK
    while budget > 0:
        if st[V_SETTLING] == 0:
            if st[V_HEAP] == 0:
                return False
            tick = heap[0]
            st[V_NOW] = tick
            while st[V_HEAP] > 0 and heap[0] == tick:
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
            st[V_SETTLING] = 1
        if not settle(prog, st, mem, heap, st[V_NOW]):
            before = st[V_HEAP]
            forget_stale(st, heap)
            if 2 * st[V_HEAP] >= before or st[V_STATUS] != GROW:
                return True
            st[V_STATUS] = OK
            continue
        st[V_SETTLING] = 0
        if st[V_STATUS] != OK:
            return True
    return True
