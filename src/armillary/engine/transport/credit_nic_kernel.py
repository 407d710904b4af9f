"""Messages that wait at an NPU for a link: the lowest key first, equal ones in turn, a packet of each."""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.credit_layout_kernel import *
from armillary.engine.transport.layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
new_row, free_row = events.new_row, events.free_row


@inner
def enqueue(net, pool, nic, message, key):
    """Add a message; `nic` is the address in `net` of a link's first group."""
    before = 0
    group = net[nic]
    while group > 0 and pool[group + G_KEY] < key:
        before = group
        group = pool[group + P_NEXT]
    if group > 0 and pool[group + G_KEY] == key:
        last = pool[group + G_LAST]
        pool[message + P_NEXT] = pool[last + P_NEXT]
        pool[last + P_NEXT] = message
        pool[group + G_LAST] = message
        return
    made = new_row(net, pool)
    pool[made + P_NEXT] = group
    pool[made + G_KEY] = key
    pool[made + G_LAST] = message
    pool[message + P_NEXT] = message
    if before > 0:
        pool[before + P_NEXT] = made
    else:
        net[nic] = made


@inner
def first_message(net, pool, nic):
    """Return the message whose turn it is."""
    return pool[pool[net[nic] + G_LAST] + P_NEXT]


@inner
def took_packet(net, pool, nic):
    """Let the next message have its turn; the first leaves when all of it is sent."""
    group = net[nic]
    last = pool[group + G_LAST]
    message = pool[last + P_NEXT]
    if pool[message + M_LEFT] > 0:
        pool[group + G_LAST] = message
    elif message == last:
        net[nic] = pool[group + P_NEXT]
        free_row(net, pool, group)
    else:
        pool[last + P_NEXT] = pool[message + P_NEXT]
