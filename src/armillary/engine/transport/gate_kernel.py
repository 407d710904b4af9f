"""Messages of one route leave one after the other, as on a connection; the most urgent of those that wait is next."""

from __future__ import annotations

from armillary.engine.transport.layout_kernel import *
from armillary.jit import inner


@inner
def admit(net, pool, route, row, key, key_at):
    """Tell whether a message may begin to leave; else it waits. Its key stands at column `key_at` of its row."""
    gate = net[N_GATES] + route * GA_COLUMNS
    if net[gate + GA_BUSY] == 0:
        net[gate + GA_BUSY] = 1
        return True
    before = 0
    after = net[gate + GA_FIRST]
    if after > 0 and pool[net[gate + GA_LAST] + key_at] <= key:
        before = net[gate + GA_LAST]
        after = 0
    while after > 0 and pool[after + key_at] <= key:
        before = after
        after = pool[after + P_NEXT]
    pool[row + P_NEXT] = after
    if before > 0:
        pool[before + P_NEXT] = row
    else:
        net[gate + GA_FIRST] = row
    if after == 0:
        net[gate + GA_LAST] = row
    return False


@inner
def left(net, pool, route):
    """The last byte of a route's message has left: return the message that may begin, or 0."""
    gate = net[N_GATES] + route * GA_COLUMNS
    row = net[gate + GA_FIRST]
    if row == 0:
        net[gate + GA_BUSY] = 0
        return 0
    net[gate + GA_FIRST] = pool[row + P_NEXT]
    return row
