"""The output port of a link: a FIFO queue, a transmitter and the wire. It knows no protocol.

A packet waits in the queue of the port at the tail of its link, is transmitted as a whole when its turn comes, is
then on the wire for the latency, and is stored at the head. What a protocol does with it:

* make one by `new_row` and fill the columns K_*; hand it to `enqueue`, there and at every node (`onward`).
  Whether to drop it (`dropped`, `free_row`) or mark it (`marked`) is decided before, by `depth` and the like;
  `enqueue` tells whether it had to wait, so that buffers can be accounted, to be released when it is dequeued.
* its way is that of a route (`set_out`, `onward`), or chosen at every node (`hop_kernel`).
* event ARRIVE of a link is the first of the queue: call `arrive`, which takes it and returns the packet.
* event START, popped: the port is free and something waits. `started` first; unless it says no, choose what to send
  (`dequeue`, or a packet made just now), `transmit`, and `arm` if more waits. `enqueue` arms by itself; who has work
  of other kinds (messages not yet cut) arms when it appears.
* `shut` and `reopen`: pauses from the other end. `change_ports`: links have other bandwidths.

A port transmits at once when it is idle and nothing waits: one event per packet and link; each packet that waits
costs another. Packets on a wire stay in order, so only the first of each wire is in the heap.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.switch import layout as pk

queue_kernel = use("armillary.engine.transport.queue_kernel")
push_ordered, replace_first, pop = queue_kernel.push_ordered, queue_kernel.replace_first, queue_kernel.pop
use_kernel = use("armillary.engine.transport.use_kernel")
link_row, duration, carried, waiting = (
    use_kernel.link_row,
    use_kernel.duration,
    use_kernel.carried,
    use_kernel.waiting,
)
links, messages, packets, ports = accessors(lk.LINK, pk.MESSAGE, pk.PACKET, pk.PORT)
reverses = accessors(pk.REVERSES)
route_links, rows, uses = accessors(lk.ROUTE_LINK, lk.ROW, lk.USE)


@inner
def depth(net, link):
    """Return the bytes that wait for a link, without the packet in transmission."""
    return uses.waiting(net, link)


@inner
def dropped(net, link):
    """Count a packet that is dropped."""
    uses.add_drops(net, link, 1)


@inner
def marked(net, pool, link, row):
    """Mark a packet and count it."""
    packets.set_mark(pool, row, 1)
    uses.add_marks(net, link, 1)


@inner
def again(table, net, pool, row, link):
    """A packet waits for a link that went down: on a route it goes on waiting."""
    return link


@inner
def link_at(table, pool, row):
    """Return the link that stands at a packet's place on its route, or its reverse on the way back."""
    link = route_links.link(table, packets.at(pool, row))
    if packets.step(pool, row) < 0:
        return reverses.link(table, link)
    return link


@inner
def set_out(table, net, pool, row, message):
    """Let a packet begin on the route of its message."""
    packets.set_at(pool, row, messages.first(pool, message))
    packets.set_last(pool, row, messages.last(pool, message))
    packets.set_step(pool, row, 1)


@inner
def onward(table, net, pool, row, link):
    """A packet came by `link`: return the one it takes next, -1 at its destination."""
    if packets.at(pool, row) == packets.last(pool, row):
        return -1
    packets.add_at(pool, row, packets.step(pool, row))
    # The link it came by holds it in its buffer until it is transmitted.
    packets.set_source(pool, row, link)
    return link_at(table, pool, row)


@inner
def arm(table, net, queue, link, now):
    """Something waits for a link: let START come when its port is free."""
    if ports.shut(net, link) > 0:
        # Paused time counts from when something first waits, not from when the pause came.
        if ports.since(net, link) < 0:
            ports.set_since(net, link, now)
    # On a link that is down nothing is armed: `change_ports` does it once the link is up.
    elif ports.armed(net, link) == 0 and links.slow(table, link_row(table, net, link)) > 0:
        ports.set_armed(net, link, 1)
        what = link * lk.CODES + pk.START
        # Negative orders: events of links precede all others of their ps, by number of link, so that results
        # do not depend on the order in which they were scheduled.
        push_ordered(net, queue, max(now, ports.free(net, link)), what - pk.BEFORE, what)


