"""The output port of a link: a FIFO queue, a transmitter and the wire. It knows no protocol.

A packet waits in the queue of the port at the tail of its link, is transmitted as a whole when its turn comes, is
then on the wire for the latency, and is stored at the head. What a protocol does with it:

* make one by `new_row` and fill the columns K_*; hand it to `enqueue`, there and at every node (`onward`).
  Whether to drop it (`dropped`, `free_row`) or mark it (`marked`) is decided before, by `depth` and the like;
  `enqueue` tells whether it had to wait, so that buffers can be accounted, to be released when it is dequeued.
* event ARRIVE of a link is the first of the queue: call `arrive`, which takes it and returns the packet.
* event START, popped: the port is free and something waits. `started` first; unless it says no, choose what to send
  (`dequeue`, or a packet made just now), `transmit`, and `arm` if more waits. `enqueue` arms by itself; who has work
  of other kinds (messages not yet cut) arms when it appears.
* `shut` and `reopen`: pauses from the other end. `change_ports`: links have other bandwidths.

A port transmits at once when it is idle and nothing waits: one event per packet and link; each packet that waits
costs another. Packets on a wire stay in order, so only the first of each wire is in the heap.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.layout_kernel import *
from armillary.engine.transport.packet_layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
push_ordered, replace_first, pop = events.push_ordered, events.replace_first, events.pop
links = use("armillary.engine.transport.use_kernel")
link_row, duration, carried, waiting = links.link_row, links.duration, links.carried, links.waiting


@inner
def port_of(net, link):
    """Return the address of a port's row."""
    return net[PORTS] + link * PO_COLUMNS


@inner
def depth(net, link):
    """Return how many bytes wait for a link, without the packet that it transmits."""
    return net[net[N_USE] + link * U_COLUMNS + U_WAITING]


@inner
def dropped(net, link):
    """Count a packet that is dropped."""
    net[net[N_USE] + link * U_COLUMNS + U_DROPS] += 1


@inner
def marked(net, pool, link, row):
    """Mark a packet and count it."""
    pool[row + K_MARK] = 1
    net[net[N_USE] + link * U_COLUMNS + U_MARKS] += 1


@inner
def link_at(table, pool, row):
    """Return the link whose place on its way a packet has."""
    link = table[table[T_ROUTE_LINK] + pool[row + K_AT]]
    if pool[row + K_STEP] < 0:
        return table[table[REVERSE] + link]
    return link


@inner
def onward(table, pool, row, link):
    """A packet came by `link`: return the one it takes next, -1 at its destination."""
    if pool[row + K_AT] == pool[row + K_LAST]:
        return -1
    pool[row + K_AT] += pool[row + K_STEP]
    pool[row + K_FROM] = link
    return link_at(table, pool, row)


@inner
def arm(table, net, queue, link, now):
    """Something waits for a link: let START come when its port is free."""
    port = port_of(net, link)
    if net[port + PO_SHUT] > 0:
        if net[port + PO_SINCE] < 0:
            net[port + PO_SINCE] = now
    elif net[port + PO_ARMED] == 0 and table[link_row(table, net, link) + L_SLOW] > 0:
        net[port + PO_ARMED] = 1
        what = link * CODES + START
        push_ordered(net, queue, max(now, net[port + PO_FREE]), what - BEFORE, what)


@inner
def started(table, net, link):
    """START of a link has come: tell whether it may send."""
    port = port_of(net, link)
    net[port + PO_ARMED] = 0
    return net[port + PO_SHUT] == 0 and table[link_row(table, net, link) + L_SLOW] > 0


@inner
def transmit(table, net, pool, queue, link, row, now):
    """Transmit a packet on a port that is free; returns the ps at which it is free again."""
    port = port_of(net, link)
    at = link_row(table, net, link)
    size = pool[row + K_SIZE]
    end = now + duration(table, at, size)
    carried(table, net, link, size, now, end)
    net[port + PO_FREE] = end
    time = end + table[at + L_LATENCY]
    pool[row + P_NEXT] = 0
    if net[port + PO_WIRE] == 0:
        net[port + PO_WIRE] = row
        what = link * CODES + ARRIVE
        push_ordered(net, queue, time, what - BEFORE, what)
    else:
        last = net[port + PO_WIRE_LAST]
        time = max(time, pool[last + K_TIME])
        pool[last + P_NEXT] = row
    net[port + PO_WIRE_LAST] = row
    pool[row + K_TIME] = time
    return end


@inner
def enqueue(table, net, pool, queue, link, row, now):
    """Take a packet at the tail of a link; tells whether it must wait there."""
    port = port_of(net, link)
    up = table[link_row(table, net, link) + L_SLOW] > 0
    if net[port + PO_ARMED] == 0 and net[port + PO_SHUT] == 0 and up and net[port + PO_FREE] <= now:
        transmit(table, net, pool, queue, link, row, now)
        return False
    pool[row + P_NEXT] = 0
    if net[port + PO_FIRST] == 0:
        net[port + PO_FIRST] = row
    else:
        pool[net[port + PO_LAST] + P_NEXT] = row
    net[port + PO_LAST] = row
    waiting(table, net, link, depth(net, link) + pool[row + K_SIZE], now)
    arm(table, net, queue, link, now)
    return True


@inner
def dequeue(net, pool, link):
    """Take the first packet out of the queue of a link; 0: there is none."""
    port = port_of(net, link)
    row = net[port + PO_FIRST]
    if row > 0:
        net[port + PO_FIRST] = pool[row + P_NEXT]
        net[net[N_USE] + link * U_COLUMNS + U_WAITING] -= pool[row + K_SIZE]
    return row


@inner
def arrive(net, pool, queue, link):
    """Take the first event, ARRIVE of a link, and the packet it is about; returns that."""
    port = port_of(net, link)
    row = net[port + PO_WIRE]
    other = pool[row + P_NEXT]
    net[port + PO_WIRE] = other
    if other > 0:
        replace_first(net, queue, pool[other + K_TIME])
    else:
        pop(net, queue)
    return row


@inner
def shut(net, link, works, now):
    """Let a port send nothing after what it transmits; `works`: something waits for it."""
    port = port_of(net, link)
    net[port + PO_SHUT] = 1
    net[port + PO_SINCE] = now if works else -1


@inner
def reopen(table, net, queue, link, works, now):
    """Let a port that was shut send again."""
    port = port_of(net, link)
    net[port + PO_SHUT] = 0
    if net[port + PO_SINCE] >= 0:
        net[net[N_USE] + link * U_COLUMNS + U_PAUSED] += now - net[port + PO_SINCE]
    if works:
        arm(table, net, queue, link, now)


@inner
def change_ports(table, net, queue, now):
    """Links have other bandwidths: those whose queues could not be served may be up now."""
    for link in range(table[T_LINKS]):
        if net[port_of(net, link) + PO_FIRST] > 0:
            arm(table, net, queue, link, now)
