"""Point-to-point messages; `prog`, `st`, `mem` and `heap` are as in `collective_kernel`."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.astra_sim import layout as lk

rank_kernel = use("armillary.engine.astra_sim.rank_kernel")
at_end = use("armillary.engine.astra_sim.congestion.queue_kernel").at_end
send_message = use("armillary.engine.astra_sim.congestion.link_kernel").send_message
node_row, schedule, schedule_now, next_seq = (
    rank_kernel.node_row,
    rank_kernel.schedule,
    rank_kernel.schedule_now,
    rank_kernel.next_seq,
)
CONTENTION = rank_kernel.CONTENTION
channel_state, channels, items, messages = accessors(lk.CHANNEL, lk.CHANNELS, lk.ITEMS, lk.MESSAGES)
nodes, ranks = accessors(lk.NODES, lk.RANKS)


@inner
def post_send(prog, st, mem, heap, r, node, item, tick):
    """Send a point-to-point message; under rendezvous it waits for the receive."""
    channel = items.channel(prog, item)
    number = channel_state.sent(st, channel)
    channel_state.set_sent(st, channel, number + 1)
    first = channels.first(prog, channel)
    messages.set_send_node(st, first + number, node)
    inject = tick
    control = items.control(prog, item)
    if CONTENTION:
        if control < 0:
            inject_pair(prog, st, mem, heap, r, node, item, tick)
        # A send that comes after its clearance goes when the rest of this tick has run, as ASTRA-sim
        # registers it.
        elif channel_state.cleared(st, channel) > number:
            at_end(prog, st, mem, heap, tick, lk.EV_GO_PAIR, r, node)
        return
    # Rendezvous: the receiver's control message must have arrived. Until the receive is posted the tick is
    # noted, and the receiver schedules the message.
    if control >= 0:
        if channel_state.posted(st, channel) <= number:
            messages.set_send_tick(st, first + number, tick)
            # The receive was posted first: SEND_TICK holds when; from then its control message travels.
            return
        inject = max(tick, messages.send_tick(st, first + number) + control)
    schedule(
        prog,
        st,
        mem,
        heap,
        r,
        inject + items.delay(prog, item),
        inject,
        tick,
        next_seq(st),
        lk.EV_SEND,
        r,
        node,
    )


@inner
def inject_pair(prog, st, mem, heap, r, node, item, tick):
    """Put a point-to-point message on the links."""
    to = channels.receiver(prog, items.channel(prog, item))
    send_message(prog, st, mem, heap, r, to, items.delay(prog, item), lk.EV_SEND, r, node, tick)


@inner
def clear_pair(prog, st, mem, heap, channel, tick):
    """The control message of the next receive of a channel is at the sender (rendezvous)."""
    number = channel_state.cleared(st, channel)
    channel_state.set_cleared(st, channel, number + 1)
    if channel_state.sent(st, channel) > number:
        go_pair(
            prog,
            st,
            mem,
            heap,
            channels.sender(prog, channel),
            messages.send_node(st, channels.first(prog, channel) + number),
            tick,
        )


@inner
def go_pair(prog, st, mem, heap, r, node, tick):
    """Send a point-to-point message that its receiver has cleared."""
    item = ranks.items(prog, r) + nodes.item(prog, node_row(prog, r, node))
    inject_pair(prog, st, mem, heap, r, node, item, tick)


@inner
def post_recv(prog, st, mem, heap, r, node, item, tick):
    """Post a point-to-point receive; it completes at once if its message has arrived."""
    channel = items.channel(prog, item)
    number = channel_state.posted(st, channel)
    channel_state.set_posted(st, channel, number + 1)
    first = channels.first(prog, channel)
    messages.set_recv_node(st, first + number, node)
    control = items.control(prog, item)
    if CONTENTION:
        if channel_state.arrived(st, channel) > number:
            at_end(prog, st, mem, heap, tick, lk.EV_RECV, r, node)
        elif control >= 0:
            to = channels.sender(prog, channel)
            send_message(prog, st, mem, heap, r, to, control, lk.EV_CLEAR_PAIR, channel, 0, tick)
        return
    if channel_state.arrived(st, channel) > number:
        schedule_now(prog, st, mem, heap, r, tick, tick, lk.EV_RECV, r, node)
    # The send has been waiting: SEND_TICK holds when it was posted. The message leaves when the control
    # message reaches it.
    elif control >= 0 and channel_state.sent(st, channel) > number:
        sent = messages.send_tick(st, first + number)
        inject = max(sent, tick + control)
        sender = channels.sender(prog, channel)
        schedule(
            prog,
            st,
            mem,
            heap,
            sender,
            inject + items.delay(prog, item),
            inject,
            sent,
            next_seq(st),
            lk.EV_SEND,
            sender,
            messages.send_node(st, first + number),
        )
    # The first of the two ends to come notes its tick in the same column.
    else:
        messages.set_send_tick(st, first + number, tick)