@inner
def started(table, net, link):
    """START of a link has come: tell whether it may send."""
    ports.set_armed(net, link, 0)
    return ports.shut(net, link) == 0 and links.slow(table, link_row(table, net, link)) > 0


@inner
def transmit(table, net, pool, queue, link, row, now):
    """Transmit a packet on a port that is free; returns the ps at which it is free again."""
    at = link_row(table, net, link)
    size = packets.size(pool, row)
    end = now + duration(table, at, size)
    carried(table, net, link, size, now, end)
    ports.set_free(net, link, end)
    time = end + links.latency(table, at)
    rows.set_next(pool, row, 0)
    if ports.wire(net, link) == 0:
        ports.set_wire(net, link, row)
        what = link * lk.CODES + pk.ARRIVE
        push_ordered(net, queue, time, what - pk.BEFORE, what)
    else:
        last = ports.wire_last(net, link)
        # A stage may shorten the latency; packets on one wire still do not overtake each other.
        time = max(time, packets.time(pool, last))
        rows.set_next(pool, last, row)
    ports.set_wire_last(net, link, row)
    packets.set_time(pool, row, time)
    return end


@inner
def enqueue(table, net, pool, queue, link, row, now):
    """Take a packet at the tail of a link; tells whether it must wait there."""
    up = links.slow(table, link_row(table, net, link)) > 0
    # An armed port has a START scheduled for something that waits: this packet goes behind it.
    if ports.armed(net, link) == 0 and ports.shut(net, link) == 0 and up and (ports.free(net, link) <= now):
        transmit(table, net, pool, queue, link, row, now)
        return False
    rows.set_next(pool, row, 0)
    if ports.first(net, link) == 0:
        ports.set_first(net, link, row)
    else:
        rows.set_next(pool, ports.last(net, link), row)
    ports.set_last(net, link, row)
    waiting(table, net, link, depth(net, link) + packets.size(pool, row), now)
    arm(table, net, queue, link, now)
    return True


@inner
def dequeue(net, pool, link):
    """Take the first packet out of the queue of a link; 0: there is none."""
    row = ports.first(net, link)
    if row > 0:
        # `last` stays as it is: it is read only while the list is not empty.
        ports.set_first(net, link, rows.next(pool, row))
        uses.add_waiting(net, link, -packets.size(pool, row))
    return row


@inner
def arrive(net, pool, queue, link):
    """Take the first event, ARRIVE of a link, and the packet it is about; returns that."""
    row = ports.wire(net, link)
    other = rows.next(pool, row)
    ports.set_wire(net, link, other)
    # The next packet on the wire takes over the event: same order and code, a later time.
    if other > 0:
        replace_first(net, queue, packets.time(pool, other))
    else:
        pop(net, queue)
    return row


@inner
def shut(net, link, works, now):
    """Let a port send nothing after what it transmits; `works`: something waits for it."""
    ports.set_shut(net, link, 1)
    ports.set_since(net, link, now if works else -1)


@inner
def reopen(table, net, queue, link, works, now):
    """Let a port that was shut send again."""
    ports.set_shut(net, link, 0)
    if ports.since(net, link) >= 0:
        uses.add_paused(net, link, now - ports.since(net, link))
    if works:
        arm(table, net, queue, link, now)


@inner
def change_ports(table, net, queue, now):
    """Links have other bandwidths: those whose queues could not be served may be up now."""
    for link in range(table[lk.T_LINKS]):
        if ports.first(net, link) > 0:
            arm(table, net, queue, link, now)
