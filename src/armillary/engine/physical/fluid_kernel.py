"""The event loop of profile `physical`.

A tick has two halves. First everything that ends at it: nodes, volumes, phases, messages (the events of the heap).
Then everything that starts (`settle`): free nodes are issued rank by rank, chunk flows take their next volume, and
rates follow. Neither half depends on the order of events within it, so ranks that behave alike stay alike.

Between two ticks, every chunk flow with a head is on its ports, has the rate that its ports give it, and has one valid
event EV_VOLUME on the heap if that rate is above 0. Events of earlier rates stay on the heap and are void (`version`).

A free node starts when its slot (stream, thread) is idle, the lowest id first, as a program issues in order. Depending
on its kind it takes time, joins a collective, or uses a channel or a memory.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inlined, inner, njit, use
from armillary.engine.physical import layout as lk

heaps = use("armillary.engine.common.heap_kernel")
take, put_event, drop_event = heaps.take, heaps.put_event, heaps.drop_event
share = use("armillary.engine.physical.share_kernel")
schedule, code_of = share.schedule, share.code_of
touch_chunk_flow, touch_ports = share.touch_chunk_flow, share.touch_ports
leave, room_for = share.leave, share.room_for
start_head, mark_stale, settle_ports = share.start_head, share.mark_stale, share.settle_ports
phase_of = share.phase_of
batch = use("armillary.engine.physical.batch_kernel")
put_on_ports, end_alone = batch.put_on_ports, batch.end_alone
end_chunk_batch, holds = batch.end_chunk_batch, batch.holds
work = use("armillary.engine.physical.progress_kernel")
node_row, slot_of, ticks_of_node = work.node_row, work.slot_of, work.ticks_of_node
complete_node, touch_rank = work.complete_node, work.touch_rank
arrived, order_of = work.arrived, work.order_of
enter, enter_asking, enter_chunk_batch = work.enter, work.enter_asking, work.enter_chunk_batch
phase_at, phase_done = work.phase_at, work.phase_done
channel_state, channels, children, comms = accessors(lk.CHANNEL_STATE, lk.CHANNELS, lk.CHILDREN, lk.COMMS)
dirty, events, instances, item_state = accessors(lk.DIRTY, lk.EVENT, lk.INSTANCES, lk.ITEM_STATE)
items, chunk_flows, lines, members = accessors(lk.ITEMS, lk.CHUNK_FLOWS, lk.LINE_ROWS, lk.MEMBERS)
messages, nodes, ordinals, phases = accessors(lk.MESSAGE_STATE, lk.NODES, lk.ORDINALS, lk.PHASES)
plans, progress, rank_state, ranks = accessors(lk.PLANS, lk.NODE_STATE, lk.RANK_STATE, lk.RANKS)
ready, rows, servers, slots = accessors(lk.READY, lk.ROWS, lk.SERVERS, lk.SLOTS)
touched, turns = accessors(lk.TOUCHED, lk.TURNS)


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


@inlined
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


@inlined
def issue_collective(prog, st, heap, r, node, item, tick):
    """Let one rank join a collective: it enters the first phase of every chunk."""
    plan = items.plan(prog, item)
    comm = items.comm(prog, item)
    ordinal = ordinals.joined(st, items.ordinal(prog, item))
    # The n-th collective of a rank in a communicator is the n-th of all its members.
    ordinals.set_joined(st, items.ordinal(prog, item), ordinal + 1)
    instance = comms.instance(prog, comm) + ordinal
    member = comms.items(prog, comm) + ordinal * comms.reps(prog, comm)
    members.set_item(st, member + items.local(prog, item), item)
    # Members may come in any order; the plan of the first holds for all. A kernel cannot raise: the status
    # says which two calls differ, and `check_finished` raises.
    if instances.leader(st, instance) < 0:
        instances.set_leader(st, instance, item)
    elif items.plan(prog, instances.leader(st, instance)) != items.plan(prog, item):
        st[lk.V_STATUS] = lk.MISMATCH
        st[lk.V_A] = instances.leader(st, instance)
        st[lk.V_B] = item
        return
    item_state.set_instance(st, item, ordinal)
    count = items.chunks(prog, item)
    item_state.set_left(st, item, count)
    # Nothing moves, e.g. in a group of one. It has joined nevertheless, so that later calls keep their
    # numbers.
    if count == 0 or plans.phases(prog, plan) == 0:
        schedule(st, heap, tick, lk.EV_NODE, r, node)
        return
    if plans.chunk_batch(prog, plan) > 0:
        enter_chunk_batch(prog, st, item, tick)
        return
    for chunk in range(count):
        enter(prog, st, heap, item, chunk, 0, tick)


@inner
def offer(prog, st, node, item, tick):
    """Let the message of a node begin as soon as its channel lets it."""
    channel = items.channel(prog, item)
    number = channel_state.sent(st, channel)
    # The k-th send of a channel meets its k-th receive, whichever is first.
    channel_state.set_sent(st, channel, number + 1)
    message = channels.first(prog, channel) + number
    messages.set_send_node(st, message, node)
    messages.set_send_priority(st, message, items.priority(prog, item))
    messages.set_send_key(st, message, order_of(prog, tick))
    chunk_flow = channels.chunk_flow(prog, channel)
    chunk_flows.set_line(st, chunk_flow, channels.line(prog, channel))
    # All messages of a channel have the same bytes and latency: the item of any of them tells both.
    chunk_flows.set_item(st, chunk_flow, item)
    touch_chunk_flow(st, chunk_flow)


@inlined
def run_on(prog, st, r, node, slot, tick):
    """Start a node of fixed duration, and the nodes that certainly follow it at once; returns the last and its end.

    The only node that waits for this one, and waits for no other, starts when this one ends, if it is the next of the
    program in the same slot, and all before this one have started: then nothing can come between.
    """
    state = ranks.state(prog, r)
    row = node_row(prog, r, node)
    end = tick + ticks_of_node(prog, r, node)
    while end > tick and nodes.children(prog, row) == 1:
        after = children.node(prog, nodes.child(prog, row))
        behind = node_row(prog, r, after)
        if (
            nodes.kind(prog, behind) != lk.FIXED
            or nodes.indegree(prog, behind) != 1
            or nodes.slot(prog, behind) != nodes.slot(prog, row)
            or turns.place(prog, behind) != turns.place(prog, row) + 1
        ):
            break
        tick = end
        progress.set_end(st, state + node, tick)
        progress.set_start(st, state + after, tick)
        rank_state.add_left(st, r, -1)
        slots.add_begun(st, slot, 1)
        slots.set_reach(st, slot, turns.place(prog, behind) + 1)
        # Its end would be an event.
        st[lk.V_EVENTS] += 1
        node = after
        row = behind
        end = tick + ticks_of_node(prog, r, node)
    return node, end


@inlined
def issue(prog, st, heap, r, node, tick):
    """Start one node."""
    row = node_row(prog, r, node)
    kind = nodes.kind(prog, row)
    progress.set_start(st, ranks.state(prog, r) + node, tick)
    if kind == lk.SKIP:
        # Takes no time, so its children may start within the same pass of `issue_rank`.
        complete_node(prog, st, r, node, tick)
        return
    slot = slot_of(prog, r, nodes.slot(prog, row))
    place = turns.place(prog, row)
    # All nodes of the slot that come before this one in the program, and no other.
    in_turn = slots.begun(st, slot) == place and slots.reach(st, slot) <= place
    slots.add_begun(st, slot, 1)
    slots.set_reach(st, slot, max(slots.reach(st, slot), place + 1))
    if kind == lk.FIXED:
        end = tick + ticks_of_node(prog, r, node)
        if in_turn and nodes.slot(prog, row) > 0:
            node, end = run_on(prog, st, r, node, slot, tick)
        schedule(st, heap, end, lk.EV_NODE, r, node)
        return
    item = ranks.items(prog, r) + nodes.item(prog, row)
    if kind == lk.COLLECTIVE:
        issue_collective(prog, st, heap, r, node, item, tick)
    elif kind == lk.MEMORY:
        server = items.server(prog, item)
        start = tick
        # First come, first served. Of ranks that access it at one tick the lowest is first, see
        # `issue_touched`.
        if server >= 0:
            start = max(tick, servers.free(st, server))
            servers.set_free(st, server, start + items.service(prog, item))
        schedule(st, heap, start + items.service(prog, item), lk.EV_NODE, r, node)
    elif kind == lk.STORE:
        # The storage begins one operation after the other; each then takes its latency, and moves its bytes.
        server = prog[lk.Z_STORAGE]
        start = max(tick, servers.free(st, server))
        servers.set_free(st, server, start + items.service(prog, item))
        schedule(st, heap, start + ticks_of_node(prog, r, node), lk.EV_OFFERED, r, node)
    elif kind in (lk.SEND, lk.TRANSFER):
        offer(prog, st, node, item, tick)
    else:
        channel = items.channel(prog, item)
        number = channel_state.posted(st, channel)
        channel_state.set_posted(st, channel, number + 1)
        messages.set_recv_node(st, channels.first(prog, channel) + number, node)
        # The message was here before its receive, which therefore ends at once.
        if channel_state.came(st, channel) > number:
            schedule(st, heap, tick, lk.EV_NODE, r, node)


@inlined
def issue_rank(prog, st, heap, r, tick):
    """Issue every free node of a rank whose slot is idle, the lowest first; slot 0 never is busy.

    Returns whether there was room for what they bring: each makes one event at most.
    """
    # Slots are few, so a scan beats a heap over their first nodes.
    free = slot_of(prog, r, 0)
    while True:
        best = lk.NEVER
        best_slot = free
        for slot in range(free, free + ranks.slots(prog, r)):
            if slots.waiting(st, slot) > 0 and (slot == free or slots.busy(st, slot) == 0):
                first = ready.node(st, slots.heap(st, slot))
                if first < best:
                    best = first
                    best_slot = slot
        if best == lk.NEVER:
            return True
        # Before the node leaves its heap, so that a retry finds it there.
        if not room_for(st, heap, 1):
            return False
        take(st, ready.at_node(st, slots.heap(st, best_slot)), slots.waiting(st, best_slot))
        slots.add_waiting(st, best_slot, -1)
        slots.set_busy(st, best_slot, 1)
        issue(prog, st, heap, r, best, tick)


@inlined
def issue_touched(prog, st, heap, tick):
    """Let every rank that something happened to issue its free nodes, the lowest rank first.

    Returns False if there was no room for all of it; then it is called again, and continues where it stopped.
    """
    while st[lk.V_TOUCHED] > 0:
        r = take(st, touched.at_rank(st, 0), st[lk.V_TOUCHED])
        st[lk.V_TOUCHED] -= 1
        rank_state.set_is_touched(st, r, 0)
        # A rank that has not begun is dropped here; EV_START touches it again.
        if tick >= ranks.delay(prog, r) and not issue_rank(prog, st, heap, r, tick):
            touch_rank(st, r)
            return False
    return True


@inlined
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
            if not put_on_ports(prog, st, mem, heap, chunk_flow, tick):
                return False
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
        what, b = events.what(heap, at), events.b(heap, at)
        if code_of(what) not in (lk.EV_VOLUME, lk.EV_ALONE) or holds(st, what >> lk.CODE_BITS, b):
            put_event(heap, size, events.tick(heap, at), events.sequence(heap, at), what, b)
            size += 1
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
                what, b = events.what(heap, 0), events.b(heap, 0)
                code, a = code_of(what), what >> lk.CODE_BITS
                st[lk.V_HEAP] -= 1
                drop_event(heap, st[lk.V_HEAP])
                budget -= 1
                st[lk.V_EVENTS] += 1
                if code == lk.EV_NODE:
                    complete_node(prog, st, a, b, tick)
                elif code == lk.EV_VOLUME:
                    if holds(st, a, b):
                        volume_done(prog, st, heap, a, tick)
                elif code == lk.EV_ALONE:
                    if holds(st, a, b):
                        end_alone(prog, st, a)
                        phase_done(prog, st, heap, a, 0, tick)
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
