"""The output port of a link under TCP: a FIFO queue of packets that drops at its tail, and marks.

What is before a packet in a FIFO queue fixes when it leaves, so a hop is one event. The packet on the wire takes
no room in the queue.
"""

from __future__ import annotations

from armillary.engine.transport.tcp_layout_kernel import *
from armillary.jit import inner, use

events = use("armillary.engine.transport.queue_kernel")
push, free_row = events.push, events.free_row
links = use("armillary.engine.transport.use_kernel")
link_row, duration, carried, waiting = links.link_row, links.duration, links.carried, links.waiting


@inner
def begun(net, pool, link, now):
    """Take the packets from the queue of a link whose first byte has left by `now`."""
    use_of = net[N_USE] + link * U_COLUMNS
    first = net[net[N_FIRST] + link]
    while first > 0 and pool[first + K_START] <= now:
        net[use_of + U_WAITING] -= pool[first + K_WIRE]
        first = pool[first + P_NEXT]
    net[net[N_FIRST] + link] = first


@inner
def leave(table, net, pool, queue, row, fresh, now):
    """Let a packet wait for its next link, or drop it; the NPU that made it (`fresh`) never drops it."""
    link = table[pool[row + K_AT]]
    use_of = net[N_USE] + link * U_COLUMNS
    at = link_row(table, net, link)
    begun(net, pool, link, now)
    wire = pool[row + K_WIRE]
    start = net[net[N_FREE_AT] + link]
    depth = net[use_of + U_WAITING]
    if table[at + L_SLOW] == 0 or (start > now and fresh == 0 and depth + wire > table[table[T_BUFFER] + link]):
        net[use_of + U_DROPS] += 1
        free_row(net, pool, row)
        return
    if start > now:
        if depth >= table[table[T_OPTIONS] + O_MARK] and pool[row + K_SIZE] > 0:
            pool[row + K_MARK] = 1
            net[use_of + U_MARKS] += 1
        pool[row + P_NEXT] = 0
        if net[net[N_FIRST] + link] > 0:
            pool[net[net[N_LAST] + link] + P_NEXT] = row
        else:
            net[net[N_FIRST] + link] = row
        net[net[N_LAST] + link] = row
        waiting(table, net, link, depth + wire, now)
    else:
        start = now
    end = start + duration(table, at, wire)
    net[net[N_FREE_AT] + link] = end
    carried(table, net, link, wire, start, end)
    pool[row + K_START] = start
    pool[row + K_AT] += 1
    push(net, queue, end + table[at + L_LATENCY], row * CODES + ARRIVED)
