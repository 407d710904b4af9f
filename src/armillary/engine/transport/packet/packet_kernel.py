"""Network model `packet`: messages as packets, stored and forwarded by switches with output queues.

The port of a message's first link makes packets when it is free: among the messages with the lowest key, one packet
each in turn; where forwarded packets wait for the same link, these and its own take turns. A message has arrived
when all its packets have. Nothing is lost: bounded buffers pause the links into them (`pause_kernel`). Queues may
mark packets (`mark_kernel`), and notified messages slow down (`dcqcn_kernel`); the notification takes the latencies of
the route, and no bandwidth.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import in_variant, inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.switch import layout as pk

queue_kernel = use("armillary.engine.transport.queue_kernel")
push, pop, deliver = queue_kernel.push, queue_kernel.pop, queue_kernel.deliver
comes, reached = queue_kernel.comes, queue_kernel.reached
new_row, free_row = queue_kernel.new_row, queue_kernel.free_row
gate_kernel = use("armillary.engine.transport.gate_kernel")
admit, left = gate_kernel.admit, gate_kernel.left
turn_kernel = use("armillary.engine.transport.packet.turn_kernel")
line_up, next_turn, turn_over = turn_kernel.line_up, turn_kernel.next_turn, turn_kernel.turn_over
new_message = turn_kernel.new_message
port_kernel = use("armillary.engine.transport.switch.port_kernel")
arm, started = port_kernel.arm, port_kernel.started
transmit, enqueue, dequeue, arrive = (
    port_kernel.transmit,
    port_kernel.enqueue,
    port_kernel.dequeue,
    port_kernel.arrive,
)
depth, marked, shut, reopen = port_kernel.depth, port_kernel.marked, port_kernel.shut, port_kernel.reopen
# Where routing decides at every node the same kernel is compiled once more, so that routes cost fixed ones nothing.
hops = in_variant("armillary.engine.transport.packet.hop_packet_kernel")
way_kernel = use("armillary.engine.transport.switch.hop_kernel") if hops else port_kernel
set_out, onward = way_kernel.set_out, way_kernel.onward
use_kernel = use("armillary.engine.transport.use_kernel")
link_row, duration = use_kernel.link_row, use_kernel.duration
pause_kernel = use("armillary.engine.transport.switch.pause_kernel")
hold, release = pause_kernel.hold, pause_kernel.release
is_marked = use("armillary.engine.transport.switch.mark_kernel").is_marked
dcqcn_kernel = use("armillary.engine.transport.control.dcqcn_kernel")
new_flow, flow_done, slow_down = dcqcn_kernel.new_flow, dcqcn_kernel.flow_done, dcqcn_kernel.slow_down
next_time, notifies, resumed = dcqcn_kernel.next_time, dcqcn_kernel.notifies, dcqcn_kernel.resumed
flows, links, messages, option = accessors(pk.FLOW, lk.LINK, pk.MESSAGE, pk.OPTION)
packets, ports, route_links = accessors(pk.PACKET, pk.FAIR_PORT, lk.ROUTE_LINK)
rows, uses = accessors(lk.ROW, lk.USE)


@inner
def _line(table, net, link):
    """Return the bandwidth of a link in bytes/s, at most MOST_RATE."""
    at = link_row(table, net, link)
    # Capped so that rate * alpha stays within 62 bits; a message at the cap is not paced at all.
    return min(pk.MOST_RATE, links.fast(table, at) * pk.SECOND // max(1, links.slow(table, at)))


@inner
def _works(net, link):
    """Tell whether anything waits for a link."""
    return ports.first(net, link) > 0 or ports.class_(net, link) > 0


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps)."""
    row = new_message(table, net, pool, cookie, route, size, key)
    messages.set_left(pool, row, size)
    messages.set_flow(pool, row, 0)
    messages.set_route(pool, row, route)
    # A route without links: the message is at its own NPU.
    if messages.last(pool, row) < messages.first(pool, row):
        push(net, queue, now, row * lk.CODES + pk.HERE)
    elif admit(net, pool, route, row, key, pk.M_KEY):
        _begin(table, net, pool, queue, row, now)


