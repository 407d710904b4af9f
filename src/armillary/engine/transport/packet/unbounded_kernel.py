"""Network model `packet` where queues are unbounded: `packet_kernel` with fewer events, and the same times and order.

* A port that no message begins with sends first in, first out: when a packet comes it is known when it leaves, and
  when it arrives. It goes on the wire at once, and needs no event while it waits. What waits is counted when the next
  one comes (`_passed`).
* Of the packets of a message, which arrive in order, only the last one has an event on the last link.
* Ports that messages begin with have STARTs, as messages to come change what they send next.

Links have an event each, in a tree (`unbounded_layout`): lower numbers come first at equal times, and START before
ARRIVE, as in `packet_kernel`.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inlined, inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.packet import unbounded_layout as ul
from armillary.engine.transport.switch import layout as pk

queue_kernel = use("armillary.engine.transport.queue_kernel")
deliver, full, reached = queue_kernel.deliver, queue_kernel.full, queue_kernel.reached
new_row, free_row = queue_kernel.new_row, queue_kernel.free_row
gate_kernel = use("armillary.engine.transport.gate_kernel")
admit, left = gate_kernel.admit, gate_kernel.left
turn_kernel = use("armillary.engine.transport.packet.turn_kernel")
line_up, next_turn, turn_over = turn_kernel.line_up, turn_kernel.next_turn, turn_kernel.turn_over
first_of_turn, new_message = turn_kernel.first_of_turn, turn_kernel.new_message
use_kernel = use("armillary.engine.transport.use_kernel")
duration, carried, waiting = use_kernel.duration, use_kernel.carried, use_kernel.waiting
list_kernel = use("armillary.engine.transport.packet.list_kernel")
append, behind, ends_row = list_kernel.append, list_kernel.behind, list_kernel.ends_row
next_on_wire, put, skip = list_kernel.next_on_wire, list_kernel.put, list_kernel.skip
tree_kernel = use("armillary.engine.transport.packet.tree_kernel")
schedule, rebase = tree_kernel.schedule, tree_kernel.rebase
messages, nodes, option, packets = accessors(ul.MESSAGE, ul.NODE, ul.OPTION, ul.PACKET)
paces, ports, route_links = accessors(ul.PACE, ul.PORT, lk.ROUTE_LINK)
rows, uses, ways = accessors(lk.ROW, lk.USE, ul.WAY)


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps)."""
    row = new_message(table, net, pool, cookie, route, size, key)
    messages.set_its_route(pool, row, route)
    # The queue tells others only that something is to come.
    net[lk.N_QUEUE] = 1
    queue[lk.Q_TIME] = now
    # A route without links: the message is at its own NPU.
    if messages.last(pool, row) < messages.first(pool, row):
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


@inlined
def _schedule(table, net, link):
    schedule(table, net, link, min(ports.start(net, link), ports.due(net, link)))


@inlined
def _time(table, link, size):
    """Return the ps that a packet takes on a link."""
    options = table[lk.T_OPTIONS]
    if size == option.mtu(table, options) + option.header(table, options):
        return paces.full(table, link)
    return duration(table, link, size)


@inlined
def _size(place):
    return place & ((1 << ul.SIZE_BITS) - 1)


@inlined
def _transmit(table, net, pool, link, place, message, is_last, start, waits):
    """Transmit a packet from `start` on; tells whether it is the first on its wire that has an event.

    `message` if the packet is the last one of it.
    """
    size = _size(place)
    time = _time(table, link, size)
    carried(table, net, link, size, start, start + time)
    ports.set_free(net, link, start + time)
    time += start + paces.latency(table, link)
    if not is_last:
        goal = (message << ul.LINK_BITS) + ways.after(table, place >> ul.SIZE_BITS)
    elif message > 0:
        goal = -message
    elif waits:
        goal = ul.NOWHERE
    else:
        return False
    if not append(net, pool, link, place, goal, time, waits):
        return False
    ports.set_due(net, link, time)
    return True


