"""The nodes of a rank: how they become free, how they end, and how an arriving message ends those of two ranks."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.physical import layout as lk

heaps = use("armillary.engine.common.heap_kernel")
put = heaps.put
channel_state, channels, children, messages = accessors(
    lk.CHANNEL_STATE, lk.CHANNELS, lk.CHILDREN, lk.MESSAGE_STATE
)
nodes, progress, rank_state, ranks = accessors(lk.NODES, lk.NODE_STATE, lk.RANK_STATE, lk.RANKS)
paces, ready, slots, touched = accessors(lk.PACES, lk.READY, lk.SLOTS, lk.TOUCHED)


@inner
def node_row(prog, r, node):
    """Return the row of NODES of a node."""
    return ranks.nodes(prog, r) + node


@inner
def ticks_of_node(prog, r, node):
    """Return how long a node of a rank takes."""
    return paces.ticks(prog, ranks.pace(prog, r) + node)


@inner
def touch_rank(st, r):
    """Mark a rank to issue its free nodes in the second half of the tick."""
    # A heap, so that ranks issue in ascending order whatever happened first: they meet at shared memories.
    if rank_state.is_touched(st, r) == 0:
        rank_state.set_is_touched(st, r, 1)
        put(st, touched.at_rank(st, 0), st[lk.V_TOUCHED], r)
        st[lk.V_TOUCHED] += 1


@inner
def slot_of(prog, r, slot):
    """Return the number of a slot of rank `r` among all slots."""
    return ranks.slot(prog, r) + slot


@inner
def add_ready(prog, st, r, node):
    """Put a free node on the ready heap of its slot (lowest node first)."""
    slot = slot_of(prog, r, nodes.slot(prog, node_row(prog, r, node)))
    put(st, ready.at_node(st, slots.heap(st, slot)), slots.waiting(st, slot), node)
    slots.add_waiting(st, slot, 1)


@inner
def complete_node(prog, st, r, node, tick):
    """Finish one node: free its slot and its children."""
    row = node_row(prog, r, node)
    state = ranks.state(prog, r)
    progress.set_end(st, state + node, tick)
    slots.set_busy(st, slot_of(prog, r, nodes.slot(prog, row)), 0)
    # The last node to end gives the finish of the rank.
    if rank_state.add_left(st, r, -1) == 0:
        rank_state.set_finish(st, r, tick)
    first = nodes.child(prog, row)
    for i in range(first, first + nodes.children(prog, row)):
        child = children.node(prog, i)
        # The last parent to end frees the child.
        if progress.add_indegree(st, state + child, -1) == 0:
            add_ready(prog, st, r, child)
    touch_rank(st, r)


@inner
def arrived(prog, st, channel, tick):
    """End the send of a point-to-point message that has arrived, and its receive if that is posted."""
    # Arrivals are counted, not identified: the k-th to arrive ends the k-th send and receive.
    number = channel_state.came(st, channel)
    channel_state.set_came(st, channel, number + 1)
    message = channels.first(prog, channel) + number
    complete_node(prog, st, channels.sender(prog, channel), messages.send_node(st, message), tick)
    if channel_state.posted(st, channel) > number:
        complete_node(prog, st, channels.receiver(prog, channel), messages.recv_node(st, message), tick)