@inner
def _begin(table, net, pool, queue, row, now):
    """Let a message have its turns from now on."""
    first = messages.first(pool, row)
    if option.control(table, table[lk.T_OPTIONS]) > 0:
        messages.set_flow(pool, row, new_flow(net, pool, _line(table, net, route_links.link(table, first))))
        # The same word as FLOW.message: a notification knows the rate, and finds its message by it.
        rows.set_cookie(pool, messages.flow(pool, row), row)
    _offer(table, net, pool, queue, row, now)


@inner
def _offer(table, net, pool, queue, row, now):
    """Let the port of a message's first link send of it, after others with its key."""
    link = route_links.link(table, messages.first(pool, row))
    line_up(net, pool, link, row)
    arm(table, net, queue, link, now)


@inner
def _cut(table, net, pool, queue, link, now):
    """Return the next packet of the messages that a link sends."""
    message = next_turn(net, pool, link)
    options = table[lk.T_OPTIONS]
    payload = min(option.mtu(table, options), messages.send(pool, message))
    size = payload + option.header(table, options)
    messages.add_send(pool, message, -payload)
    row = new_row(net, pool)
    packets.set_message(pool, row, message)
    packets.set_size(pool, row, size)
    packets.set_source(pool, row, -1)
    packets.set_mark(pool, row, 0)
    set_out(table, net, pool, row, message)
    stays = messages.send(pool, message) > 0
    flow = messages.flow(pool, message)
    if stays and flow > 0:
        time = next_time(table, pool, flow, _line(table, net, link), size, now)
        # Later than the port itself is free: the message pauses and returns by READY. Otherwise it keeps its
        # turn, and the port alone sets the pace.
        if time > now + duration(table, link_row(table, net, link), size):
            push(net, queue, time, message * lk.CODES + pk.READY)
            stays = False
    turn_over(net, pool, link, message, stays)
    return row


@inner
def _start(table, net, pool, queue, link, now):
    """A port is free: send the next packet."""
    # The pause came, or the link went down, after START was scheduled.
    if not started(table, net, link):
        return
    # Its own messages and forwarded packets alternate, so that neither starves the other.
    own = ports.class_(net, link) > 0 and (ports.turn(net, link) > 0 or ports.first(net, link) == 0)
    ports.set_turn(net, link, 0 if own else 1)
    row = _cut(table, net, pool, queue, link, now) if own else dequeue(net, pool, link)
    # The packet leaves the buffer of the link that it came by, which may reopen it. -1: it was made here.
    if packets.source(pool, row) >= 0:
        release(table, net, queue, packets.source(pool, row), packets.size(pool, row), now)
    message = packets.message(pool, row)
    transmit(table, net, pool, queue, link, row, now)
    # The last packet has left: the route's gate opens for the next message.
    if own and messages.send(pool, message) == 0:
        after = left(net, pool, messages.route(pool, message), pk.M_KEY)
        if after > 0:
            _begin(table, net, pool, queue, after, now)
    if _works(net, link):
        arm(table, net, queue, link, now)


@inner
def _arrived(table, net, pool, queue, link, row, now):
    """A packet is at the end of a link."""
    to = onward(table, net, pool, row, link)
    if to < 0:
        _received(table, net, pool, queue, row, now)
        return
    # A packet is marked by the queue that it finds, so depth and number are read before it joins.
    waits = depth(net, to)
    count = ports.count(net, to)
    ports.set_count(net, to, count + 1)
    if enqueue(table, net, pool, queue, to, row, now):
        # A packet that is transmitted at once never occupies the buffer.
        hold(table, net, queue, link, packets.size(pool, row), now)
        options = table[lk.T_OPTIONS]
        lowest = option.lowest(table, options)
        if lowest >= 0 and is_marked(
            lowest,
            option.highest(table, options),
            option.most(table, options),
            option.seed(table, options),
            to,
            count,
            waits,
        ):
            marked(net, pool, to, row)


