"""The events of a network, in the order of time and, within a ps, of their making; and the rows of its pool."""

from __future__ import annotations

from armillary.base.jit import inner
from armillary.engine.transport.layout_kernel import *


@inner
def push_ordered(net, queue, time, order, what):
    """Add an event; of those at the same time the one with the lowest `order` is first."""
    i = net[N_QUEUE]
    net[N_QUEUE] = i + 1
    while i > 0:
        parent = (i - 1) >> 1
        at = parent * Q_COLUMNS
        if queue[at] < time or (queue[at] == time and queue[at + 1] <= order):
            break
        to = i * Q_COLUMNS
        queue[to] = queue[at]
        queue[to + 1] = queue[at + 1]
        queue[to + 2] = queue[at + 2]
        i = parent
    to = i * Q_COLUMNS
    queue[to] = time
    queue[to + 1] = order
    queue[to + 2] = what


@inner
def push(net, queue, time, what):
    """Add an event; of those at the same time the first made is the first."""
    net[N_SEQUENCE] += 1
    push_ordered(net, queue, time, net[N_SEQUENCE], what)


@inner
def pop(net, queue):
    """Remove and return the first event; its time is `queue[0]` before."""
    first = queue[Q_WHAT]
    size = net[N_QUEUE] - 1
    net[N_QUEUE] = size
    last = size * Q_COLUMNS
    _sink(queue, size, queue[last], queue[last + 1], queue[last + 2])
    return first


@inner
def replace_first(net, queue, time):
    """Let the first event come again, at a later time."""
    _sink(queue, net[N_QUEUE], time, queue[Q_SEQUENCE], queue[Q_WHAT])


@inner
def _sink(queue, size, time, sequence, what):
    """Put an event where the first was in a heap of `size`."""
    i = 0
    child = 1
    while child < size:
        at = child * Q_COLUMNS
        if child + 1 < size:
            other = at + Q_COLUMNS
            if queue[other] < queue[at] or (queue[other] == queue[at] and queue[other + 1] < queue[at + 1]):
                at = other
                child += 1
        if queue[at] > time or (queue[at] == time and queue[at + 1] > sequence):
            break
        to = i * Q_COLUMNS
        queue[to] = queue[at]
        queue[to + 1] = queue[at + 1]
        queue[to + 2] = queue[at + 2]
        i = child
        child = 2 * i + 1
    to = i * Q_COLUMNS
    queue[to] = time
    queue[to + 1] = sequence
    queue[to + 2] = what


@inner
def new_row(net, pool):
    """Return the address of a row of the pool; 0 is none."""
    row = net[N_FREE]
    if row > 0:
        net[N_FREE] = pool[row]
        return row
    row = net[N_POOL]
    net[N_POOL] = row + P_COLUMNS
    return row


@inner
def free_row(net, pool, row):
    """Give a row back."""
    pool[row] = net[N_FREE]
    net[N_FREE] = row


@inner
def full(net):
    """Tell whether the pool or the queue must grow before the next event."""
    return net[N_POOL] > net[N_POOL_ROOM] or net[N_QUEUE] > net[N_QUEUE_ROOM]


@inner
def comes(net, queue, limit):
    """Go to the time of the first event and return True, unless it is beyond `limit`, or one stops before it.

    One stops when messages have arrived at an earlier ps, or with status GROW for lack of room.
    """
    if net[N_QUEUE] == 0 or queue[Q_TIME] > limit:
        return False
    if net[N_DELIVERED] > 0 and queue[Q_TIME] > net[N_NOW]:
        return False
    if full(net):
        net[N_STATUS] = GROW
        return False
    net[N_NOW] = queue[Q_TIME]
    net[N_EVENTS] += 1
    return True


@inner
def reached(net, queue, limit):
    """Return the time that a run up to `limit` has reached when no event `comes` any more."""
    if net[N_DELIVERED] > 0 or (net[N_QUEUE] > 0 and queue[Q_TIME] <= limit):
        return net[N_NOW]
    if limit < FOREVER:
        net[N_NOW] = limit
    return limit


@inner
def deliver(net, pool, row):
    """Put a message on the list of those that have arrived; its cookie stays in its row until it is taken."""
    pool[row + P_NEXT] = 0
    if net[N_DELIVERED] == 0:
        net[N_DELIVERED] = row
    else:
        pool[net[N_DELIVERED_LAST] + P_NEXT] = row
    net[N_DELIVERED_LAST] = row
    net[N_UNDER_WAY] -= 1


@inner
def take_delivered(net, pool):
    """Return the cookie of the first message on that list and forget it; -1: there is none."""
    row = net[N_DELIVERED]
    if row == 0:
        return -1
    net[N_DELIVERED] = pool[row + P_NEXT]
    cookie = pool[row + P_COOKIE]
    free_row(net, pool, row)
    return cookie
