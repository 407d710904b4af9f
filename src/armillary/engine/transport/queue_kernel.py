"""The events of a network, in the order of time and, within a ps, of their making; and the rows of its pool."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk

heaps = use("armillary.base.heap_kernel")
rise, sink = heaps.rise, heaps.sink
rows = accessors(lk.ROW)


@inner
def push_ordered(net, queue, time, order, what):
    """Add an event; among those at the same time the lowest `order` comes first."""
    rise(queue, net[lk.N_QUEUE], time, order, what)
    net[lk.N_QUEUE] += 1


@inner
def push(net, queue, time, what):
    """Add an event; among those at the same time the first scheduled comes first."""
    net[lk.N_SEQUENCE] += 1
    push_ordered(net, queue, time, net[lk.N_SEQUENCE], what)


@inner
def pop(net, queue):
    """Remove and return the first event; before the call its time is `queue[0]`."""
    first = queue[lk.Q_WHAT]
    size = net[lk.N_QUEUE] - 1
    net[lk.N_QUEUE] = size
    # The last event fills the hole; when it is the first itself, `sink` ends at once.
    last = size * lk.Q_COLUMNS
    sink(queue, size, queue[last], queue[last + 1], queue[last + 2])
    return first


@inner
def replace_first(net, queue, time):
    """Let the first event come again, at a later time."""
    sink(queue, net[lk.N_QUEUE], time, queue[lk.Q_SEQUENCE], queue[lk.Q_WHAT])


@inner
def new_row(net, pool):
    """Return the address of a row of the pool; 0 is none."""
    row = net[lk.N_FREE]
    # Freed rows are reused first: the pool stays as small as the most that was in use.
    if row > 0:
        net[lk.N_FREE] = pool[row]
        return row
    row = net[lk.N_POOL]
    net[lk.N_POOL] = row + lk.P_COLUMNS
    return row


@inner
def free_row(net, pool, row):
    """Give a row back."""
    pool[row] = net[lk.N_FREE]
    net[lk.N_FREE] = row


@inner
def full(net):
    """Tell whether the pool or the queue must grow before the next event."""
    return net[lk.N_POOL] > net[lk.N_POOL_ROOM] or net[lk.N_QUEUE] > net[lk.N_QUEUE_ROOM]


@inner
def comes(net, queue, limit):
    """Go to the time of the first event and return True, unless it is beyond `limit` or the run must stop before it.

    The run stops when messages have arrived at an earlier ps, or with status GROW for lack of room.
    """
    if net[lk.N_QUEUE] == 0 or queue[lk.Q_TIME] > limit:
        return False
    # Receivers must see these arrivals, and may send, before time goes on.
    if net[lk.N_DELIVERED] > 0 and queue[lk.Q_TIME] > net[lk.N_NOW]:
        return False
    if full(net):
        net[lk.N_STATUS] = lk.GROW
        return False
    net[lk.N_NOW] = queue[lk.Q_TIME]
    net[lk.N_EVENTS] += 1
    return True


@inner
def reached(net, queue, limit):
    """Return the time that a run up to `limit` has reached when no event `comes` any more."""
    # An event within the limit was left because of GROW: the time stays, and the next call handles it.
    if net[lk.N_DELIVERED] > 0 or (net[lk.N_QUEUE] > 0 and queue[lk.Q_TIME] <= limit):
        return net[lk.N_NOW]
    # FOREVER is no time at which anything happens: the clock stays at the last event.
    if limit < lk.FOREVER:
        net[lk.N_NOW] = limit
    return limit


@inner
def _append(net, pool, first, last, row):
    """Put a row at the end of the list whose ends are at `first` and `last` of `net`."""
    rows.set_next(pool, row, 0)
    if net[first] == 0:
        net[first] = row
    else:
        rows.set_next(pool, net[last], row)
    net[last] = row


@inner
def deliver(net, pool, row):
    """Put a message on the list of those that have arrived; its cookie stays in its row until it is taken."""
    # In the order of arrival, which is the order in which receivers see messages of one ps.
    _append(net, pool, lk.N_DELIVERED, lk.N_DELIVERED_LAST, row)
    net[lk.N_IN_FLIGHT] -= 1


@inner
def stop(net, pool, row):
    """Let a message wait until links change."""
    _append(net, pool, lk.N_STOPPED, lk.N_STOPPED_LAST, row)


@inner
def restart(net, queue, now, code):
    """The network is in another stage: what waits for links that were down tries again, by an event of `code`."""
    row = net[lk.N_STOPPED]
    if row > 0:
        net[lk.N_STOPPED] = 0
        push(net, queue, now, row * lk.CODES + code)


@inner
def restart_next(net, pool, queue, now, row, code):
    """Let the message that was stopped behind `row` try again: each releases the next, so the queue grows by one."""
    if rows.next(pool, row) > 0:
        push(net, queue, now, rows.next(pool, row) * lk.CODES + code)


@inner
def take_delivered(net, pool):
    """Return the cookie of the first message on that list and forget it; -1: there is none."""
    row = net[lk.N_DELIVERED]
    if row == 0:
        return -1
    net[lk.N_DELIVERED] = rows.next(pool, row)
    cookie = rows.cookie(pool, row)
    free_row(net, pool, row)
    return cookie
