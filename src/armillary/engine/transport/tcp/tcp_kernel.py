"""TCP over output ports that drop at the tail: messages are bytes on connections, one connection for each path.

A persistent connection keeps its window and its estimate of the round trip between messages; otherwise a message
that finds it idle begins as on a new one. A handshake is a wait, of a round trip in an empty network.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.switch import layout as pk
from armillary.engine.transport.tcp import layout as tk

queue_kernel = use("armillary.engine.transport.queue_kernel")
push, pop, deliver = queue_kernel.push, queue_kernel.pop, queue_kernel.deliver
comes, reached = queue_kernel.comes, queue_kernel.reached
new_row, free_row = queue_kernel.new_row, queue_kernel.free_row
port_kernel = use("armillary.engine.transport.switch.port_kernel")
onward, arm, started = port_kernel.onward, port_kernel.arm, port_kernel.started
transmit_packet, dequeue, arrive, change_ports = (
    port_kernel.transmit,
    port_kernel.dequeue,
    port_kernel.arrive,
    port_kernel.change_ports,
)
forward = use("armillary.engine.transport.tcp.tcp_segment_kernel").forward
tcp_sender_kernel = use("armillary.engine.transport.tcp.tcp_sender_kernel")
transmit, acknowledged, timeout = (
    tcp_sender_kernel.transmit,
    tcp_sender_kernel.acknowledged,
    tcp_sender_kernel.timeout,
)
tcp_receiver_kernel = use("armillary.engine.transport.tcp.tcp_receiver_kernel")
receive, ack_pending = tcp_receiver_kernel.receive, tcp_receiver_kernel.ack_pending
connections, messages, option, places = accessors(tk.CONNECTION, tk.MESSAGE, tk.OPTION, tk.PLACES)
ports, rows, segments = accessors(pk.PORT, lk.ROW, tk.SEGMENT)


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps); the key has no meaning here. An empty one is one byte."""
    row = new_row(net, pool)
    rows.set_next(pool, row, 0)
    rows.set_cookie(pool, row, cookie)
    net[lk.N_IN_FLIGHT] += 1
    # -1: the route leads to its own NPU.
    place = places.connection(table, route)
    if place < 0:
        push(net, queue, now, row * lk.CODES + tk.HERE)
        return
    connection = net[tk.N_CONNECTIONS] + place
    # Nothing is unacknowledged: the connection is idle.
    if option.persistent(table, table[lk.T_OPTIONS]) == 0 and connections.una(
        net, connection
    ) == connections.end(net, connection):
        begin(table, net, connection)
    end = connections.end(net, connection) + max(size, 1)
    connections.set_end(net, connection, end)
    messages.set_end(pool, row, end)
    if connections.message(net, connection) == 0:
        connections.set_message(net, connection, row)
    else:
        rows.set_next(pool, connections.message_last(net, connection), row)
    connections.set_message_last(net, connection, row)
    # A product of flags: 0 unless the connection is new and must be opened.
    wait = (
        connections.base(net, connection)
        * connections.new(net, connection)
        * option.handshake(table, table[lk.T_OPTIONS])
    )
    connections.set_new(net, connection, 0)
    # CONTINUE is already scheduled: it will send these bytes, too.
    if wait > 0 or connections.more(net, connection) == 0:
        connections.set_more(net, connection, 1)
        push(net, queue, now + wait, connection * lk.CODES + tk.CONTINUE)


@inner
def begin(table, net, connection):
    """Reset what the sender of an idle connection has learnt."""
    options = table[lk.T_OPTIONS]
    base = connections.base(net, connection)
    connections.set_new(net, connection, 1)
    connections.set_quick(net, connection, option.quick_acks(table, options))
    connections.set_state(net, connection, tk.OPEN)
    connections.set_cwnd(net, connection, option.initial(table, options))
    connections.set_ssthresh(net, connection, lk.FOREVER)
    connections.set_srtt(net, connection, base)
    connections.set_var(net, connection, base // 2)
    connections.set_rto(
        net,
        connection,
        min(max(base + 4 * (base // 2), option.min_rto(table, options)), option.max_rto(table, options)),
    )
    connections.set_w_max(net, connection, 0)
    connections.set_epoch(net, connection, 0)
    connections.set_alpha(net, connection, tk.ALL)


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: what waits for a link that was down may go."""
    change_ports(table, net, queue, now)


@inner
def _start(table, net, pool, queue, link, now):
    """A port is free: send the next segment."""
    if started(table, net, link):
        transmit_packet(table, net, pool, queue, link, dequeue(net, pool, link), now)
        if ports.first(net, link) > 0:
            arm(table, net, queue, link, now)


@inner
def _arrived(table, net, pool, queue, link, row, now):
    """A segment is at the end of a link."""
    to = onward(table, net, pool, row, link)
    if to >= 0:
        forward(table, net, pool, queue, to, row, now)
        return
    # A segment without payload is an ACK.
    if segments.payload(pool, row) > 0:
        receive(table, net, pool, queue, row, now)
    else:
        acknowledged(table, net, pool, queue, row, now)
    free_row(net, pool, row)


@inner
def _connection_event(table, net, pool, queue, code, row, now):
    # Rows of these events are connections, except HERE's, which is a message.
    if code == tk.TIMEOUT:
        timeout(table, net, pool, queue, row, now)
    elif code == tk.ACK_PENDING:
        ack_pending(table, net, pool, queue, row, now)
    elif code == tk.CONTINUE:
        connections.set_more(net, row, 0)
        transmit(table, net, pool, queue, row, now)
    else:
        deliver(net, pool, row)


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    while comes(net, queue, limit):
        now = net[lk.N_NOW]
        what = queue[lk.Q_WHAT]
        code, at = what % lk.CODES, what // lk.CODES
        # Not popped: `arrive` replaces it with the next arrival on the same wire.
        if code == pk.ARRIVE:
            row = arrive(net, pool, queue, at)
            _arrived(table, net, pool, queue, at, row, now)
            continue
        pop(net, queue)
        if code == pk.START:
            _start(table, net, pool, queue, at, now)
        else:
            _connection_event(table, net, pool, queue, code, at, now)
    return reached(net, queue, limit)