@inlined
def _happens(table, net, pool, link, now):
    """START or ARRIVE of a link: send, or send on, a packet."""
    starts = ports.start(net, link) == now
    after = 0
    to = link
    if starts:
        place, message, is_last, after = _chosen(table, net, pool, link)
        start = now
        waits = False
    else:
        at = ports.wire(net, link)
        place = packets.place(pool, at)
        goal = packets.goal(pool, at)
        ports.set_due(net, link, next_on_wire(net, pool, link))
        # It is looked up when the next one comes.
        ways.touch_after(table, (packets.place(pool, ports.wire(net, link)) >> ul.SIZE_BITS) + 1)
        if goal < 0:
            deliver(net, pool, -goal)
            _schedule(table, net, link)
            return
        to = (goal & ((1 << ul.LINK_BITS) - 1)) >> 1
        is_last = goal & 1 > 0
        message = goal >> ul.LINK_BITS
        place += 1 << ul.SIZE_BITS
        if paces.own(table, to) > 0:
            start, waits = now, False
            # An idle port transmits at once. One that has something to send has START scheduled.
            if ports.start(net, to) < lk.FOREVER or ports.free(net, to) > now:
                _wait(table, net, pool, to, place, message * 2 + (goal & 1), now)
                _schedule(table, net, link)
                return
        else:
            start, waits = _leaves(table, net, pool, to, link, _size(place), now)
    is_first = _transmit(table, net, pool, to, place, message, is_last, start, waits)
    if starts:
        if after > 0:
            line_up(net, pool, link, after)
        works = ports.class_(net, link) > 0 or ports.queue(net, link) != ports.queue_last(net, link)
        ports.set_start(net, link, ports.free(net, link) if works else lk.FOREVER)
    elif is_first:
        _schedule(table, net, to)
    _schedule(table, net, link)


@inlined
def _chosen(table, net, pool, link):
    """Return what a port sends that messages begin with: place, message, if it ends here, and what follows.

    What follows is the message that may begin when this packet has left, 0: none.
    """
    queue = ports.queue(net, link)
    # Its own messages and forwarded packets alternate, so that neither starves the other.
    own = ports.class_(net, link) > 0 and (ports.turn(net, link) > 0 or queue == ports.queue_last(net, link))
    ports.set_turn(net, link, 0 if own else 1)
    after = 0
    if not own:
        place = packets.place(pool, queue)
        message = packets.goal(pool, queue) >> 1
        is_last = packets.goal(pool, queue) & 1 > 0
        ports.set_queue(net, link, behind(pool, queue))
        if ends_row(queue):
            free_row(net, pool, queue - ul.LAST_OF_ROW)
        uses.add_waiting(net, link, -_size(place))
        return place, message, is_last, after
    message = next_turn(net, pool, link)
    options = table[lk.T_OPTIONS]
    payload = min(option.mtu(table, options), messages.send(pool, message))
    first = messages.first(pool, message)
    is_last = first == messages.last(pool, message)
    place = (first << ul.SIZE_BITS) + payload + option.header(table, options)
    stays = messages.add_send(pool, message, -payload) > 0
    turn_over(net, pool, link, message, stays)
    # It is looked at when the port starts next.
    messages.touch_next(pool, first_of_turn(net, pool, link))
    if stays:
        message = 0
    else:
        # The last packet leaves: the route's gate opens for the next message.
        after = left(net, pool, messages.its_route(pool, message), pk.M_KEY)
    return place, message, is_last, after


@inner
def _wait(table, net, pool, link, place, goal, now):
    """Let a packet wait where messages begin."""
    at = ports.queue_last(net, link)
    if at == 0:
        at = new_row(net, pool) + 1
        ports.set_queue(net, link, at)
    ports.set_queue_last(net, link, put(net, pool, at, place, goal, 0))
    waiting(table, net, link, uses.waiting(net, link) + _size(place), now)
    _arm(table, net, link, now)


@inlined
def _leaves(table, net, pool, link, came_by, size, now):
    """A packet has come to a port that sends first in, first out: return when it leaves, and whether it waits."""
    _pass(table, net, pool, link, came_by, now)
    free = ports.free(net, link)
    others = ports.first(net, link) != ports.last(net, link)
    if not others and free <= now:
        return now, False
    if not others:
        ports.set_begins(net, link, free)
    waiting(table, net, link, uses.waiting(net, link) + size, now)
    return free, True


@inlined
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
        size = _size(packets.place(pool, at))
        waits -= size
        begins += _time(table, link, size)
        skip(net, pool, link)
        at = ports.first(net, link)
    packets.touch_place(pool, behind(pool, at))
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
            _happens(table, net, pool, link, now)
    return reached(net, queue, limit)
