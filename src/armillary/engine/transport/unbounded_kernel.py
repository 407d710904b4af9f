"""Network model `packet` where queues are unbounded: `packet_kernel` with fewer events, and the same times and order.

* A port that no message begins with sends first in, first out: when a packet comes it is known when it leaves, and
  when it arrives. It goes on the wire at once, and needs no event while it waits. What waits is counted when the next
  one comes (`_passed`).
* Of the packets of a message, which arrive in order, only the last one has an event on the last link.
* Ports that messages begin with have STARTs, as messages to come change what they send next.

Links have an event each, in a tree (`unbounded_layout`): lower numbers come first at equal times, and START before ARRIVE,
as in `packet_kernel`.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport import packet_layout as pk
from armillary.engine.transport import unbounded_layout as ul

queue_kernel = use("armillary.engine.transport.queue_kernel")
deliver, full, reached = queue_kernel.deliver, queue_kernel.full, queue_kernel.reached
new_row, free_row = queue_kernel.new_row, queue_kernel.free_row
gate_kernel = use("armillary.engine.transport.gate_kernel")
admit, left = gate_kernel.admit, gate_kernel.left
turn_kernel = use("armillary.engine.transport.turn_kernel")
line_up, next_turn, turn_over = turn_kernel.line_up, turn_kernel.next_turn, turn_kernel.turn_over
use_kernel = use("armillary.engine.transport.use_kernel")
duration, carried, waiting = use_kernel.duration, use_kernel.carried, use_kernel.waiting
list_kernel = use("armillary.engine.transport.list_kernel")
append, behind, ends_row, put = list_kernel.append, list_kernel.behind, list_kernel.ends_row, list_kernel.put
next_on_wire, skip = list_kernel.next_on_wire, list_kernel.skip
tree_kernel = use("armillary.engine.transport.tree_kernel")
schedule, rebase = tree_kernel.schedule, tree_kernel.rebase
messages, nodes, option, packets = accessors(ul.MESSAGE, ul.NODE, ul.OPTION, ul.PACKET)
paces, ports, route_links, routes = accessors(ul.PACE, ul.PORT, lk.ROUTE_LINK, lk.ROUTE_FIRST)
rows, uses, ways = accessors(lk.ROW, lk.USE, ul.WAY)


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps)."""
    row = new_row(net, pool)
    first = routes.first(table, route)
    last = routes.first(table, route + 1) - 1
    rows.set_cookie(pool, row, cookie)
    messages.set_first(pool, row, first)
    messages.set_last(pool, row, last)
    messages.set_key(pool, row, key)
    messages.set_send(pool, row, size)
    messages.set_its_route(pool, row, route)
    net[lk.N_IN_FLIGHT] += 1
    # The queue tells others only that something is to come.
    net[lk.N_QUEUE] = 1
    queue[lk.Q_TIME] = now
    # A route without links: the message is at its own NPU.
    if last < first:
        rows.set_next(pool, row, 0)
        if net[ul.N_HERE] == 0:
            net[ul.N_HERE] = row
            schedule(table, net, table[lk.T_LINKS], now)
        else:
            rows.set_next(pool, net[ul.N_HERE_LAST], row)
        net[ul.N_HERE_LAST] = row
    elif admit(net, pool, route, row, key, pk.M_KEY):
        _begin(table, net, pool, row, now)


@inner
def _begin(table, net, pool, row, now):
    """Let a message have its turns from now on."""
    link = route_links.link(table, messages.first(pool, row))
    line_up(net, pool, link, row)
    _arm(table, net, link, now)


@inner
def _arm(table, net, link, now):
    """Something waits for a link that messages begin with: let START come when its port is free."""
    if ports.start(net, link) == lk.FOREVER:
        ports.set_start(net, link, max(now, ports.free(net, link)))
        _schedule(table, net, link)


@inner
def _schedule(table, net, link):
    schedule(table, net, link, min(ports.start(net, link), ports.due(net, link)))


@inner
def _transmit(table, net, pool, link, place, message, start, waits):
    """Transmit a packet from `start` on, when the port is free; `message` if it is the last packet of it."""
    size = place & ((1 << ul.SIZE_BITS) - 1)
    time = _time(table, link, size)
    carried(table, net, link, size, start, start + time)
    ports.set_free(net, link, start + time)
    goal = (message << ul.LINK_BITS) + ways.after(table, place >> ul.SIZE_BITS)
    # On its last link only the last packet of a message has an event.
    if goal > 0 or waits:
        time += start + paces.latency(table, link)
        if append(net, pool, link, place, goal, time, waits):
            ports.set_due(net, link, time)
            _schedule(table, net, link)


@inner
def _time(table, link, size):
    """Return the ps that a packet takes on a link."""
    options = table[lk.T_OPTIONS]
    if size == option.mtu(table, options) + option.header(table, options):
        return paces.full(table, link)
    return duration(table, link, size)


