"""The event loop of profile `physical`.

A tick has two halves: first all that ends at it (nodes, volumes, phases, messages), then all that starts:
free nodes are issued rank by rank, and lanes take their next volume and get their rates. Neither half depends on
the order of events within it, so ranks that behave alike stay alike.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, njit, use
from armillary.engine.physical import layout as lk

heaps = use("armillary.engine.common.heap_kernel")
push, pop = heaps.push, heaps.pop
share = use("armillary.engine.physical.share_kernel")
schedule, touch_lane, touch_ports = share.schedule, share.touch_lane, share.touch_ports
join, leave, room_to_join = share.join, share.leave, share.room_to_join
start_head, mark_stale, settle_ports = share.start_head, share.mark_stale, share.settle_ports
rank_kernel = use("armillary.engine.physical.rank_kernel")
complete_node, touch_rank = rank_kernel.complete_node, rank_kernel.touch_rank
arrived = rank_kernel.arrived
chunk_kernel = use("armillary.engine.physical.chunk_kernel")
enter_asking, phase_at, phase_done = chunk_kernel.enter_asking, chunk_kernel.phase_at, chunk_kernel.phase_done
train_kernel = use("armillary.engine.physical.train_kernel")
phase_of, end_train = train_kernel.phase_of, train_kernel.end_train
issue_touched = use("armillary.engine.physical.issue_kernel").issue_touched
channel_state, channels, dirty, events = accessors(lk.CHANNEL_STATE, lk.CHANNELS, lk.DIRTY, lk.EVENT)
items, lanes, lines, messages = accessors(lk.ITEMS, lk.LANES, lk.LINE_ROWS, lk.MESSAGE_STATE)
phases, plans, rows = accessors(lk.PHASES, lk.PLANS, lk.ROWS)


@inner
def volume_done(prog, st, heap, lane, tick):
    """The head of a lane is through its ports; its last byte arrives after the latency."""
    key = lanes.head(st, lane)
    item = lanes.item(st, lane)
    if lanes.chunks(st, lane) > 0:
        schedule(st, heap, end_train(prog, st, lane, tick), lk.EV_PHASE, lane, key)
    elif lines.members(prog, lanes.line(st, lane)) == 0:
        channel = items.channel(prog, item)
        schedule(st, heap, tick + items.latency(prog, item), lk.EV_ARRIVED, channel, 0)
    else:
        phase = phase_at(prog, st, item, key)
        lanes.add_load(st, lane, -phases.ticks(prog, phase))
        schedule(st, heap, tick + phases.latency(prog, phase), lk.EV_PHASE, lane, key)
    lanes.set_head(st, lane, -1)
    touch_lane(st, lane)


@inner
def next_head(prog, st, lane, tick):
    """Let an idle lane take its next waiting volume, if there is one."""
    item = lanes.item(st, lane)
    if lines.members(prog, lanes.line(st, lane)) == 0:
        channel = items.channel(prog, item)
        number = channel_state.started(st, channel)
        if number < channel_state.sent(st, channel):
            channel_state.set_started(st, channel, number + 1)
            message = channels.first(prog, channel) + number
            lanes.set_key(st, lane, messages.send_key(st, message))  # every message has its own place
            start_head(st, lane, 0, items.volume(prog, item), tick)
        return
    key = lanes.queue(st, lane)
    if key < 0:
        return
    plan = items.plan(prog, item)
    if plans.train(prog, plan) > 0:
        lanes.set_queue(st, lane, lk.WHOLE)
        lanes.set_chunks(st, lane, items.chunks(prog, item))
        rows.set_start(st, items.row(prog, item), tick)
        start_head(st, lane, 0, phases.volume(prog, phase_of(prog, plan, 0)), tick)
    else:
        lanes.set_queue(st, lane, rows.next(st, items.row(prog, item) + key))
        rows.set_start(st, items.row(prog, item) + key, tick)  # of the whole line, see `phase_done`
        start_head(st, lane, key, phases.volume(prog, phase_at(prog, st, item, key)), tick)


@inner
def settle(prog, st, mem, heap, tick):
    """The second half of a tick: issue, start volumes, share ports.

    Returns whether there was room for all of it; else it is called again, and goes on where it stopped.
    """
    if not issue_touched(prog, st, heap, tick):
        return False
    enter_asking(prog, st, heap, tick)
    while st[lk.V_LOOKED] < st[lk.V_DIRTY]:
        lane = dirty.lane(st, st[lk.V_LOOKED])
        lanes.set_dirty(st, lane, 0)
        if lanes.head(st, lane) < 0:
            next_head(prog, st, lane, tick)
        on = lanes.entry(st, lane) > 0
        if lanes.head(st, lane) >= 0 and not on:
            if not room_to_join(prog, st, mem, lane):
                return False
            join(prog, st, mem, lane)
        elif lanes.head(st, lane) < 0 and on:
            leave(prog, st, mem, lane)
        elif on and prog[lk.Z_POLICY] == lk.ORDERED:
            touch_ports(prog, st, lane)  # its place in the order may be another now
        if lanes.reset(st, lane) == 1:
            mark_stale(st, lane)
        st[lk.V_LOOKED] += 1
    st[lk.V_DIRTY] = 0
    st[lk.V_LOOKED] = 0
    return settle_ports(prog, st, mem, heap, tick)


@inner
def forget_stale(st, heap):
    """Take events off the heap that nothing will come of: the ends of volumes whose rate has changed since.

    There may be many: every change of a port leaves one for each of its lanes.
    """
    size = 0
    for i in range(st[lk.V_HEAP]):
        at = i * lk.HEAP_COLUMNS
        code, a, b = events.code(heap, at), events.a(heap, at), events.b(heap, at)
        if code != lk.EV_VOLUME or (lanes.version(st, a) == b and lanes.head(st, a) >= 0):
            size = push(heap, 0, size, events.tick(heap, at), 0, 0, events.sequence(heap, at), code, a, b)
    st[lk.V_HEAP] = size


@njit
def run(prog, st, mem, heap, budget):
    """Process about `budget` events; returns whether something is left.

    Stops early for lack of room (GROW) or on an error (V_STATUS). The first half of a tick needs no room: an event
    makes one other at most, and has left the heap.
    """
    st[lk.V_STATUS] = lk.OK
    while budget > 0:
        if st[lk.V_SETTLING] == 0:
            if st[lk.V_HEAP] == 0:
                return False
            tick = events.tick(heap, 0)
            st[lk.V_NOW] = tick
            while st[lk.V_HEAP] > 0 and events.tick(heap, 0) == tick:
                code, a, b = events.code(heap, 0), events.a(heap, 0), events.b(heap, 0)
                st[lk.V_HEAP] = pop(heap, 0, st[lk.V_HEAP])
                budget -= 1
                st[lk.V_EVENTS] += 1
                if code == lk.EV_NODE:
                    complete_node(prog, st, a, b, tick)
                elif code == lk.EV_VOLUME:
                    if lanes.version(st, a) == b and lanes.head(st, a) >= 0:
                        volume_done(prog, st, heap, a, tick)
                elif code == lk.EV_PHASE:
                    phase_done(prog, st, heap, a, b, tick)
                elif code == lk.EV_ARRIVED:
                    arrived(prog, st, a, tick)
                else:
                    touch_rank(st, a)
            st[lk.V_SETTLING] = 1
        if not settle(prog, st, mem, heap, st[lk.V_NOW]):
            before = st[lk.V_HEAP]
            forget_stale(st, heap)
            if 2 * st[lk.V_HEAP] >= before or st[lk.V_STATUS] != lk.GROW:
                return True
            st[lk.V_STATUS] = lk.OK
            continue
        st[lk.V_SETTLING] = 0
        if st[lk.V_STATUS] != lk.OK:
            return True
    return True