@inner
def _received(table, net, pool, queue, row, now):
    """A packet is at its destination."""
    message = packets.message(pool, row)
    flow = messages.flow(pool, message)
    messages.add_left(pool, message, -(packets.size(pool, row) - option.header(table, table[lk.T_OPTIONS])))
    if (
        flow > 0
        and packets.mark(pool, row) > 0
        # A message that has sent everything cannot slow down any more.
        and (messages.send(pool, message) > 0)
        and notifies(table, pool, flow, now)
    ):
        time = now
        for at in range(messages.first(pool, message), messages.last(pool, message) + 1):
            time += links.latency(table, link_row(table, net, route_links.link(table, at)))
        push(net, queue, time, flow * lk.CODES + pk.NOTIFIED)
    free_row(net, pool, row)
    if messages.left(pool, message) == 0:
        # Notifications in flight still refer to the state: it is freed with the last of them.
        if flow > 0:
            flows.set_done(pool, flow, 1)
            flow_done(net, pool, flow)
        deliver(net, pool, message)


@inner
def _ready(table, net, pool, queue, message, now):
    """The time has come at which a message that its rate held back may send again, unless the rate has risen little."""
    line = _line(table, net, route_links.link(table, messages.first(pool, message)))
    time = resumed(table, pool, messages.flow(pool, message), line, now)
    if time > now:
        push(net, queue, time, message * lk.CODES + pk.READY)
    else:
        _offer(table, net, pool, queue, message, now)


@inner
def _notified(table, net, pool, flow, now):
    """A notification of a mark reaches the sender of a message."""
    flows.add_notices(pool, flow, -1)
    if flows.done(pool, flow) > 0:
        flow_done(net, pool, flow)
        return
    link = route_links.link(table, messages.first(pool, rows.cookie(pool, flow)))
    slow_down(table, pool, flow, _line(table, net, link), now)


@inner
def _leave(table, net, pool, queue, link, now):
    """Let what waits for a link that went down choose again."""
    row = ports.first(net, link)
    ports.set_first(net, link, 0)
    uses.set_waiting(net, link, 0)
    while row > 0:
        after = rows.next(pool, row)
        source = packets.source(pool, row)
        size = packets.size(pool, row)
        # It stays in the buffer of the link that it came by, unless it leaves at once.
        to = way_kernel.again(table, net, pool, row, link)
        if not enqueue(table, net, pool, queue, to, row, now) and source >= 0:
            release(table, net, queue, source, size, now)
        row = after


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: links that were down may be up."""
    for link in range(table[lk.T_LINKS]):
        if hops and ports.first(net, link) > 0 and links.slow(table, link_row(table, net, link)) == 0:
            _leave(table, net, pool, queue, link, now)
        if _works(net, link):
            arm(table, net, queue, link, now)


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    while comes(net, queue, limit):
        now = net[lk.N_NOW]
        what = queue[lk.Q_WHAT]
        code = what % lk.CODES
        of = what // lk.CODES
        # Not popped: `arrive` replaces it with the next arrival on the same wire, which costs one sift
        # instead of two.
        if code == pk.ARRIVE:
            row = arrive(net, pool, queue, of)
            _arrived(table, net, pool, queue, of, row, now)
            continue
        pop(net, queue)
        if code == pk.START:
            _start(table, net, pool, queue, of, now)
        elif code == pk.PAUSE:
            shut(net, of, _works(net, of), now)
        elif code == pk.RESUME:
            reopen(table, net, queue, of, _works(net, of), now)
        elif code == pk.READY:
            _ready(table, net, pool, queue, of, now)
        elif code == pk.NOTIFIED:
            _notified(table, net, pool, of, now)
        else:
            deliver(net, pool, of)
    return reached(net, queue, limit)
