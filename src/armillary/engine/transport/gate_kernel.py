"""Messages of one route leave one after the other, as on a connection; the most urgent of those that wait is next.

Messages that come in the order in which they are to leave wait in a list. Any other waits in a pairing heap (Fredman,
Sedgewick, Sleator, Tarjan, Algorithmica 1986), whose children are lists by P_NEXT; among equal keys the first to wait
leaves first.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner
from armillary.engine.transport import layout as lk

gates, rows = accessors(lk.GATE, lk.ROW)


@inner
def _before(pool, a, b, key_at):
    """Tell whether a message that waits is to leave before another."""
    # The turn breaks ties, also between the list and the heap.
    if pool[a + key_at] != pool[b + key_at]:
        return pool[a + key_at] < pool[b + key_at]
    return rows.turn(pool, a) < rows.turn(pool, b)


@inner
def _meld(pool, a, b, key_at):
    """Meld two heaps that are not empty; returns the root."""
    if _before(pool, b, a, key_at):
        rows.set_next(pool, a, rows.child(pool, b))
        rows.set_child(pool, b, a)
        return b
    rows.set_next(pool, b, rows.child(pool, a))
    rows.set_child(pool, a, b)
    return a


@inner
def _without_root(pool, root, key_at):
    """Return the root of a heap without its first: children are melded in pairs, then the pairs from last to first."""
    # Pairs are pushed on a stack, so that the second pass meets them from the last on.
    pairs = 0
    child = rows.child(pool, root)
    while child > 0:
        other = rows.next(pool, child)
        after = 0
        if other > 0:
            after = rows.next(pool, other)
            child = _meld(pool, child, other, key_at)
        rows.set_next(pool, child, pairs)
        pairs = child
        child = after
    joined = pairs
    if pairs > 0:
        pairs = rows.next(pool, pairs)
    while pairs > 0:
        after = rows.next(pool, pairs)
        joined = _meld(pool, joined, pairs, key_at)
        pairs = after
    return joined


@inner
def admit(net, pool, route, row, key, key_at):
    """Tell whether a message may begin to leave; else it waits. Its key stands at column `key_at` of its row."""
    if gates.busy(net, route) == 0:
        gates.set_busy(net, route, 1)
        return True
    gates.add_count(net, route, 1)
    rows.set_turn(pool, row, gates.count(net, route))
    rows.set_child(pool, row, 0)
    rows.set_next(pool, row, 0)
    # The common case: keys rise with time, and appending to a sorted list is O(1).
    if gates.first(net, route) == 0:
        gates.set_first(net, route, row)
        gates.set_last(net, route, row)
    elif pool[gates.last(net, route) + key_at] <= key:
        rows.set_next(pool, gates.last(net, route), row)
        gates.set_last(net, route, row)
    # A more urgent message than the last of the list: it goes to the heap.
    elif gates.root(net, route) == 0:
        gates.set_root(net, route, row)
    else:
        gates.set_root(net, route, _meld(pool, gates.root(net, route), row, key_at))
    return False


@inner
def left(net, pool, route, key_at):
    """The last byte of a route's message has left: return the message that may begin, or 0."""
    row = gates.first(net, route)
    root = gates.root(net, route)
    # The next message is the lower of the two heads.
    if root > 0 and (row == 0 or _before(pool, root, row, key_at)):
        gates.set_root(net, route, _without_root(pool, root, key_at))
        return root
    if row == 0:
        gates.set_busy(net, route, 0)
        return 0
    gates.set_first(net, route, rows.next(pool, row))
    return row
