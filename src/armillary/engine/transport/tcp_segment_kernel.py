"""Segments on their way: made, and taken by output ports that drop at the tail of their queue, and mark."""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.tcp_layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
new_row, free_row = events.new_row, events.free_row
ports = use("armillary.engine.transport.port_kernel")
depth, dropped, marked, enqueue, link_at = (
    ports.depth,
    ports.dropped,
    ports.marked,
    ports.enqueue,
    ports.link_at,
)


@inner
def send(table, net, pool, queue, connection, byte, payload, stamp, now):
    """Let a segment leave, or an ACK (payload 0) on the way back; returns its row.

    It never finds a full queue: an NPU keeps what it makes, and does not mark it.
    """
    row = new_row(net, pool)
    first, last = net[connection + C_FIRST], net[connection + C_LAST]
    pool[row + K_CONNECTION] = connection
    pool[row + K_SIZE] = payload + table[table[T_OPTIONS] + O_HEADER]
    pool[row + K_AT] = first if payload > 0 else last
    pool[row + K_LAST] = last if payload > 0 else first
    pool[row + K_STEP] = 1 if payload > 0 else -1
    pool[row + K_FROM] = -1
    pool[row + K_MARK] = 0
    pool[row + K_BYTE] = byte
    pool[row + K_PAYLOAD] = payload
    pool[row + K_STAMP] = stamp
    pool[row + K_HELD] = 0
    pool[row + K_HELD_END] = 0
    enqueue(table, net, pool, queue, link_at(table, pool, row), row, now)
    return row


@inner
def forward(table, net, pool, queue, link, row, now):
    """Take a segment that came through the network, or drop it, or mark it."""
    waits = depth(net, link)
    if waits > 0 and waits + pool[row + K_SIZE] > table[table[T_BUFFER] + link]:
        dropped(net, link)
        free_row(net, pool, row)
        return
    # The mark of an ACK is the receiver's word.
    marks = waits >= table[table[T_OPTIONS] + O_MARK] and pool[row + K_PAYLOAD] > 0
    if enqueue(table, net, pool, queue, link, row, now) and marks:
        marked(net, pool, link, row)
