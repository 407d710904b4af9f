"""Lanes that share ports: a lane is one collective on one line of ranks, or one point-to-point channel.

A lane serves one volume at a time, its *head*. Every port it uses divides its bandwidth by the lanes on it
(FAIR), or by those that come first in a global order (ORDERED). The lane's rate is the
least over its ports. Changes within a tick take effect together at its end (`settle`), so their order does not
matter. Volumes and rates are integers: a rate is rounded down, a finish is rounded up.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.common.layout_kernel import HEAP_COLUMNS
from armillary.engine.physical.fluid_layout_kernel import *

push = use("armillary.engine.common.heap_kernel").push
trains = use("armillary.engine.physical.train_kernel")
advance_train, rest, ticks_of = trains.advance_train, trains.rest, trains.ticks_of


@inner
def schedule(st, heap, tick, code, a, b):
    """Put an event on the heap; within a tick the first made is the first."""
    st[V_SEQUENCE] += 1
    st[V_HEAP] = push(heap, 0, st[V_HEAP], tick, 0, 0, st[V_SEQUENCE], code, a, b)


@inner
def room_for(st, heap, events):
    """Tell whether so many more events fit; else ask for room."""
    if (st[V_HEAP] + events) * HEAP_COLUMNS <= len(heap):
        return True
    if st[V_STATUS] == OK:
        st[V_STATUS] = GROW
        st[V_A] = events
        st[V_B] = 0
    return False


@inner
def touch_lane(st, lane):
    """Have the lane looked at when the tick ends."""
    if st[st[LANE_DIRTY] + lane] == 0:
        st[st[LANE_DIRTY] + lane] = 1
        st[st[DIRTY] + st[V_DIRTY]] = lane
        st[V_DIRTY] += 1


@inner
def touch_ports(prog, st, lane):
    """Have the ports of a lane looked at when the tick ends."""
    line = prog[LINE_ROWS] + st[st[LANE_LINE] + lane] * LN_COLUMNS
    first = prog[LINE_PORTS] + prog[line + LN_PORTS] * LP_COLUMNS
    for i in range(prog[line + LN_PORT_COUNT]):
        port = prog[first + i * LP_COLUMNS + LP_PORT]
        if st[st[PORT_DIRTY] + port] == 0:
            st[st[PORT_DIRTY] + port] = 1
            st[st[DIRTY_PORTS] + st[V_PORTS]] = port
            st[V_PORTS] += 1


@inner
def room_to_join(prog, st, mem, lane):
    """Tell whether there are entries for the ports of a lane; else ask for room."""
    number = st[st[LANE_LINE] + lane]
    words = prog[prog[LINE_ROWS] + number * LN_COLUMNS + LN_PORT_COUNT] * EN_COLUMNS
    if st[st[LINE_FREE] + number] > 0 or max(st[V_ENTRIES], 1) + words <= len(mem):
        return True
    if st[V_STATUS] == OK:
        st[V_STATUS] = GROW
        st[V_A] = 0
        st[V_B] = 1 + words  # address 0 means none
    return False


@inner
def join(prog, st, mem, lane):
    """Put a lane on its ports."""
    number = st[st[LANE_LINE] + lane]
    line = prog[LINE_ROWS] + number * LN_COLUMNS
    count = prog[line + LN_PORT_COUNT]
    entry = st[st[LINE_FREE] + number]
    if entry > 0:
        st[st[LINE_FREE] + number] = mem[entry + EN_NEXT]
    else:
        entry = max(st[V_ENTRIES], 1)  # address 0 means none
        st[V_ENTRIES] = entry + count * EN_COLUMNS
    st[st[LANE_ENTRY] + lane] = entry
    first = prog[LINE_PORTS] + prog[line + LN_PORTS] * LP_COLUMNS
    for i in range(count):
        port = prog[first + i * LP_COLUMNS + LP_PORT]
        at = entry + i * EN_COLUMNS
        head = st[st[PORT_FIRST] + port]
        mem[at + EN_LANE] = lane
        mem[at + EN_NEXT] = head
        mem[at + EN_PREVIOUS] = 0
        mem[at + EN_WEIGHT] = prog[first + i * LP_COLUMNS + LP_WEIGHT]
        if head > 0:
            mem[head + EN_PREVIOUS] = at
        st[st[PORT_FIRST] + port] = at
        st[st[PORT_COUNT] + port] += mem[at + EN_WEIGHT]
    touch_ports(prog, st, lane)


@inner
def leave(prog, st, mem, lane):
    """Take a lane off its ports."""
    touch_ports(prog, st, lane)
    number = st[st[LANE_LINE] + lane]
    line = prog[LINE_ROWS] + number * LN_COLUMNS
    first = prog[LINE_PORTS] + prog[line + LN_PORTS] * LP_COLUMNS
    entry = st[st[LANE_ENTRY] + lane]
    for i in range(prog[line + LN_PORT_COUNT]):
        port = prog[first + i * LP_COLUMNS + LP_PORT]
        at = entry + i * EN_COLUMNS
        before = mem[at + EN_PREVIOUS]
        after = mem[at + EN_NEXT]
        if before > 0:
            mem[before + EN_NEXT] = after
        else:
            st[st[PORT_FIRST] + port] = after
        if after > 0:
            mem[after + EN_PREVIOUS] = before
        st[st[PORT_COUNT] + port] -= mem[at + EN_WEIGHT]
    mem[entry + EN_NEXT] = st[st[LINE_FREE] + number]
    st[st[LINE_FREE] + number] = entry
    st[st[LANE_ENTRY] + lane] = 0


@inner
def mark_stale(st, lane):
    """Have the rate of a lane computed anew, once, however many of its ports have changed."""
    if st[st[LANE_DIRTY] + lane] < 2:
        st[st[LANE_DIRTY] + lane] = 2
        st[st[STALE] + st[V_STALE]] = lane
        st[V_STALE] += 1


@inner
def find_first(st, mem, port):
    """Note which place in the global order comes first at a port, and how many lanes have it; mark all its lanes."""
    key = NEVER
    count = 0
    at = st[st[PORT_FIRST] + port]
    while at > 0:
        lane = mem[at + EN_LANE]
        mark_stale(st, lane)
        other = st[st[LANE_KEY] + lane]
        if other < key:
            key = other
            count = 0
        if other == key:
            count += mem[at + EN_WEIGHT]
        at = mem[at + EN_NEXT]
    st[st[PORT_KEY] + port] = key
    st[st[PORT_FIRST_COUNT] + port] = count


@inner
def first_at(st, port, lane):
    """Return how many lanes come first at a port in the global order, 0 if `lane` is not among them."""
    return st[st[PORT_FIRST_COUNT] + port] if st[st[LANE_KEY] + lane] == st[st[PORT_KEY] + port] else 0


@inner
def rate_of(prog, st, lane):
    """Return the rate of a lane now: the least that any of its ports gives it."""
    line = prog[LINE_ROWS] + st[st[LANE_LINE] + lane] * LN_COLUMNS
    first = prog[LINE_PORTS] + prog[line + LN_PORTS] * LP_COLUMNS
    rate = NEVER
    for i in range(prog[line + LN_PORT_COUNT]):
        at = first + i * LP_COLUMNS
        port = prog[at + LP_PORT]
        sharers = st[st[PORT_COUNT] + port] if prog[Z_POLICY] == FAIR else first_at(st, port, lane)
        if sharers == 0:
            return 0
        # Never 0 for want of digits: that lane would wait for ever.
        rate = min(rate, max(1, prog[prog[PORTS] + port] // (prog[at + LP_FACTOR] * sharers)))
    return rate


@inner
def advance(st, lane, tick):
    """Account for what a lane has moved since its rate was set."""
    st[st[LANE_REMAINING] + lane] -= st[st[LANE_RATE] + lane] * (tick - st[st[LANE_SINCE] + lane])
    st[st[LANE_SINCE] + lane] = tick


@inner
def update(prog, st, heap, lane, tick):
    """Give a lane its rate, and schedule the end of its head if that has changed."""
    if st[st[LANE_HEAD] + lane] < 0:
        return
    rate = rate_of(prog, st, lane)
    if rate == st[st[LANE_RATE] + lane] and st[st[LANE_RESET] + lane] == 0:
        return
    train = st[st[LANE_CHUNKS] + lane] > 0
    if train:
        if rate == 0 or st[st[LANE_RESET] + lane] == 0:
            st[st[LANE_QUEUE] + lane] = BROKEN
        advance_train(prog, st, lane, tick)
    else:
        advance(st, lane, tick)
    st[st[LANE_RESET] + lane] = 0
    st[st[LANE_RATE] + lane] = rate
    st[st[LANE_VERSION] + lane] += 1
    if rate > 0:
        end = tick + ticks_of(st[st[LANE_REMAINING] + lane], rate)
        if train:
            end += rest(prog, st, lane, rate)
        schedule(st, heap, end, EV_VOLUME, lane, st[st[LANE_VERSION] + lane])


@inner
def start_head(st, lane, key, volume, tick):
    """Let a lane serve the volume with this key."""
    st[st[LANE_HEAD] + lane] = key
    st[st[LANE_REMAINING] + lane] = volume
    st[st[LANE_RATE] + lane] = 0
    st[st[LANE_SINCE] + lane] = tick
    st[st[LANE_RESET] + lane] = 1


@inner
def settle_ports(prog, st, mem, heap, tick):
    """Give every lane on a changed port its new rate; returns whether there was room for that."""
    for i in range(st[V_PORTS]):
        port = st[st[DIRTY_PORTS] + i]
        st[st[PORT_DIRTY] + port] = 0
        if prog[Z_POLICY] == ORDERED:
            find_first(st, mem, port)
            continue
        at = st[st[PORT_FIRST] + port]
        while at > 0:
            mark_stale(st, mem[at + EN_LANE])
            at = mem[at + EN_NEXT]
    st[V_PORTS] = 0
    if not room_for(st, heap, st[V_STALE]):
        return False
    for i in range(st[V_STALE]):
        lane = st[st[STALE] + i]
        st[st[LANE_DIRTY] + lane] = 0
        update(prog, st, heap, lane, tick)
    st[V_STALE] = 0
    return True
