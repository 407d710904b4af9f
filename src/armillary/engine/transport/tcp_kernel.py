"""TCP over output ports that drop at the tail: messages are bytes on connections, one connection for each way.

The window of a connection, and what it knows of the round trip, outlast messages if it is so told; else a message
that finds it idle begins as on a new one. A handshake is a wait, of a round trip in an empty network.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.tcp_layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
push, pop, deliver = events.push, events.pop, events.deliver
comes, reached = events.comes, events.reached
new_row, free_row = events.new_row, events.free_row
ports = use("armillary.engine.transport.port_kernel")
port_of, onward, arm, started = ports.port_of, ports.onward, ports.arm, ports.started
transmit_packet, dequeue, arrive, change_ports = (
    ports.transmit,
    ports.dequeue,
    ports.arrive,
    ports.change_ports,
)
forward = use("armillary.engine.transport.tcp_segment_kernel").forward
sender = use("armillary.engine.transport.tcp_sender_kernel")
transmit, acknowledged, timeout = sender.transmit, sender.acknowledged, sender.timeout
receiver = use("armillary.engine.transport.tcp_receiver_kernel")
receive, ack_due = receiver.receive, receiver.ack_due


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps); the key has no meaning here. An empty one is one byte."""
    row = new_row(net, pool)
    pool[row + P_NEXT] = 0
    pool[row + P_COOKIE] = cookie
    net[N_UNDER_WAY] += 1
    place = table[table[T_CONNECTION] + route]
    if place < 0:
        push(net, queue, now, row * CODES + HERE)
        return
    connection = net[N_CONNECTIONS] + place
    if table[table[T_OPTIONS] + O_PERSISTENT] == 0 and net[connection + C_UNA] == net[connection + C_END]:
        begin(table, net, connection)
    end = net[connection + C_END] + max(size, 1)
    net[connection + C_END] = end
    pool[row + M_END] = end
    if net[connection + C_MESSAGE] == 0:
        net[connection + C_MESSAGE] = row
    else:
        pool[net[connection + C_MESSAGE_LAST] + P_NEXT] = row
    net[connection + C_MESSAGE_LAST] = row
    wait = net[connection + C_BASE] * net[connection + C_NEW] * table[table[T_OPTIONS] + O_HANDSHAKE]
    net[connection + C_NEW] = 0
    if wait > 0 or net[connection + C_MORE] == 0:
        net[connection + C_MORE] = 1
        push(net, queue, now + wait, connection * CODES + CONTINUE)


@inner
def begin(table, net, connection):
    """Let the sender of an idle connection forget what it has learnt."""
    options = table[T_OPTIONS]
    base = net[connection + C_BASE]
    net[connection + C_NEW] = 1
    net[connection + C_STATE] = OPEN
    net[connection + C_CWND] = table[options + O_INITIAL]
    net[connection + C_SSTHRESH] = FOREVER
    net[connection + C_SRTT] = base
    net[connection + C_VAR] = base // 2
    net[connection + C_RTO] = min(
        max(base + 4 * (base // 2), table[options + O_MIN_RTO]), table[options + O_MAX_RTO]
    )
    net[connection + C_W_MAX] = 0
    net[connection + C_EPOCH] = 0
    net[connection + C_ALPHA] = ALL


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: what waits for a link that was down may go."""
    change_ports(table, net, queue, now)


@inner
def _start(table, net, pool, queue, link, now):
    """A port is free: send the next segment."""
    if started(table, net, link):
        transmit_packet(table, net, pool, queue, link, dequeue(net, pool, link), now)
        if net[port_of(net, link) + PO_FIRST] > 0:
            arm(table, net, queue, link, now)


@inner
def _arrived(table, net, pool, queue, link, row, now):
    """A segment is at the end of a link."""
    to = onward(table, pool, row, link)
    if to >= 0:
        forward(table, net, pool, queue, to, row, now)
        return
    if pool[row + K_PAYLOAD] > 0:
        receive(table, net, pool, queue, row, now)
    else:
        acknowledged(table, net, pool, queue, row, now)
    free_row(net, pool, row)


@inner
def _connection_event(table, net, pool, queue, code, row, now):
    if code == TIMEOUT:
        timeout(table, net, pool, queue, row, now)
    elif code == ACK_DUE:
        ack_due(table, net, pool, queue, row, now)
    elif code == CONTINUE:
        net[row + C_MORE] = 0
        transmit(table, net, pool, queue, row, now)
    else:
        deliver(net, pool, row)


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    while comes(net, queue, limit):
        now = net[N_NOW]
        what = queue[Q_WHAT]
        code, at = what % CODES, what // CODES
        if code == ARRIVE:
            row = arrive(net, pool, queue, at)
            _arrived(table, net, pool, queue, at, row, now)
            continue
        pop(net, queue)
        if code == START:
            _start(table, net, pool, queue, at, now)
        else:
            _connection_event(table, net, pool, queue, code, at, now)
    return reached(net, queue, limit)
