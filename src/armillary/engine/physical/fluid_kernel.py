"""The event loop of profile `physical`.

A tick has two halves. First everything that ends at it: nodes, volumes, phases, messages (the events of the heap).
Then everything that starts (`settle`): free nodes are issued rank by rank, chunk flows take their next volume, and
rates follow. Neither half depends on the order of events within it, so ranks that behave alike stay alike.

Between two ticks, every chunk flow with a head is on its ports, has the rate that its ports give it, and has one valid
event EV_VOLUME on the heap if that rate is above 0. Events of earlier rates stay on the heap and are void (`version`).
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, njit, use
from armillary.engine.physical import layout as lk

heaps = use("armillary.engine.common.heap_kernel")
push, pop = heaps.push, heaps.pop
share = use("armillary.engine.physical.share_kernel")
schedule, touch_chunk_flow, touch_ports = share.schedule, share.touch_chunk_flow, share.touch_ports
join, leave, room_to_join = share.join, share.leave, share.room_to_join
start_head, mark_stale, settle_ports = share.start_head, share.mark_stale, share.settle_ports
work = use("armillary.engine.physical.progress_kernel")
complete_node, touch_rank, arrived = work.complete_node, work.touch_rank, work.arrived
enter_asking, phase_at, phase_done = work.enter_asking, work.phase_at, work.phase_done
phase_of, end_chunk_batch = share.phase_of, share.end_chunk_batch
issue_touched = use("armillary.engine.physical.issue_kernel").issue_touched
channel_state, channels, dirty, events = accessors(lk.CHANNEL_STATE, lk.CHANNELS, lk.DIRTY, lk.EVENT)
items, chunk_flows, lines, messages = accessors(lk.ITEMS, lk.CHUNK_FLOWS, lk.LINE_ROWS, lk.MESSAGE_STATE)
phases, plans, rows = accessors(lk.PHASES, lk.PLANS, lk.ROWS)


@inner
def volume_done(prog, st, heap, chunk_flow, tick):
    """End the head of a chunk flow: its bytes have passed the ports, and the last of them arrives a latency later."""
    # A chunk flow is one of three: a chunk batch, a point-to-point channel (a line without members), or
    # chunks of a collective one by one.
    key = chunk_flows.head(st, chunk_flow)
    item = chunk_flows.item(st, chunk_flow)
    if chunk_flows.chunks(st, chunk_flow) > 0:
        schedule(st, heap, end_chunk_batch(prog, st, chunk_flow, tick), lk.EV_PHASE, chunk_flow, key)
    elif lines.members(prog, chunk_flows.line(st, chunk_flow)) == 0:
        channel = items.channel(prog, item)
        schedule(st, heap, tick + items.latency(prog, item), lk.EV_ARRIVED, channel, 0)
    else:
        phase = phase_at(prog, st, item, key)
        chunk_flows.add_load(st, chunk_flow, -phases.ticks(prog, phase))
        schedule(st, heap, tick + phases.latency(prog, phase), lk.EV_PHASE, chunk_flow, key)
    # The ports are free while the last byte is in flight: latency comes after volume and occupies nothing.
    chunk_flows.set_head(st, chunk_flow, -1)
    touch_chunk_flow(st, chunk_flow)


@inner
def next_head(prog, st, chunk_flow, tick):
    """Let an idle chunk flow take its next waiting volume, if there is one."""
    item = chunk_flows.item(st, chunk_flow)
    if lines.members(prog, chunk_flows.line(st, chunk_flow)) == 0:
        channel = items.channel(prog, item)
        # Messages of a channel move one after the other, in the order of their sends.
        number = channel_state.started(st, channel)
        if number < channel_state.sent(st, channel):
            channel_state.set_started(st, channel, number + 1)
            message = channels.first(prog, channel) + number
            # Every message has its own place.
            chunk_flows.set_priority(st, chunk_flow, messages.send_priority(st, message))
            chunk_flows.set_key(st, chunk_flow, messages.send_key(st, message))
            start_head(st, chunk_flow, 0, items.volume(prog, item), tick)
        return
    key = chunk_flows.queue(st, chunk_flow)
    if key < 0:
        return
    plan = items.plan(prog, item)
    if plans.chunk_batch(prog, plan) > 0:
        # WHOLE until the rate first changes: until then start and rate say when each chunk ends, and no row is
        # written. Rows are most of the state, and memory that nobody writes to takes no time either.
        chunk_flows.set_queue(st, chunk_flow, lk.WHOLE)
        chunk_flows.set_chunks(st, chunk_flow, items.chunks(prog, item))
        start_head(st, chunk_flow, 0, phases.volume(prog, phase_of(prog, plan, 0)), tick)
    else:
        chunk_flows.set_queue(st, chunk_flow, rows.next(st, items.row(prog, item) + key))
        rows.set_start(st, items.row(prog, item) + key, tick)  # of the whole line, see `phase_done`
        start_head(st, chunk_flow, key, phases.volume(prog, phase_at(prog, st, item, key)), tick)


@inner
def settle(prog, st, mem, heap, tick):
    """The second half of a tick: issue, start volumes, share ports.

    Returns False if there was no room for all of it; then it is called again, and continues where it stopped.
    """
    # Issue before choosing levels, and choose before serving chunk flows: each step makes work for the next,
    # never for one before it.
    if not issue_touched(prog, st, heap, tick):
        return False
    enter_asking(prog, st, heap, tick)
    # V_LOOKED is in the state, so that a call after GROW skips what is done.
    while st[lk.V_LOOKED] < st[lk.V_DIRTY]:
        chunk_flow = dirty.chunk_flow(st, st[lk.V_LOOKED])
        chunk_flows.set_dirty(st, chunk_flow, 0)
        if chunk_flows.head(st, chunk_flow) < 0:
            next_head(prog, st, chunk_flow, tick)
        # A chunk flow that goes from one volume straight to the next stays on its ports: others keep their
        # rates.
        on = chunk_flows.entry(st, chunk_flow) > 0
        if chunk_flows.head(st, chunk_flow) >= 0 and not on:
            if not room_to_join(prog, st, mem, chunk_flow):
                return False
            join(prog, st, mem, chunk_flow)
        elif chunk_flows.head(st, chunk_flow) < 0 and on:
            leave(prog, st, mem, chunk_flow)
        elif on and prog[lk.Z_POLICY] == lk.ORDERED:
            touch_ports(prog, st, chunk_flow)  # its place in the order may be another now
        # A new head needs an end on the heap even if none of its ports has changed.
        if chunk_flows.reset(st, chunk_flow) == 1:
            mark_stale(st, chunk_flow)
        st[lk.V_LOOKED] += 1
    st[lk.V_DIRTY] = 0
    st[lk.V_LOOKED] = 0
    return settle_ports(prog, st, mem, heap, tick)


@inner
def forget_stale(st, heap):
    """Remove void events from the heap: ends of volumes whose rate has changed since they were scheduled.

    There may be many, because every change of a port leaves one for each of its chunk flows.
    """
    # In place: the rebuilt heap is never longer than what was read, and each event is read before it is
    # overwritten.
    size = 0
    for i in range(st[lk.V_HEAP]):
        at = i * lk.HEAP_COLUMNS
        code, a, b = events.code(heap, at), events.a(heap, at), events.b(heap, at)
        if code != lk.EV_VOLUME or (chunk_flows.version(st, a) == b and chunk_flows.head(st, a) >= 0):
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
        # V_SETTLING is 1 after a call that returned in the second half: the first must not run again.
        if st[lk.V_SETTLING] == 0:
            # Nothing is left to happen. Ranks with nodes left are stuck, which `check_finished` explains.
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
                    # Else a void event, of a rate that no longer holds.
                    if chunk_flows.version(st, a) == b and chunk_flows.head(st, a) >= 0:
                        volume_done(prog, st, heap, a, tick)
                elif code == lk.EV_PHASE:
                    phase_done(prog, st, heap, a, b, tick)
                elif code == lk.EV_ARRIVED:
                    arrived(prog, st, a, tick)
                else:
                    # EV_START: a rank begins after its start delay.
                    touch_rank(st, a)
            st[lk.V_SETTLING] = 1
        if not settle(prog, st, mem, heap, st[lk.V_NOW]):
            # Grow only if dropping void events frees less than half of the heap, so the cost of dropping is
            # amortised.
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
