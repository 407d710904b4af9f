"""Messages of one route leave one after the other, as on a connection; the most urgent of those that wait is next.

Those that come in the order in which they are to leave wait in a list. Any other waits in a pairing heap (Fredman,
Sedgewick, Sleator, Tarjan, Algorithmica 1986), whose children are lists by P_NEXT; of equal keys the first to wait is
the first.
"""

from __future__ import annotations

from armillary.base.jit import inner
from armillary.engine.transport.layout_kernel import *


@inner
def _before(pool, a, b, key_at):
    """Tell whether a message that waits is to leave before another."""
    if pool[a + key_at] != pool[b + key_at]:
        return pool[a + key_at] < pool[b + key_at]
    return pool[a + P_TURN] < pool[b + P_TURN]


@inner
def _meld(pool, a, b, key_at):
    """Join two heaps, of which none is empty; returns the root."""
    if _before(pool, b, a, key_at):
        pool[a + P_NEXT] = pool[b + P_CHILD]
        pool[b + P_CHILD] = a
        return b
    pool[b + P_NEXT] = pool[a + P_CHILD]
    pool[a + P_CHILD] = b
    return a


@inner
def _without_root(pool, root, key_at):
    """Return the root of a heap without its first: its children are joined in pairs, and these from the last on."""
    pairs = 0
    child = pool[root + P_CHILD]
    while child > 0:
        other = pool[child + P_NEXT]
        after = 0
        if other > 0:
            after = pool[other + P_NEXT]
            child = _meld(pool, child, other, key_at)
        pool[child + P_NEXT] = pairs
        pairs = child
        child = after
    joined = pairs
    if pairs > 0:
        pairs = pool[pairs + P_NEXT]
    while pairs > 0:
        after = pool[pairs + P_NEXT]
        joined = _meld(pool, joined, pairs, key_at)
        pairs = after
    return joined


@inner
def admit(net, pool, route, row, key, key_at):
    """Tell whether a message may begin to leave; else it waits. Its key stands at column `key_at` of its row."""
    gate = net[N_GATES] + route * GA_COLUMNS
    if net[gate + GA_BUSY] == 0:
        net[gate + GA_BUSY] = 1
        return True
    net[gate + GA_COUNT] += 1
    pool[row + P_TURN] = net[gate + GA_COUNT]
    pool[row + P_CHILD] = 0
    pool[row + P_NEXT] = 0
    if net[gate + GA_FIRST] == 0:
        net[gate + GA_FIRST] = row
        net[gate + GA_LAST] = row
    elif pool[net[gate + GA_LAST] + key_at] <= key:
        pool[net[gate + GA_LAST] + P_NEXT] = row
        net[gate + GA_LAST] = row
    elif net[gate + GA_ROOT] == 0:
        net[gate + GA_ROOT] = row
    else:
        net[gate + GA_ROOT] = _meld(pool, net[gate + GA_ROOT], row, key_at)
    return False


@inner
def left(net, pool, route, key_at):
    """The last byte of a route's message has left: return the message that may begin, or 0."""
    gate = net[N_GATES] + route * GA_COLUMNS
    row = net[gate + GA_FIRST]
    root = net[gate + GA_ROOT]
    if root > 0 and (row == 0 or _before(pool, root, row, key_at)):
        net[gate + GA_ROOT] = _without_root(pool, root, key_at)
        return root
    if row == 0:
        net[gate + GA_BUSY] = 0
        return 0
    net[gate + GA_FIRST] = pool[row + P_NEXT]
    return row
