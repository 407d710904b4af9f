"""The receiver of a TCP connection: data in order, gaps, and ACKs, delayed as RFC 1122 section 4.2.3.2 allows.

An ACK tells one interval beyond the gap, the one that has just changed (RFC 2018 allows up to four): on a FIFO way
that is as much as the sender can learn, unless ACKs are lost. With DCTCP an ACK tells whether what it acknowledges was
marked, and is sent at once when that changes (RFC 8257 section 3.2).
"""

from __future__ import annotations

from armillary.engine.transport.tcp_layout_kernel import *
from armillary.jit import inner, use

events = use("armillary.engine.transport.queue_kernel")
push, new_row, deliver = events.push, events.new_row, events.deliver
intervals = use("armillary.engine.transport.tcp_interval_kernel")
add = intervals.add
leave = use("armillary.engine.transport.tcp_port_kernel").leave


@inner
def answer(table, net, pool, queue, connection, stamp, held, now):
    """Send an ACK that tells the interval in row `held` (0: none)."""
    row = new_row(net, pool)
    pool[row + K_CONNECTION] = connection
    pool[row + K_AT] = table[T_WAYS] + net[connection + C_BACK]
    pool[row + K_END] = table[T_WAYS] + net[connection + C_BACK_END]
    pool[row + K_SEQUENCE] = net[connection + C_IN_ORDER]
    pool[row + K_SIZE] = 0
    pool[row + K_WIRE] = table[table[T_OPTIONS] + O_HEADER]
    pool[row + K_STAMP] = stamp
    pool[row + K_MARK] = net[connection + C_MARKED]
    pool[row + K_FROM] = 0
    pool[row + K_TO] = 0
    if held > 0:
        pool[row + K_FROM] = pool[held + S_FROM]
        pool[row + K_TO] = pool[held + S_TO]
    net[connection + C_OWED] = 0
    net[connection + C_DUE] = 0
    leave(table, net, pool, queue, row, 1, now)


@inner
def receive(table, net, pool, queue, packet, now):
    """Take a segment that has arrived."""
    options = table[T_OPTIONS]
    connection = pool[packet + K_CONNECTION]
    begin = pool[packet + K_SEQUENCE]
    end = begin + pool[packet + K_SIZE]
    stamp = pool[packet + K_STAMP]
    if table[options + O_RULE] == DCTCP and pool[packet + K_MARK] != net[connection + C_MARKED]:
        if net[connection + C_OWED] > 0:
            answer(table, net, pool, queue, connection, net[connection + C_STAMP], 0, now)
        net[connection + C_MARKED] = pool[packet + K_MARK]
    if end <= net[connection + C_IN_ORDER]:
        answer(table, net, pool, queue, connection, stamp, net[connection + C_HELD], now)
        return
    if begin > net[connection + C_IN_ORDER]:
        held, _ = add(net, pool, connection + C_HELD, begin, end)
        answer(table, net, pool, queue, connection, stamp, held, now)
        return
    if net[connection + C_OWED] == 0:
        net[connection + C_STAMP] = stamp
    net[connection + C_OWED] += 1
    in_order(net, pool, connection, end)
    had_gap = pool[packet + K_FROM] > 0
    if had_gap or net[connection + C_OWED] >= table[options + O_ACK_EVERY]:
        answer(table, net, pool, queue, connection, net[connection + C_STAMP], net[connection + C_HELD], now)
    elif net[connection + C_DUE] == 0:
        net[connection + C_DUE] = now + table[options + O_ACK_DELAY]
        if net[connection + C_DUE_EVENT] == 0:
            net[connection + C_DUE_EVENT] = net[connection + C_DUE]
            push(net, queue, net[connection + C_DUE], connection * CODES + ACK_DUE)
