"""Buffers of virtual channels, first in, first out; and the credits that say upstream what fits into them."""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.credit_layout_kernel import *
from armillary.engine.transport.layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
push, new_row, free_row = events.push, events.new_row, events.free_row
links = use("armillary.engine.transport.use_kernel")
link_row, duration = links.link_row, links.duration


@inner
def wake(net, queue, link, time):
    """Let a link be arbitrated at `time`, or when it is free, unless it already is by then."""
    row = net[N_OWN] + link * S_COLUMNS
    time = max(time, net[row + S_FREE])
    if time < net[row + S_WAKE]:
        net[row + S_WAKE] = time
        push(net, queue, time, link * CODES + ARBITRATE)


@inner
def append(net, pool, slot, packet):
    """Put a packet into a slot; returns whether it is the first."""
    row = net[N_OWN + 2] + slot * V_COLUMNS
    pool[packet + P_NEXT] = 0
    if net[row + V_FIRST] > 0:
        pool[net[row + V_LAST] + P_NEXT] = packet
        net[row + V_LAST] = packet
        return False
    net[row + V_FIRST] = packet
    net[row + V_LAST] = packet
    return True


@inner
def leave(table, net, pool, queue, slot, left):
    """Take the first packet out of a slot, where its last byte stays until `left`; its credits then go upstream.

    They go together: whole packets are claimed (virtual cut-through).
    """
    row = net[N_OWN + 2] + slot * V_COLUMNS
    packet = net[row + V_FIRST]
    net[row + V_FIRST] = pool[packet + P_NEXT]
    net[row + V_FREE] = left
    link = pool[packet + K_LINK]
    back = new_row(net, pool)
    time = left + table[link_row(table, net, link) + L_LATENCY]
    pool[back + P_NEXT] = 0
    pool[back + B_TIME] = time
    pool[back + B_FLITS] = pool[packet + K_FLITS]
    if net[row + V_BACK] == 0:
        net[row + V_BACK] = back
    else:
        pool[net[row + V_BACK_LAST] + P_NEXT] = back
    net[row + V_BACK_LAST] = back
    upstream = net[N_OWN] + link * S_COLUMNS
    if net[upstream + S_WANTED] > 0 or net[upstream + S_NIC] > 0:
        wake(net, queue, link, time)


@inner
def credits(net, pool, row, now):
    """Return the flits that the upstream of a slot, by its row, may send by now."""
    back = net[row + V_BACK]
    while back > 0 and pool[back + B_TIME] <= now:
        net[row + V_CREDITS] += pool[back + B_FLITS]
        net[row + V_BACK] = pool[back + P_NEXT]
        free_row(net, pool, back)
        back = net[row + V_BACK]
    return net[row + V_CREDITS]


@inner
def serve(table, net, pool, queue, slot, now):
    """Let the packet that is now the first of a slot ask for its next link; those at their end are consumed.

    That happens as soon as it is known, for the times at which it will.
    """
    row = net[N_OWN + 2] + slot * V_COLUMNS
    want = net[N_OWN + 1] + slot * W_COLUMNS
    for _ in range(STEP):
        packet = net[row + V_FIRST]
        if packet == 0 or net[want + W_LINK] > 0:
            return
        start = max(pool[packet + K_HEAD], net[row + V_FREE])
        if pool[packet + K_AT] < pool[packet + K_END]:
            link = table[table[T_ROUTE_LINK] + pool[packet + K_AT]]
            net[want + W_LINK] = link + 1
            net[want + W_FROM] = start
            net[net[N_OWN] + link * S_COLUMNS + S_WANTED] += 1
            wake(net, queue, link, start)
            return
        size = pool[packet + K_FLITS] * table[table[T_OPTIONS] + O_FLIT]
        took = duration(table, link_row(table, net, pool[packet + K_LINK]), size)
        left = max(start + took, pool[packet + K_TAIL])
        leave(table, net, pool, queue, slot, left)
        message = pool[packet + K_MESSAGE]
        free_row(net, pool, packet)
        pool[message + M_OPEN] -= 1
        pool[message + M_LAST] = max(pool[message + M_LAST], left)
        if pool[message + M_OPEN] == 0:
            push(net, queue, pool[message + M_LAST], message * CODES + ARRIVED)
    push(net, queue, now, slot * CODES + EMPTY)
