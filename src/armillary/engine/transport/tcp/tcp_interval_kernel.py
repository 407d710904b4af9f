"""Intervals of bytes beyond a gap, as sorted lists of rows: what a receiver holds, and what its sender knows of it."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.tcp import layout as tk

queue_kernel = use("armillary.engine.transport.queue_kernel")
new_row, free_row = queue_kernel.new_row, queue_kernel.free_row
intervals, rows = accessors(tk.INTERVAL, lk.ROW)


@inner
def add(net, pool, place, begin, end):
    """Add bytes to the list whose first row stands at `net[place]`.

    Returns the row that now holds them, and the number of bytes that are new.
    """
    before = 0
    row = net[place]
    # Strict: an interval that ends where this begins is joined, so that lists stay short.
    while row > 0 and intervals.end(pool, row) < begin:
        before = row
        row = rows.next(pool, row)
    # Everything counts as new first; each overlap is subtracted, as SACK counts bytes once.
    fresh = end - begin
    if row == 0 or intervals.begin(pool, row) > end:
        new = new_row(net, pool)
        intervals.set_begin(pool, new, begin)
        intervals.set_end(pool, new, end)
        rows.set_next(pool, new, row)
        if before > 0:
            rows.set_next(pool, before, new)
        else:
            net[place] = new
        return new, fresh
    fresh -= max(0, min(end, intervals.end(pool, row)) - max(begin, intervals.begin(pool, row)))
    # The enlarged interval may swallow several that follow.
    other = rows.next(pool, row)
    while other > 0 and intervals.begin(pool, other) <= end:
        fresh -= max(0, min(end, intervals.end(pool, other)) - intervals.begin(pool, other))
        end = max(end, intervals.end(pool, other))
        rows.set_next(pool, row, rows.next(pool, other))
        free_row(net, pool, other)
        other = rows.next(pool, row)
    intervals.set_begin(pool, row, min(begin, intervals.begin(pool, row)))
    intervals.set_end(pool, row, max(end, intervals.end(pool, row)))
    return row, fresh


@inner
def cut(net, pool, place, below):
    """Forget the bytes before `below`; returns their number."""
    gone = 0
    row = net[place]
    while row > 0 and intervals.begin(pool, row) < below:
        if intervals.end(pool, row) > below:
            gone += below - intervals.begin(pool, row)
            intervals.set_begin(pool, row, below)
            break
        gone += intervals.end(pool, row) - intervals.begin(pool, row)
        net[place] = rows.next(pool, row)
        free_row(net, pool, row)
        row = net[place]
    return gone


@inner
def gap(net, pool, place, begin, end):
    """Return the first gap within [begin, end), as its begin and end; (-1, -1) if there is none."""
    row = net[place]
    # An interval that covers the begin moves the gap behind it.
    while row > 0 and intervals.begin(pool, row) <= begin:
        begin = max(begin, intervals.end(pool, row))
        row = rows.next(pool, row)
    if begin >= end:
        return -1, -1
    if row > 0:
        end = min(end, intervals.begin(pool, row))
    return begin, end


@inner
def missing(net, pool, place, begin, end):
    """Return the number of bytes of [begin, end) that are not in the list."""
    if begin >= end:
        return 0
    count = end - begin
    row = net[place]
    while row > 0 and intervals.begin(pool, row) < end:
        count -= max(0, min(end, intervals.end(pool, row)) - max(begin, intervals.begin(pool, row)))
        row = rows.next(pool, row)
    return count


@inner
def edge(net, pool, place, held, most):
    """Return the begin of the last interval from which on more than `most` of the `held` bytes are; 0: none."""
    # From the lowest on, until at most `most` of the bytes held are in intervals that follow.
    begin = 0
    row = net[place]
    while row > 0 and held > most:
        begin = intervals.begin(pool, row)
        held -= intervals.end(pool, row) - begin
        row = rows.next(pool, row)
    return begin


@inner
def highest(net, pool, place):
    """Return the end of the last interval; 0 if there is none."""
    end = 0
    row = net[place]
    while row > 0:
        end = intervals.end(pool, row)
        row = rows.next(pool, row)
    return end
