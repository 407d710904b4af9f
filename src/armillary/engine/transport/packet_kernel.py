"""Network model `packet`: messages as packets, stored and forwarded by switches with output queues.

The port of a message's first link makes packets when it is free: of the messages with the lowest key one packet
each in turn; where packets of others wait for the same link, of these and of its own in turn. A message has arrived
when all its packets have.
"""

from __future__ import annotations

from armillary.engine.transport.layout_kernel import *
from armillary.engine.transport.packet_layout_kernel import *
from armillary.jit import inner, use

events = use("armillary.engine.transport.queue_kernel")
push, pop, full, deliver = events.push, events.pop, events.full, events.deliver
new_row, free_row = events.new_row, events.free_row
ports = use("armillary.engine.transport.port_kernel")
port_of, onward, arm, started = ports.port_of, ports.onward, ports.arm, ports.started
transmit, enqueue, dequeue, arrive = ports.transmit, ports.enqueue, ports.dequeue, ports.arrive

# Options
O_MTU, O_HEADER = range(2)
# Row of a message: first and last place of its way; key; bytes not yet sent, and not yet arrived
M_FIRST, M_LAST, M_KEY, M_SEND, M_LEFT = range(2, 7)
# Row of the messages with one key that have packets to send by one link: the next such row has a higher key
C_KEY, C_FIRST, C_LAST = range(2, 5)
# Port: first row of messages to be sent; whether one of them is next
PO_CLASS, PO_TURN = range(PO_OWN, PO_OWN + 2)
# Event: a message to its own NPU
HERE = 2
# Packet: its message
K_MESSAGE = P_COOKIE


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps)."""
    row = new_row(net, pool)
    first = table[table[T_ROUTE_FIRST] + route]
    last = table[table[T_ROUTE_FIRST] + route + 1] - 1
    pool[row + P_COOKIE] = cookie
    pool[row + M_FIRST] = first
    pool[row + M_LAST] = last
    pool[row + M_KEY] = key
    pool[row + M_SEND] = size
    pool[row + M_LEFT] = size
    net[N_UNDER_WAY] += 1
    if last < first:
        push(net, queue, now, row * CODES + HERE)
    else:
        _offer(table, net, pool, queue, row, now)


@inner
def _offer(table, net, pool, queue, row, now):
    """Let the port of a message's first link send of it, after others with its key."""
    link = table[table[T_ROUTE_LINK] + pool[row + M_FIRST]]
    key = pool[row + M_KEY]
    port = port_of(net, link)
    before = 0
    class_ = net[port + PO_CLASS]
    while class_ > 0 and pool[class_ + C_KEY] < key:
        before = class_
        class_ = pool[class_ + P_NEXT]
    pool[row + P_NEXT] = 0
    if class_ > 0 and pool[class_ + C_KEY] == key:
        pool[pool[class_ + C_LAST] + P_NEXT] = row
        pool[class_ + C_LAST] = row
    else:
        new = new_row(net, pool)
        pool[new + P_NEXT] = class_
        pool[new + C_KEY] = key
        pool[new + C_FIRST] = row
        pool[new + C_LAST] = row
        if before > 0:
            pool[before + P_NEXT] = new
        else:
            net[port + PO_CLASS] = new
    arm(table, net, queue, link, now)


@inner
def _cut(table, net, pool, link):
    """Return the next packet of the messages that a link sends."""
    port = port_of(net, link)
    class_ = net[port + PO_CLASS]
    message = pool[class_ + C_FIRST]
    options = table[T_OPTIONS]
    payload = min(table[options + O_MTU], pool[message + M_SEND])
    pool[message + M_SEND] -= payload
    row = new_row(net, pool)
    pool[row + K_MESSAGE] = message
    pool[row + K_SIZE] = payload + table[options + O_HEADER]
    pool[row + K_AT] = pool[message + M_FIRST]
    pool[row + K_LAST] = pool[message + M_LAST]
    pool[row + K_STEP] = 1
    pool[row + K_FROM] = -1
    pool[row + K_MARK] = 0
    more = pool[message + M_SEND] > 0
    other = pool[message + P_NEXT]
    if other > 0:
        pool[class_ + C_FIRST] = other
        if more:
            pool[pool[class_ + C_LAST] + P_NEXT] = message
            pool[class_ + C_LAST] = message
            pool[message + P_NEXT] = 0
    elif not more:
        net[port + PO_CLASS] = pool[class_ + P_NEXT]
        free_row(net, pool, class_)
    return row


@inner
def _start(table, net, pool, queue, link, now):
    """A port is free: send the next packet."""
    if not started(table, net, link):
        return
    port = port_of(net, link)
    own = net[port + PO_CLASS] > 0 and (net[port + PO_TURN] > 0 or net[port + PO_FIRST] == 0)
    net[port + PO_TURN] = 0 if own else 1
    row = _cut(table, net, pool, link) if own else dequeue(net, pool, link)
    transmit(table, net, pool, queue, link, row, now)
    if net[port + PO_FIRST] > 0 or net[port + PO_CLASS] > 0:
        arm(table, net, queue, link, now)


@inner
def _arrived(table, net, pool, queue, link, row, now):
    """A packet is at the end of a link."""
    to = onward(table, pool, row, link)
    if to >= 0:
        enqueue(table, net, pool, queue, to, row, now)
        return
    message = pool[row + K_MESSAGE]
    pool[message + M_LEFT] -= pool[row + K_SIZE] - table[table[T_OPTIONS] + O_HEADER]
    free_row(net, pool, row)
    if pool[message + M_LEFT] == 0:
        deliver(net, pool, message)


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: links that were down may be up."""
    for link in range(table[T_LINKS]):
        port = port_of(net, link)
        if net[port + PO_FIRST] > 0 or net[port + PO_CLASS] > 0:
            arm(table, net, queue, link, now)


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    while net[N_QUEUE] > 0 and queue[Q_TIME] <= limit:
        now = queue[Q_TIME]
        if net[N_DELIVERED] > 0 and now > net[N_NOW]:
            return net[N_NOW]
        if full(net):
            net[N_STATUS] = GROW
            return net[N_NOW]
        net[N_NOW] = now
        net[N_EVENTS] += 1
        what = queue[Q_WHAT]
        code = what % CODES
        if code == ARRIVE:
            link = what // CODES
            row = arrive(net, pool, queue, link)
            _arrived(table, net, pool, queue, link, row, now)
            continue
        pop(net, queue)
        if code == START:
            _start(table, net, pool, queue, what // CODES, now)
        else:
            deliver(net, pool, what // CODES)
    if net[N_DELIVERED] > 0:
        return net[N_NOW]
    if limit < FOREVER:
        net[N_NOW] = limit
    return limit
