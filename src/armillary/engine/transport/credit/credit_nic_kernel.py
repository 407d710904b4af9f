"""Messages that wait at an NPU for a link: the lowest key first, equal ones in turn, a packet of each."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.credit import layout as ck

queue_kernel = use("armillary.engine.transport.queue_kernel")
new_row, free_row = queue_kernel.new_row, queue_kernel.free_row
groups, messages, rows = accessors(ck.GROUP, ck.MESSAGE, lk.ROW)


@inner
def enqueue(net, pool, nic, message, key):
    """Add a message; `nic` is the address in `net` of a link's first group."""
    # A sorted list: few keys wait at one NIC at a time.
    before = 0
    group = net[nic]
    while group > 0 and groups.key(pool, group) < key:
        before = group
        group = rows.next(pool, group)
    if group > 0 and groups.key(pool, group) == key:
        # Groups are circular lists known by their last: appending and taking the first are both O(1).
        last = groups.last(pool, group)
        rows.set_next(pool, message, rows.next(pool, last))
        rows.set_next(pool, last, message)
        groups.set_last(pool, group, message)
        return
    made = new_row(net, pool)
    rows.set_next(pool, made, group)
    groups.set_key(pool, made, key)
    groups.set_last(pool, made, message)
    # The only member of a circular list follows itself.
    rows.set_next(pool, message, message)
    if before > 0:
        rows.set_next(pool, before, made)
    else:
        net[nic] = made


@inner
def first_message(net, pool, nic):
    """Return the message whose turn it is."""
    return rows.next(pool, groups.last(pool, net[nic]))


@inner
def took_packet(net, pool, nic):
    """Let the next message have its turn; the first leaves when all of it is sent."""
    group = net[nic]
    last = groups.last(pool, group)
    message = rows.next(pool, last)
    if messages.left(pool, message) > 0:
        # Bytes are left: the first becomes the last, which is one step of the round robin.
        groups.set_last(pool, group, message)
    elif message == last:
        net[nic] = rows.next(pool, group)
        free_row(net, pool, group)
    else:
        rows.set_next(pool, last, rows.next(pool, message))
