"""The start of free nodes, rank by rank.

A node is free when all its parents have ended. It starts when its slot (stream, thread) is idle, the lowest id first,
as a program issues in order. Depending on its kind it takes time, joins a collective, or uses a channel or a memory.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.physical import layout as lk

heaps = use("armillary.engine.common.heap_kernel")
take = heaps.take
share = use("armillary.engine.physical.share_kernel")
schedule, touch_chunk_flow, room_for = share.schedule, share.touch_chunk_flow, share.room_for
work = use("armillary.engine.physical.progress_kernel")
node_row, slot_of, complete_node = work.node_row, work.slot_of, work.complete_node
touch_rank, ticks_of_node = work.touch_rank, work.ticks_of_node
enter, enter_chunk_batch, order_of = work.enter, work.enter_chunk_batch, work.order_of
channel_state, channels, comms, instances = accessors(lk.CHANNEL_STATE, lk.CHANNELS, lk.COMMS, lk.INSTANCES)
item_state, items, chunk_flows, members = accessors(lk.ITEM_STATE, lk.ITEMS, lk.CHUNK_FLOWS, lk.MEMBERS)
messages, nodes, ordinals, plans = accessors(lk.MESSAGE_STATE, lk.NODES, lk.ORDINALS, lk.PLANS)
progress, rank_state, ranks, ready = accessors(lk.NODE_STATE, lk.RANK_STATE, lk.RANKS, lk.READY)
servers, slots, touched, turns = accessors(lk.SERVERS, lk.SLOTS, lk.TOUCHED, lk.TURNS)
children = accessors(lk.CHILDREN)


@inner
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


@inner
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
        progress.set_indegree(st, state + after, 0)
        rank_state.add_left(st, r, -1)
        slots.add_begun(st, slot, 1)
        slots.set_reach(st, slot, turns.place(prog, behind) + 1)
        # Its end would be an event.
        st[lk.V_EVENTS] += 1
        node = after
        row = behind
        end = tick + ticks_of_node(prog, r, node)
    return node, end


@inner
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


@inner
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


@inner
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
