"""The receiver of a TCP connection: data in order, gaps, and ACKs, delayed as RFC 1122 section 4.2.3.2 allows.

An ACK tells one interval beyond the gap, the one that has just changed (RFC 2018 allows more): on a FIFO way that is
all its sender can learn, unless ACKs are lost. With DCTCP an ACK tells whether what it acknowledges was marked, and
is sent at once when that changes (RFC 8257 section 3.2).
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.tcp_layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
push, free_row, deliver = events.push, events.free_row, events.deliver
intervals = use("armillary.engine.transport.tcp_interval_kernel")
add = intervals.add
send = use("armillary.engine.transport.tcp_segment_kernel").send


@inner
def receive(table, net, pool, queue, segment, now):
    """Take a segment that has arrived; its row stays the caller's."""
    options = table[T_OPTIONS]
    connection = pool[segment + K_CONNECTION]
    begin = pool[segment + K_BYTE]
    end = begin + pool[segment + K_PAYLOAD]
    stamp = pool[segment + K_STAMP]
    if table[options + O_RULE] == DCTCP and pool[segment + K_MARK] != net[connection + C_MARKED]:
        if net[connection + C_OWED] > 0:
            _answer(table, net, pool, queue, connection, net[connection + C_STAMP], 0, now)
        net[connection + C_MARKED] = pool[segment + K_MARK]
    if end <= net[connection + C_IN_ORDER]:
        _answer(table, net, pool, queue, connection, stamp, net[connection + C_HELD], now)
        return
    if begin > net[connection + C_IN_ORDER]:
        held, _ = add(net, pool, connection + C_HELD, begin, end)
        _answer(table, net, pool, queue, connection, stamp, held, now)
        return
    if net[connection + C_OWED] == 0:
        net[connection + C_STAMP] = stamp
    net[connection + C_OWED] += 1
    gap = net[connection + C_HELD] > 0
    _in_order(net, pool, connection, end)
    if gap or net[connection + C_OWED] >= table[options + O_ACK_EVERY]:
        _answer(table, net, pool, queue, connection, net[connection + C_STAMP], net[connection + C_HELD], now)
    elif net[connection + C_DUE] == 0:
        _due(net, queue, connection, now + table[options + O_ACK_DELAY])


@inner
def ack_due(table, net, pool, queue, connection, now):
    """The event of the timer of delayed ACKs has come."""
    net[connection + C_DUE_EVENT] = 0
    due = net[connection + C_DUE]
    if due > now:
        _due(net, queue, connection, due)
    elif due > 0:
        _answer(table, net, pool, queue, connection, net[connection + C_STAMP], net[connection + C_HELD], now)


@inner
def _due(net, queue, connection, time):
    net[connection + C_DUE] = time
    if net[connection + C_DUE_EVENT] == 0:
        net[connection + C_DUE_EVENT] = time
        push(net, queue, time, connection * CODES + ACK_DUE)


@inner
def _in_order(net, pool, connection, end):
    """All bytes up to `end` are there: join those held beyond, and deliver messages."""
    row = net[connection + C_HELD]
    while row > 0 and pool[row + S_FROM] <= end:
        end = max(end, pool[row + S_TO])
        net[connection + C_HELD] = pool[row + P_NEXT]
        free_row(net, pool, row)
        row = net[connection + C_HELD]
    net[connection + C_IN_ORDER] = end
    message = net[connection + C_MESSAGE]
    while message > 0 and pool[message + M_END] <= end:
        net[connection + C_MESSAGE] = pool[message + P_NEXT]
        deliver(net, pool, message)
        message = net[connection + C_MESSAGE]


@inner
def _answer(table, net, pool, queue, connection, stamp, held, now):
    """Send an ACK that tells the interval in row `held` (0: none)."""
    net[connection + C_OWED] = 0
    net[connection + C_DUE] = 0
    row = send(table, net, pool, queue, connection, net[connection + C_IN_ORDER], 0, stamp, now)
    pool[row + K_MARK] = net[connection + C_MARKED]
    if held > 0:
        pool[row + K_HELD] = pool[held + S_FROM]
        pool[row + K_HELD_END] = pool[held + S_TO]