@inner
def _start(table, net, pool, link, now):
    """A port that messages begin with is free: send the next packet."""
    # Its own messages and forwarded packets alternate, so that neither starves the other.
    queue = ports.queue(net, link)
    own = ports.class_(net, link) > 0 and (ports.turn(net, link) > 0 or queue == ports.queue_last(net, link))
    ports.set_turn(net, link, 0 if own else 1)
    # So that what goes on an empty wire may be scheduled.
    ports.set_start(net, link, lk.FOREVER)
    if own:
        _send(table, net, pool, link, now)
    else:
        place = packets.place(pool, queue)
        ports.set_queue(net, link, behind(pool, queue))
        message = packets.goal(pool, queue)
        if ends_row(queue):
            free_row(net, pool, queue - ul.LAST_OF_ROW)
        uses.add_waiting(net, link, -(place & ((1 << ul.SIZE_BITS) - 1)))
        _transmit(table, net, pool, link, place, message, now, False)
    if ports.class_(net, link) > 0 or ports.queue(net, link) != ports.queue_last(net, link):
        ports.set_start(net, link, ports.free(net, link))
    _schedule(table, net, link)


@inner
def _send(table, net, pool, link, now):
    """Send the next packet of the messages of a link."""
    message = next_turn(net, pool, link)
    options = table[lk.T_OPTIONS]
    payload = min(option.mtu(table, options), messages.send(pool, message))
    place = (messages.first(pool, message) << ul.SIZE_BITS) + payload + option.header(table, options)
    stays = messages.add_send(pool, message, -payload) > 0
    turn_over(net, pool, link, message, stays)
    _transmit(table, net, pool, link, place, 0 if stays else message, now, False)
    # The last packet has left: the route's gate opens for the next message.
    if not stays:
        after = left(net, pool, messages.its_route(pool, message), pk.M_KEY)
        if after > 0:
            line_up(net, pool, link, after)


@inner
def _arrived(table, net, pool, link, now):
    """What is first on the wire of a link is at its end."""
    at = ports.wire(net, link)
    place = packets.place(pool, at)
    goal = packets.goal(pool, at)
    ports.set_due(net, link, next_on_wire(net, pool, link))
    _schedule(table, net, link)
    to = (goal & ((1 << ul.LINK_BITS) - 1)) - 1
    message = goal >> ul.LINK_BITS
    if to < 0:
        deliver(net, pool, message)
        return
    place += 1 << ul.SIZE_BITS
    size = place & ((1 << ul.SIZE_BITS) - 1)
    if paces.own(table, to) == 0:
        _pass(table, net, pool, to, link, now)
        free = ports.free(net, to)
        waits = ports.first(net, to) != ports.last(net, to) or free > now
        if waits:
            if ports.first(net, to) == ports.last(net, to):
                ports.set_begins(net, to, free)
            waiting(table, net, to, uses.waiting(net, to) + size, now)
        _transmit(table, net, pool, to, place, message, free if waits else now, waits)
    # An idle port transmits at once. One that has something to send has START scheduled.
    elif ports.start(net, to) == lk.FOREVER and ports.free(net, to) <= now:
        _transmit(table, net, pool, to, place, message, now, False)
    else:
        at = ports.queue_last(net, to)
        if at == 0:
            at = new_row(net, pool) + 1
            ports.set_queue(net, to, at)
        ports.set_queue_last(net, to, put(net, pool, at, place, message, 0))
        waiting(table, net, to, uses.waiting(net, to) + size, now)
        _arm(table, net, to, now)


@inner
def _pass(table, net, pool, link, came_by, now):
    """Forget what waited for a link and has begun when something comes by another.

    In a ps, what begins on a link comes before what arrives by it, or by one of a higher number.
    """
    at = ports.first(net, link)
    last = ports.last(net, link)
    if at == last:
        return
    before = now + (1 if link <= came_by else 0)
    begins = ports.begins(net, link)
    waits = uses.waiting(net, link)
    while at != last and begins < before:
        size = packets.place(pool, at) & ((1 << ul.SIZE_BITS) - 1)
        waits -= size
        begins += _time(table, link, size)
        skip(net, pool, link)
        at = ports.first(net, link)
    ports.set_begins(net, link, begins)
    uses.set_waiting(net, link, waits)


@inner
def _here(table, net, pool, now):
    """The first message at its own NPU has arrived."""
    row = net[ul.N_HERE]
    net[ul.N_HERE] = rows.next(pool, row)
    if net[ul.N_HERE] == 0:
        schedule(table, net, table[lk.T_LINKS], lk.FOREVER)
    deliver(net, pool, row)


@inner
def change(table, net, pool, queue, now):
    """Do nothing: the network has one stage."""


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    bits = option.bits(table, table[lk.T_OPTIONS])
    count = table[lk.T_LINKS]
    net[lk.N_QUEUE] = 0
    while nodes.first(net, 1) < ul.NOTHING:
        word = nodes.first(net, 1)
        now = net[ul.N_BASE] + (word >> bits)
        link = word & ((1 << bits) - 1)
        if now > limit or (net[lk.N_DELIVERED] > 0 and now > net[lk.N_NOW]) or full(net):
            net[lk.N_QUEUE] = 1
            queue[lk.Q_TIME] = now
            if now <= limit and full(net):
                net[lk.N_STATUS] = lk.GROW
            break
        if link == count:
            net[lk.N_NOW] = now
            net[lk.N_EVENTS] += 1
            _here(table, net, pool, now)
        elif min(ports.start(net, link), ports.due(net, link)) > now:
            # Too far from the base to be told by a word.
            rebase(table, net, now)
            _schedule(table, net, link)
        else:
            net[lk.N_NOW] = now
            net[lk.N_EVENTS] += 1
            if ports.start(net, link) == now:
                _start(table, net, pool, link, now)
            else:
                _arrived(table, net, pool, link, now)
    return reached(net, queue, limit)
