"""Queues of protocol `rdma`: ACKs before data; a full queue pauses who fills it, drops, or cuts packets to headers.

Trimming (Handley et al., NDP, SIGCOMM 2017): where data does not fit, in half of the cases the packet that came, else
the last of the queue, loses its payload and goes on among ACKs, so that the receiver knows at once. Packets are marked
when they leave a queue, by what waits behind them. For HPCC every link adds a record to the packets that it sends.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.rdma import layout as rl
from armillary.engine.transport.switch import layout as pk

queue_kernel = use("armillary.engine.transport.queue_kernel")
push_ordered, new_row, free_row = queue_kernel.push_ordered, queue_kernel.new_row, queue_kernel.free_row
port_kernel = use("armillary.engine.transport.switch.port_kernel")
depth, dropped, marked, arm = port_kernel.depth, port_kernel.dropped, port_kernel.marked, port_kernel.arm
transmit, dequeue = port_kernel.transmit, port_kernel.dequeue
use_kernel = use("armillary.engine.transport.use_kernel")
link_row, waiting = use_kernel.link_row, use_kernel.waiting
pause_kernel = use("armillary.engine.transport.switch.pause_kernel")
hold, release = pause_kernel.hold, pause_kernel.release
mark_kernel = use("armillary.engine.transport.switch.mark_kernel")
mix, is_marked = mark_kernel.mix, mark_kernel.is_marked
links, packets, ports, rooms = accessors(lk.LINK, rl.PACKET, rl.PORT, rl.ROOMS)
records, rows, uses, option = accessors(rl.RECORD, lk.ROW, lk.USE, rl.OPTION)


@inner
def drop_records(net, pool, row):
    """Free the records that a packet has gathered."""
    while row > 0:
        after = records.next(pool, row)
        free_row(net, pool, row)
        row = after


@inner
def discard(net, pool, row):
    """Free a packet."""
    drop_records(net, pool, packets.trail(pool, row))
    free_row(net, pool, row)


@inner
def _arm_urgent(table, net, queue, link, now):
    """Let START come although data is paused."""
    if ports.armed(net, link) == 0 and links.slow(table, link_row(table, net, link)) > 0:
        ports.set_armed(net, link, 1)
        what = link * lk.CODES + pk.START
        push_ordered(net, queue, max(now, ports.free(net, link)), what - pk.BEFORE, what)


@inner
def leave(table, net, pool, queue, link, row, now):
    """Transmit a packet on a port that is free, and mark it by what waits behind it."""
    options = table[lk.T_OPTIONS]
    if packets.kind(pool, row) == rl.DATA:
        lowest = rooms.lowest(table, link)
        waits = depth(net, link)
        if lowest >= 0 and is_marked(
            lowest,
            rooms.highest(table, link),
            option.most(table, options),
            option.seed(table, options),
            link,
            net[lk.N_EVENTS],
            waits,
        ):
            marked(net, pool, link, row)
    transmit(table, net, pool, queue, link, row, now)
    if packets.kind(pool, row) == rl.DATA and option.rule(table, options) == rl.HPCC:
        record = new_row(net, pool)
        records.set_next(pool, record, packets.trail(pool, row))
        records.set_link(pool, record, link)
        records.set_depth(pool, record, depth(net, link))
        records.set_bytes(pool, record, uses.bytes(net, link))
        records.set_time(pool, record, now)
        packets.set_trail(pool, row, record)


@inner
def _free_now(table, net, link, now):
    up = links.slow(table, link_row(table, net, link)) > 0
    return up and ports.armed(net, link) == 0 and ports.free(net, link) <= now


@inner
def take_urgent(table, net, pool, queue, link, row, now):
    """Take an ACK, or a packet without payload, at the tail of a link; it overtakes data."""
    if _free_now(table, net, link, now):
        leave(table, net, pool, queue, link, row, now)
        return
    size = packets.size(pool, row)
    # Twice the room of data, as htsim's composite queue has it. A pausing network loses nothing.
    full = ports.urgent_bytes(net, link) + size > 2 * rooms.room(table, link)
    if full and option.full(table, table[lk.T_OPTIONS]) != rl.PAUSE and rooms.owned(table, link) == 0:
        dropped(net, link)
        discard(net, pool, row)
        return
    rows.set_next(pool, row, 0)
    if ports.urgent(net, link) == 0:
        ports.set_urgent(net, link, row)
    else:
        rows.set_next(pool, ports.urgent_last(net, link), row)
    ports.set_urgent_last(net, link, row)
    ports.add_urgent_bytes(net, link, size)
    _arm_urgent(table, net, queue, link, now)


@inner
def _swap(pool, a, b):
    """Let two packets change rows; their places in lists stay."""
    for i in range(1, lk.P_COLUMNS):
        kept = pool[a + i]
        pool[a + i] = pool[b + i]
        pool[b + i] = kept


@inner
def take(table, net, pool, queue, link, row, now):
    """Take a packet that came through the network, or was made by an NPU, at the tail of a link."""
    if packets.kind(pool, row) != rl.DATA:
        take_urgent(table, net, pool, queue, link, row, now)
        return
    if ports.shut(net, link) == 0 and _free_now(table, net, link, now):
        leave(table, net, pool, queue, link, row, now)
        return
    options = table[lk.T_OPTIONS]
    waits = depth(net, link)
    full = option.full(table, options)
    if full != rl.PAUSE and waits > 0 and waits + packets.size(pool, row) > rooms.room(table, link):
        if full == rl.DROP:
            dropped(net, link)
            discard(net, pool, row)
            return
        last = ports.last(net, link)
        # As large: otherwise the bytes of the queue would change.
        as_large = packets.size(pool, last) == packets.size(pool, row)
        if as_large and mix(mix(option.seed(table, options), link), net[lk.N_EVENTS]) & 1 == 0:
            _swap(pool, row, last)
        dropped(net, link)
        packets.set_kind(pool, row, rl.HEADER)
        # What the receiver asks of a header: whether its own link was the cause.
        packets.set_mark(pool, row, rooms.last(table, link))
        packets.set_size(pool, row, option.ack(table, options))
        take_urgent(table, net, pool, queue, link, row, now)
        return
    rows.set_next(pool, row, 0)
    if ports.first(net, link) == 0:
        ports.set_first(net, link, row)
    else:
        rows.set_next(pool, ports.last(net, link), row)
    ports.set_last(net, link, row)
    waiting(table, net, link, waits + packets.size(pool, row), now)
    arm(table, net, queue, link, now)
    if packets.source(pool, row) >= 0:
        hold(table, net, queue, packets.source(pool, row), packets.size(pool, row), now)


@inner
def next_urgent(net, pool, link):
    """Take the first ACK or header out of its queue; 0: there is none."""
    row = ports.urgent(net, link)
    if row > 0:
        ports.set_urgent(net, link, rows.next(pool, row))
        ports.add_urgent_bytes(net, link, -packets.size(pool, row))
    return row


@inner
def next_data(table, net, pool, queue, link, now):
    """Take the first packet out of the queue of a link; it leaves the buffer of the link that it came by."""
    row = dequeue(net, pool, link)
    if packets.source(pool, row) >= 0:
        release(table, net, queue, packets.source(pool, row), packets.size(pool, row), now)
    return row


@inner
def works(net, link):
    """Tell whether data waits for a link."""
    return ports.first(net, link) > 0 or ports.ready(net, link) > 0


@inner
def go_on(table, net, queue, link, now):
    """Let the port come again if anything waits for it."""
    if ports.urgent(net, link) > 0:
        _arm_urgent(table, net, queue, link, now)
    elif works(net, link):
        arm(table, net, queue, link, now)
