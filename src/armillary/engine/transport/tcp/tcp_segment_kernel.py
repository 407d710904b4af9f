"""Segments in the network: created, and taken by output ports that mark, and drop at the tail of their queue."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.tcp import layout as tk

queue_kernel = use("armillary.engine.transport.queue_kernel")
new_row, free_row = queue_kernel.new_row, queue_kernel.free_row
port_kernel = use("armillary.engine.transport.switch.port_kernel")
depth, dropped, marked, enqueue, link_at = (
    port_kernel.depth,
    port_kernel.dropped,
    port_kernel.marked,
    port_kernel.enqueue,
    port_kernel.link_at,
)
buffers, connections, option, segments = accessors(tk.BUFFERS, tk.CONNECTION, tk.OPTION, tk.SEGMENT)


@inner
def send(table, net, pool, queue, connection, byte, payload, stamp, now):
    """Let a segment leave, or an ACK (payload 0) on the way back; returns its row.

    It never finds a full queue: an NPU keeps what it makes, and does not mark it.
    """
    row = new_row(net, pool)
    # An ACK uses the same route from its last place to its first; step -1 takes the reverse links.
    first, last = (connections.first(net, connection), connections.last(net, connection))
    segments.set_message(pool, row, connection)
    segments.set_size(pool, row, payload + option.header(table, table[lk.T_OPTIONS]))
    segments.set_at(pool, row, first if payload > 0 else last)
    segments.set_last(pool, row, last if payload > 0 else first)
    segments.set_step(pool, row, 1 if payload > 0 else -1)
    segments.set_source(pool, row, -1)
    segments.set_mark(pool, row, 0)
    segments.set_byte(pool, row, byte)
    segments.set_payload(pool, row, payload)
    segments.set_stamp(pool, row, stamp)
    segments.set_held(pool, row, 0)
    segments.set_held_end(pool, row, 0)
    enqueue(table, net, pool, queue, link_at(table, pool, row), row, now)
    return row


@inner
def forward(table, net, pool, queue, link, row, now):
    """Take a segment that came through the network, or drop it, or mark it."""
    waits = depth(net, link)
    # An empty queue always takes a packet, since rooms are at least one packet.
    if waits > 0 and waits + segments.size(pool, row) > buffers.room(table, link):
        dropped(net, link)
        free_row(net, pool, row)
        return
    # The mark of an ACK echoes what the receiver saw; queues must not change it.
    marks = waits >= option.mark(table, table[lk.T_OPTIONS]) and segments.payload(pool, row) > 0
    if enqueue(table, net, pool, queue, link, row, now) and marks:
        marked(net, pool, link, row)
