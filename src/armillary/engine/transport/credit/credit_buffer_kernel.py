"""Buffers of virtual channels, first in, first out; and the credits that say upstream what fits into them."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.credit import layout as ck

queue_kernel = use("armillary.engine.transport.queue_kernel")
push, new_row, free_row = queue_kernel.push, queue_kernel.new_row, queue_kernel.free_row
use_kernel = use("armillary.engine.transport.use_kernel")
link_row, duration = use_kernel.link_row, use_kernel.duration
credit_rows, links, messages, option = accessors(ck.CREDIT, lk.LINK, ck.MESSAGE, ck.OPTION)
packets, route_links, rows, senders, slots = accessors(ck.PACKET, lk.ROUTE_LINK, lk.ROW, ck.SENDER, ck.SLOT)
wants = accessors(ck.WANT)


@inner
def wake(net, queue, link, time):
    """Schedule the arbitration of a link at `time`, or when it is free, unless it is already scheduled by then."""
    time = max(time, senders.free(net, link))
    # An event that this one precedes stays in the queue; `_arbitrate` ignores those whose time is not `wake`.
    if time < senders.wake(net, link):
        senders.set_wake(net, link, time)
        push(net, queue, time, link * lk.CODES + ck.ARBITRATE)


@inner
def append(net, pool, slot, packet):
    """Put a packet into a slot; returns whether it is the first."""
    rows.set_next(pool, packet, 0)
    if slots.first(net, slot) > 0:
        rows.set_next(pool, slots.last(net, slot), packet)
        slots.set_last(net, slot, packet)
        return False
    slots.set_first(net, slot, packet)
    slots.set_last(net, slot, packet)
    return True


@inner
def leave(table, net, pool, queue, slot, left):
    """Take the first packet out of a slot, where its last byte stays until `left`; its credits then go upstream.

    They go together: whole packets are claimed (virtual cut-through).
    """
    packet = slots.first(net, slot)
    slots.set_first(net, slot, rows.next(pool, packet))
    slots.set_free(net, slot, left)
    link = packets.link(pool, packet)
    back = new_row(net, pool)
    time = left + links.latency(table, link_row(table, net, link))
    rows.set_next(pool, back, 0)
    credit_rows.set_time(pool, back, time)
    credit_rows.set_flits(pool, back, packets.flits(pool, packet))
    # Credits return in the order in which packets leave, so a list appended at its end is sorted by time.
    if slots.back(net, slot) == 0:
        slots.set_back(net, slot, back)
    else:
        rows.set_next(pool, slots.back_last(net, slot), back)
    slots.set_back_last(net, slot, back)
    upstream = link
    # Without a waiting packet nobody needs an event: `credits` collects what has arrived when it is next
    # read.
    if senders.wanted(net, upstream) > 0 or senders.nic(net, upstream) > 0:
        wake(net, queue, link, time)


@inner
def credits(net, pool, row, now):
    """Return the flits that the upstream of a slot, by its row, may send by now."""
    back = slots.back(net, row)
    # Credits that have arrived are counted only when somebody asks, which saves an event per packet.
    while back > 0 and credit_rows.time(pool, back) <= now:
        slots.add_credits(net, row, credit_rows.flits(pool, back))
        slots.set_back(net, row, rows.next(pool, back))
        free_row(net, pool, back)
        back = slots.back(net, row)
    return slots.credits(net, row)


@inner
def serve(table, net, pool, queue, slot, now):
    """Let the packet that is now the first of a slot ask for its next link; those at their end are consumed.

    That happens as soon as it is known, for the times at which it will.
    """
    for _ in range(ck.STEP):
        # A burst of packets that all end here could take any number of rows; the room is checked between
        # events only.
        packet = slots.first(net, slot)
        if packet == 0 or wants.link(net, slot) > 0:
            return
        # A packet cannot be forwarded before the one ahead of it in the slot has left completely.
        start = max(packets.head(pool, packet), slots.free(net, slot))
        if packets.at(pool, packet) < packets.end(pool, packet):
            link = route_links.link(table, packets.at(pool, packet))
            # Stored plus 1, so that 0 means that the slot wants no link.
            wants.set_link(net, slot, link + 1)
            wants.set_since(net, slot, start)
            senders.add_wanted(net, link, 1)
            wake(net, queue, link, start)
            return
        # The NPU consumes at the rate of the link without ever blocking, so the time at which it ends is
        # known now.
        size = packets.flits(pool, packet) * option.flit(table, table[lk.T_OPTIONS])
        took = duration(table, link_row(table, net, packets.link(pool, packet)), size)
        left = max(start + took, packets.tail(pool, packet))
        leave(table, net, pool, queue, slot, left)
        message = packets.message(pool, packet)
        free_row(net, pool, packet)
        messages.add_open(pool, message, -1)
        messages.set_last(pool, message, max(messages.last(pool, message), left))
        if messages.open(pool, message) == 0:
            push(net, queue, messages.last(pool, message), message * lk.CODES + ck.ARRIVED)
    push(net, queue, now, slot * lk.CODES + ck.EMPTY)
