"""What links send, in lists of rows of packets: those that wait behind those on the wire."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inlined, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.packet import unbounded_layout as ul

queue_kernel = use("armillary.engine.transport.queue_kernel")
free_row, new_row = queue_kernel.free_row, queue_kernel.new_row
packets, ports, rows = accessors(ul.PACKET, ul.PORT, lk.ROW)


@inlined
def ends_row(at):
    """Tell whether a place is the last of its row."""
    return at % lk.P_COLUMNS == ul.LAST_OF_ROW


@inlined
def put(net, pool, at, place, goal, time):
    """Put a packet at a place; returns the place for the next."""
    packets.set_time(pool, at, time)
    packets.set_place(pool, at, place)
    packets.set_goal(pool, at, goal)
    if not ends_row(at):
        return at + ul.WORDS
    row = new_row(net, pool)
    rows.set_next(pool, at - ul.LAST_OF_ROW, row)
    return row + 1


@inlined
def behind(pool, at):
    """Return the place behind another."""
    return rows.next(pool, at - ul.LAST_OF_ROW) + 1 if ends_row(at) else at + ul.WORDS


@inlined
def _touch(pool, at):
    """Have a packet at hand soon."""
    packets.touch_time(pool, at)
    packets.touch_goal(pool, at)


@inlined
def append(net, pool, link, place, goal, time, waits):
    """Put a packet behind all of a link; tells whether it is the first that has an event."""
    at = ports.last(net, link)
    if at == 0:
        at = new_row(net, pool) + 1
        ports.set_first(net, link, at)
    number = ports.last_number(net, link)
    ports.set_last(net, link, put(net, pool, at, place, goal, time))
    ports.set_last_number(net, link, number + 1)
    is_first = goal != ul.NOWHERE and ports.wire(net, link) == 0
    if is_first:
        ports.set_wire(net, link, at)
        ports.set_wire_number(net, link, number)
    if not waits:
        skip(net, pool, link)
    return is_first


@inlined
def skip(net, pool, link):
    """Let the first that waits be on the wire."""
    at = ports.first(net, link)
    after = behind(pool, at)
    ports.set_first(net, link, after)
    number = ports.first_number(net, link) + 1
    ports.set_first_number(net, link, number)
    # The row is used no longer once both places are beyond it.
    if ends_row(at) and (ports.wire(net, link) == 0 or ports.wire_number(net, link) >= number):
        free_row(net, pool, at - ul.LAST_OF_ROW)


@inlined
def next_on_wire(net, pool, link):
    """Go on to the next packet on a wire that has an event; returns when it arrives, FOREVER: there is none."""
    at = ports.wire(net, link)
    number = ports.wire_number(net, link)
    last = ports.last_number(net, link)
    first = ports.first_number(net, link)
    while True:
        number += 1
        after = behind(pool, at)
        if ends_row(at) and first >= number:
            free_row(net, pool, at - ul.LAST_OF_ROW)
        at = after
        if number == last:
            ports.set_wire(net, link, 0)
            return lk.FOREVER
        if packets.goal(pool, at) != ul.NOWHERE:
            ports.set_wire(net, link, at)
            ports.set_wire_number(net, link, number)
            _touch(pool, behind(pool, at))
            return packets.time(pool, at)
