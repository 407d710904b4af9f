"""Network model `packet`: messages as packets, stored and forwarded by switches with output queues.

The port of a message's first link makes packets when it is free: of the messages with the lowest key one packet
each in turn; where packets of others wait for the same link, of these and of its own in turn. A message has arrived
when all its packets have. Nothing is lost: buffers with an end pause the links into them (`pause_kernel`). Queues may
mark packets (`mark_kernel`), and messages slow down when told so (`dcqcn_kernel`); that notice takes the latencies of
their way, and no bandwidth.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.layout_kernel import *
from armillary.engine.transport.packet_layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
push, pop, deliver = events.push, events.pop, events.deliver
comes, reached = events.comes, events.reached
new_row, free_row = events.new_row, events.free_row
gates = use("armillary.engine.transport.gate_kernel")
admit, left = gates.admit, gates.left
ports = use("armillary.engine.transport.port_kernel")
port_of, onward, arm, started = ports.port_of, ports.onward, ports.arm, ports.started
transmit, enqueue, dequeue, arrive = ports.transmit, ports.enqueue, ports.dequeue, ports.arrive
depth, marked, shut, reopen = ports.depth, ports.marked, ports.shut, ports.reopen
links = use("armillary.engine.transport.use_kernel")
link_row, duration = links.link_row, links.duration
pauses = use("armillary.engine.transport.pause_kernel")
hold, release = pauses.hold, pauses.release
is_marked = use("armillary.engine.transport.mark_kernel").is_marked
rates = use("armillary.engine.transport.dcqcn_kernel")
new_flow, flow_done, slow_down = rates.new_flow, rates.flow_done, rates.slow_down
next_time, notifies = rates.next_time, rates.notifies


@inner
def _line(table, net, link):
    """Return the bandwidth of a link in bytes/s, as far as rates are counted."""
    at = link_row(table, net, link)
    return min(MOST_RATE, table[at + L_FAST] * SECOND // max(1, table[at + L_SLOW]))


@inner
def _works(net, link):
    """Tell whether anything waits for a link."""
    port = port_of(net, link)
    return net[port + PO_FIRST] > 0 or net[port + PO_CLASS] > 0


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
    pool[row + M_FLOW] = 0
    pool[row + M_ROUTE] = route
    net[N_UNDER_WAY] += 1
    if last < first:
        push(net, queue, now, row * CODES + HERE)
    elif admit(net, pool, route, row, key, M_KEY):
        _begin(table, net, pool, queue, row, now)


@inner
def _begin(table, net, pool, queue, row, now):
    """Let a message have its turns from now on."""
    first = pool[row + M_FIRST]
    if table[table[T_OPTIONS] + O_CONTROL] > 0:
        pool[row + M_FLOW] = new_flow(net, pool, _line(table, net, table[table[T_ROUTE_LINK] + first]))
        pool[pool[row + M_FLOW] + P_COOKIE] = row
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
def _cut(table, net, pool, queue, link, now):
    """Return the next packet of the messages that a link sends."""
    port = port_of(net, link)
    class_ = net[port + PO_CLASS]
    message = pool[class_ + C_FIRST]
    options = table[T_OPTIONS]
    payload = min(table[options + O_MTU], pool[message + M_SEND])
    size = payload + table[options + O_HEADER]
    pool[message + M_SEND] -= payload
    row = new_row(net, pool)
    pool[row + K_MESSAGE] = message
    pool[row + K_SIZE] = size
    pool[row + K_AT] = pool[message + M_FIRST]
    pool[row + K_LAST] = pool[message + M_LAST]
    pool[row + K_STEP] = 1
    pool[row + K_FROM] = -1
    pool[row + K_MARK] = 0
    pool[class_ + C_FIRST] = pool[message + P_NEXT]
    stays = pool[message + M_SEND] > 0
    flow = pool[message + M_FLOW]
    if stays and flow > 0:
        time = next_time(table, pool, flow, _line(table, net, link), size, now)
        if time > now + duration(table, link_row(table, net, link), size):
            push(net, queue, time, message * CODES + READY)
            stays = False
    if stays:
        pool[message + P_NEXT] = 0
        if pool[class_ + C_FIRST] == 0:
            pool[class_ + C_FIRST] = message
        else:
            pool[pool[class_ + C_LAST] + P_NEXT] = message
        pool[class_ + C_LAST] = message
    elif pool[class_ + C_FIRST] == 0:
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
    row = _cut(table, net, pool, queue, link, now) if own else dequeue(net, pool, link)
    if pool[row + K_FROM] >= 0:
        release(table, net, queue, pool[row + K_FROM], pool[row + K_SIZE], now)
    message = pool[row + K_MESSAGE]
    transmit(table, net, pool, queue, link, row, now)
    if own and pool[message + M_SEND] == 0:
        after = left(net, pool, pool[message + M_ROUTE], M_KEY)
        if after > 0:
            _begin(table, net, pool, queue, after, now)
    if _works(net, link):
        arm(table, net, queue, link, now)


@inner
def _arrived(table, net, pool, queue, link, row, now):
    """A packet is at the end of a link."""
    to = onward(table, pool, row, link)
    if to < 0:
        _received(table, net, pool, queue, row, now)
        return
    waits = depth(net, to)
    count = net[port_of(net, to) + PO_COUNT]
    net[port_of(net, to) + PO_COUNT] = count + 1
    if enqueue(table, net, pool, queue, to, row, now):
        hold(table, net, queue, link, pool[row + K_SIZE], now)
        options = table[T_OPTIONS]
        lowest = table[options + O_LOWEST]
        if lowest >= 0 and is_marked(
            lowest,
            table[options + O_HIGHEST],
            table[options + O_MOST],
            table[options + O_SEED],
            to,
            count,
            waits,
        ):
            marked(net, pool, to, row)


@inner
def _received(table, net, pool, queue, row, now):
    """A packet is at its destination."""
    message = pool[row + K_MESSAGE]
    flow = pool[message + M_FLOW]
    pool[message + M_LEFT] -= pool[row + K_SIZE] - table[table[T_OPTIONS] + O_HEADER]
    if (
        flow > 0
        and pool[row + K_MARK] > 0
        and pool[message + M_SEND] > 0
        and notifies(table, pool, flow, now)
    ):
        time = now
        for at in range(pool[message + M_FIRST], pool[message + M_LAST] + 1):
            time += table[link_row(table, net, table[table[T_ROUTE_LINK] + at]) + L_LATENCY]
        push(net, queue, time, flow * CODES + NOTIFIED)
    free_row(net, pool, row)
    if pool[message + M_LEFT] == 0:
        if flow > 0:
            pool[flow + F_DONE] = 1
            flow_done(net, pool, flow)
        deliver(net, pool, message)


@inner
def _notified(table, net, pool, flow, now):
    """The sender of a message is told of a mark."""
    pool[flow + F_UNDER_WAY] -= 1
    if pool[flow + F_DONE] > 0:
        flow_done(net, pool, flow)
        return
    link = table[table[T_ROUTE_LINK] + pool[pool[flow + P_COOKIE] + M_FIRST]]
    slow_down(table, pool, flow, _line(table, net, link), now)


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: links that were down may be up."""
    for link in range(table[T_LINKS]):
        if _works(net, link):
            arm(table, net, queue, link, now)


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    while comes(net, queue, limit):
        now = net[N_NOW]
        what = queue[Q_WHAT]
        code = what % CODES
        of = what // CODES
        if code == ARRIVE:
            row = arrive(net, pool, queue, of)
            _arrived(table, net, pool, queue, of, row, now)
            continue
        pop(net, queue)
        if code == START:
            _start(table, net, pool, queue, of, now)
        elif code == PAUSE:
            shut(net, of, _works(net, of), now)
        elif code == RESUME:
            reopen(table, net, queue, of, _works(net, of), now)
        elif code == READY:
            _offer(table, net, pool, queue, of, now)
        elif code == NOTIFIED:
            _notified(table, net, pool, of, now)
        else:
            deliver(net, pool, of)
    return reached(net, queue, limit)
