"""Intervals of bytes beyond a gap, as sorted lists of rows: what a receiver holds, and what its sender knows of it."""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.tcp_layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
new_row, free_row = events.new_row, events.free_row


@inner
def add(net, pool, place, begin, end):
    """Add bytes to the list whose first row stands at `net[place]`.

    Returns the row that now holds them, and how many of them are new.
    """
    before = 0
    row = net[place]
    while row > 0 and pool[row + S_TO] < begin:
        before = row
        row = pool[row + P_NEXT]
    fresh = end - begin
    if row == 0 or pool[row + S_FROM] > end:
        new = new_row(net, pool)
        pool[new + S_FROM] = begin
        pool[new + S_TO] = end
        pool[new + P_NEXT] = row
        if before > 0:
            pool[before + P_NEXT] = new
        else:
            net[place] = new
        return new, fresh
    fresh -= max(0, min(end, pool[row + S_TO]) - max(begin, pool[row + S_FROM]))
    other = pool[row + P_NEXT]
    while other > 0 and pool[other + S_FROM] <= end:
        fresh -= max(0, min(end, pool[other + S_TO]) - pool[other + S_FROM])
        end = max(end, pool[other + S_TO])
        pool[row + P_NEXT] = pool[other + P_NEXT]
        free_row(net, pool, other)
        other = pool[row + P_NEXT]
    pool[row + S_FROM] = min(begin, pool[row + S_FROM])
    pool[row + S_TO] = max(end, pool[row + S_TO])
    return row, fresh


@inner
def cut(net, pool, place, below):
    """Forget the bytes before `below`; returns how many these were."""
    gone = 0
    row = net[place]
    while row > 0 and pool[row + S_FROM] < below:
        if pool[row + S_TO] > below:
            gone += below - pool[row + S_FROM]
            pool[row + S_FROM] = below
            break
        gone += pool[row + S_TO] - pool[row + S_FROM]
        net[place] = pool[row + P_NEXT]
        free_row(net, pool, row)
        row = net[place]
    return gone


@inner
def gap(net, pool, place, begin, end):
    """Return the first gap within [begin, end), as its begin and end; (-1, -1) if there is none."""
    row = net[place]
    while row > 0 and pool[row + S_FROM] <= begin:
        begin = max(begin, pool[row + S_TO])
        row = pool[row + P_NEXT]
    if begin >= end:
        return -1, -1
    if row > 0:
        end = min(end, pool[row + S_FROM])
    return begin, end


@inner
def missing(net, pool, place, begin, end):
    """Return how many bytes of [begin, end) are not in the list."""
    if begin >= end:
        return 0
    count = end - begin
    row = net[place]
    while row > 0 and pool[row + S_FROM] < end:
        count -= max(0, min(end, pool[row + S_TO]) - max(begin, pool[row + S_FROM]))
        row = pool[row + P_NEXT]
    return count


@inner
def edge(net, pool, place, held, most):
    """Return the begin of the last interval from which on more than `most` of the `held` bytes are; 0: none."""
    begin = 0
    row = net[place]
    while row > 0 and held > most:
        begin = pool[row + S_FROM]
        held -= pool[row + S_TO] - begin
        row = pool[row + P_NEXT]
    return begin


@inner
def highest(net, pool, place):
    """Return the end of the last interval; 0 if there is none."""
    end = 0
    row = net[place]
    while row > 0:
        end = pool[row + S_TO]
        row = pool[row + P_NEXT]
    return end
