"""The receiver of a TCP connection: data in order, gaps, and ACKs, delayed as RFC 1122 section 4.2.3.2 allows.

An ACK names one interval beyond the gap, the one that has just changed (RFC 2018 allows more): on a FIFO path that is
all its sender can learn, unless ACKs are lost. With DCTCP an ACK says whether the bytes it acknowledges were marked,
and is sent at once when that changes (RFC 8257 section 3.2).
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.tcp import layout as tk

queue_kernel = use("armillary.engine.transport.queue_kernel")
push, free_row, deliver = queue_kernel.push, queue_kernel.free_row, queue_kernel.deliver
tcp_interval_kernel = use("armillary.engine.transport.tcp.tcp_interval_kernel")
add = tcp_interval_kernel.add
send = use("armillary.engine.transport.tcp.tcp_segment_kernel").send
connections, intervals, messages, option = accessors(tk.CONNECTION, tk.INTERVAL, tk.MESSAGE, tk.OPTION)
rows, segments = accessors(lk.ROW, tk.SEGMENT)


@inner
def receive(table, net, pool, queue, segment, now):
    """Process a segment that has arrived; the caller frees its row."""
    options = table[lk.T_OPTIONS]
    connection = segments.message(pool, segment)
    begin = segments.byte(pool, segment)
    end = begin + segments.payload(pool, segment)
    stamp = segments.stamp(pool, segment)
    if option.rule(table, options) == tk.DCTCP and segments.mark(pool, segment) != connections.marked(
        net, connection
    ):
        # What is owed came with the other mark: it is acknowledged before the mark changes.
        if connections.owed(net, connection) > 0:
            _answer(table, net, pool, queue, connection, connections.stamp(net, connection), 0, now)
        connections.set_marked(net, connection, segments.mark(pool, segment))
    # Nothing new: a segment that was resent needlessly is acknowledged at once (RFC 5681 section 4.2).
    if end <= connections.in_order(net, connection):
        _answer(table, net, pool, queue, connection, stamp, connections.held(net, connection), now)
        return
    # Beyond a gap: an immediate duplicate ACK tells the sender of the hole.
    if begin > connections.in_order(net, connection):
        held, _ = add(net, pool, connections.at_held(net, connection), begin, end)
        _answer(table, net, pool, queue, connection, stamp, held, now)
        return
    if connections.owed(net, connection) == 0:
        # The timestamp echoed is that of the first segment that the ACK covers, so that the delay counts (RFC
        # 7323).
        connections.set_stamp(net, connection, stamp)
    connections.add_owed(net, connection, 1)
    quick = connections.quick(net, connection)
    connections.set_quick(net, connection, max(quick - 1, 0))
    gap = connections.held(net, connection) > 0
    _in_order(net, pool, connection, end)
    # A segment that fills a gap is acknowledged at once, too: the sender is in recovery and waits for it.
    if gap or quick > 0 or connections.owed(net, connection) >= option.ack_every(table, options):
        _answer_owed(table, net, pool, queue, connection, now)
    elif connections.pending(net, connection) == 0:
        _pending(net, queue, connection, now + option.ack_delay(table, options))


@inner
def ack_pending(table, net, pool, queue, connection, now):
    """The event of the timer of delayed ACKs has come."""
    connections.set_pending_event(net, connection, 0)
    pending = connections.pending(net, connection)
    # The ACK was sent with another segment and a later one is owed: the same event is scheduled again.
    if pending > now:
        _pending(net, queue, connection, pending)
    elif pending > 0:
        _answer_owed(table, net, pool, queue, connection, now)


@inner
def _answer_owed(table, net, pool, queue, connection, now):
    """Send the ACK that is owed, with the timestamp of the first segment that it covers."""
    stamp, held = connections.stamp(net, connection), connections.held(net, connection)
    _answer(table, net, pool, queue, connection, stamp, held, now)


@inner
def _pending(net, queue, connection, time):
    connections.set_pending(net, connection, time)
    # One event at a time; moving it later is done when it comes.
    if connections.pending_event(net, connection) == 0:
        connections.set_pending_event(net, connection, time)
        push(net, queue, time, connection * lk.CODES + tk.ACK_PENDING)


@inner
def _in_order(net, pool, connection, end):
    """All bytes up to `end` are there: join those held beyond, and deliver messages."""
    row = connections.held(net, connection)
    while row > 0 and intervals.begin(pool, row) <= end:
        end = max(end, intervals.end(pool, row))
        connections.set_held(net, connection, rows.next(pool, row))
        free_row(net, pool, row)
        row = connections.held(net, connection)
    connections.set_in_order(net, connection, end)
    # Messages end at byte positions of the connection: several may end with one segment.
    message = connections.message(net, connection)
    while message > 0 and messages.end(pool, message) <= end:
        connections.set_message(net, connection, rows.next(pool, message))
        deliver(net, pool, message)
        message = connections.message(net, connection)


@inner
def _answer(table, net, pool, queue, connection, stamp, held, now):
    """Send an ACK that names the interval in row `held` (0: none)."""
    connections.set_owed(net, connection, 0)
    connections.set_pending(net, connection, 0)
    row = send(table, net, pool, queue, connection, connections.in_order(net, connection), 0, stamp, now)
    segments.set_mark(pool, row, connections.marked(net, connection))
    if held > 0:
        segments.set_held(pool, row, intervals.begin(pool, held))
        segments.set_held_end(pool, row, intervals.end(pool, held))
