"""Network model `credit`: packets, routers with virtual channels, and credits (what Garnet models).

Garnet: Agarwal et al., ISPASS 2009. Virtual cut-through (Kermani and Kleinrock 1979): a packet moves on as soon as its
head is through the router and the whole of it fits into one VC of the next link; nothing then stops it, so that one
event moves it over a link with the times that all of its flits would have. See `credit.Credit` for the model.

An arbitration of a link reads only state settled before its ps, so the order of links within a ps has no effect.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.credit import layout as ck

queue_kernel = use("armillary.engine.transport.queue_kernel")
push, pop, new_row, deliver = queue_kernel.push, queue_kernel.pop, queue_kernel.new_row, queue_kernel.deliver
comes, reached = queue_kernel.comes, queue_kernel.reached
use_kernel = use("armillary.engine.transport.use_kernel")
link_row, duration, carried, waiting = (
    use_kernel.link_row,
    use_kernel.duration,
    use_kernel.carried,
    use_kernel.waiting,
)
gate_kernel = use("armillary.engine.transport.gate_kernel")
admit, left = gate_kernel.admit, gate_kernel.left
credit_nic_kernel = use("armillary.engine.transport.credit.credit_nic_kernel")
enqueue, first_message, took_packet = (
    credit_nic_kernel.enqueue,
    credit_nic_kernel.first_message,
    credit_nic_kernel.took_packet,
)
credit_buffer_kernel = use("armillary.engine.transport.credit.credit_buffer_kernel")
wake, append, leave = credit_buffer_kernel.wake, credit_buffer_kernel.append, credit_buffer_kernel.leave
credits, serve = credit_buffer_kernel.credits, credit_buffer_kernel.serve
channels, credit_rows, links, messages = accessors(ck.CHANNEL, ck.CREDIT, lk.LINK, ck.MESSAGE)
option, packets, route_links, routes = accessors(ck.OPTION, ck.PACKET, lk.ROUTE_LINK, lk.ROUTE_FIRST)
rows, senders, slots, uses, wants = accessors(lk.ROW, ck.SENDER, ck.SLOT, lk.USE, ck.WANT)


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps)."""
    message = new_row(net, pool)
    packet = option.packet(table, table[lk.T_OPTIONS])
    rows.set_cookie(pool, message, cookie)
    messages.set_at(pool, message, routes.first(table, route))
    messages.set_end(pool, message, routes.first(table, route + 1))
    messages.set_left(pool, message, size)
    # An empty message still sends one packet.
    messages.set_open(pool, message, max(1, (size + packet - 1) // packet))
    messages.set_last(pool, message, now)
    messages.set_route(pool, message, route)
    messages.set_key(pool, message, key)
    net[lk.N_IN_FLIGHT] += 1
    # A route without links leads to its own NPU.
    if routes.first(table, route) == routes.first(table, route + 1):
        push(net, queue, now, message * lk.CODES + ck.ARRIVED)
        return
    link = route_links.link(table, routes.first(table, route))
    # Messages of one route take turns at the gate; those of other routes share the NIC by key.
    if admit(net, pool, route, message, key, ck.M_KEY):
        enqueue(net, pool, senders.at_nic(net, link), message, key)
    waiting(table, net, link, uses.waiting(net, link) + size, now)
    wake(net, queue, link, now)


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: what waits for links that were down may go on."""
    push(net, queue, now, ck.REVIEW)


@inner
def _channel(table, net, pool, link, flits, crossed, now):
    """Return the next VC in turn that has room for `flits`, or -1.

    On rings the lower half of the VCs is for packets that have not crossed the dateline of theirs, the upper one for
    those that have (Dally and Seitz 1987).
    """
    low = 0
    high = option.vcs(table, table[lk.T_OPTIONS])
    if high > 1 and channels.ring(table, link) > 0:
        middle = (high + 1) // 2
        if crossed > 0:
            low = middle
        else:
            high = middle
    # The turn may have stopped in the other half.
    vc = senders.vc(net, link)
    if vc < low or vc >= high:
        vc = low
    for _ in range(high - low):
        if credits(net, pool, channels.end(table, link) + vc, now) >= flits:
            return vc
        vc = vc + 1 if vc + 1 < high else low
    return -1


@inner
def _cut(table, net, pool, nic):
    """Make the next packet of the message whose turn it is in a NIC."""
    message = first_message(net, pool, nic)
    packet = new_row(net, pool)
    size = min(messages.left(pool, message), option.packet(table, table[lk.T_OPTIONS]))
    packets.set_message(pool, packet, message)
    packets.set_at(pool, packet, messages.at(pool, message))
    packets.set_end(pool, packet, messages.end(pool, message))
    packets.set_size(pool, packet, size)
    packets.set_flits(pool, packet, _flits(table, size))
    packets.set_tail(pool, packet, 0)
    packets.set_ring(pool, packet, 0)
    packets.set_crossed(pool, packet, 0)
    messages.add_left(pool, message, -size)
    took_packet(net, pool, nic)
    # The route's gate opens when the last packet is cut, not when it arrives.
    if messages.left(pool, message) == 0:
        after = left(net, pool, messages.route(pool, message), ck.M_KEY)
        if after > 0:
            enqueue(net, pool, nic, after, messages.key(pool, after))
    return packet


@inner
def _flits(table, size):
    flit = option.flit(table, table[lk.T_OPTIONS])
    return max(1, (size + flit - 1) // flit)


@inner
def _gone(table, net, pool, link, packet, now):
    """Return when the last byte of a packet leaves if its first leaves now."""
    size = packets.flits(pool, packet) * option.flit(table, table[lk.T_OPTIONS])
    # A faster link cannot finish before the slower one upstream has delivered the last byte.
    return max(now + duration(table, link_row(table, net, link), size), packets.tail(pool, packet))


@inner
def _send(table, net, pool, queue, link, packet, vc, crossed, now, end):
    """Put a packet on a link from `now` to `end`, and into the slot there."""
    row = link_row(table, net, link)
    size = packets.size(pool, packet)
    options = table[lk.T_OPTIONS]
    carried(table, net, link, size, now, end)
    uses.add_waiting(net, link, -size)
    # The head is here a pipeline delay after it was sent; the tail when the last byte came.
    senders.set_free(net, link, end)
    through = links.latency(table, row) + option.delay(table, options)
    at = packets.at(pool, packet) + 1
    packets.set_at(pool, packet, at)
    packets.set_link(pool, packet, link)
    packets.set_ring(pool, packet, channels.ring(table, link))
    packets.set_crossed(pool, packet, max(crossed, channels.dateline(table, link)))
    packets.set_tail(pool, packet, end + through)
    packets.set_head(pool, packet, now + through)
    # At the destination no router stores the packet: only forwarded ones wait for the tail, in
    # store-and-forward mode. At least 1 ps, so that no packet crosses two links in one ps: arbitration relies on that.
    if at < packets.end(pool, packet):
        following = route_links.link(table, at)
        waiting(table, net, following, uses.waiting(net, following) + size, now)
        packets.set_head(
            pool, packet, end + through if option.whole(table, options) > 0 else now + max(1, through)
        )
    slot = channels.end(table, link) + vc
    # Credits count whole flits, also of a last packet that is not full.
    slots.add_credits(net, slot, -packets.flits(pool, packet))
    if append(net, pool, slot, packet):
        serve(table, net, pool, queue, slot, now)


@inner
def _grant(table, net, pool, queue, link, turn, vc, crossed, now):
    """Send the packet of the slot whose turn it is, or of the NIC, to a VC at the end of a link."""
    # Stored as 1 + the begin of the stall: 0 means none.
    if senders.stalled(net, link) > 0:
        uses.add_paused(net, link, now + 1 - senders.stalled(net, link))
        senders.set_stalled(net, link, 0)
    senders.set_turn(net, link, turn)
    senders.set_vc(net, link, vc + 1)
    # The NIC is the last place of the round robin.
    if turn == channels.slots(table, link):
        packet = _cut(table, net, pool, senders.at_nic(net, link))
        end = _gone(table, net, pool, link, packet, now)
        _send(table, net, pool, queue, link, packet, vc, crossed, now, end)
        wake(net, queue, link, _soonest(table, net, link))
        return
    slot = channels.first(table, link) + turn
    packet = slots.first(net, slot)
    end = _gone(table, net, pool, link, packet, now)
    # The want is cleared before the slot is served: `serve` registers that of the next packet.
    wants.set_link(net, slot, 0)
    senders.add_wanted(net, link, -1)
    leave(table, net, pool, queue, slot, end)
    _send(table, net, pool, queue, link, packet, vc, crossed, now, end)
    wake(net, queue, link, _soonest(table, net, link))
    serve(table, net, pool, queue, slot, now)


@inner
def _soonest(table, net, link):
    """Return when something first is ready for a link; FOREVER: nothing is to be."""
    # A NIC always has its next packet ready; `wake` delays this to when the link is free.
    if senders.nic(net, link) > 0:
        return 0
    want = channels.first(table, link)
    left = senders.wanted(net, link)
    soonest = lk.FOREVER
    # `wanted` counts matching slots, so the scan ends with the last of them.
    while left > 0:
        if wants.link(net, want) == link + 1:
            soonest = min(soonest, wants.since(net, want))
            left -= 1
        want += 1
    return soonest


@inner
def _arbitrate(table, net, pool, queue, link, now):
    """Give a link to the next in turn of those that are ready for it and fit, and say when to look again."""
    # An earlier wake-up has replaced this event.
    if senders.wake(net, link) != now:
        return
    senders.set_wake(net, link, lk.FOREVER)
    if links.slow(table, link_row(table, net, link)) == 0:
        # A link that is down is woken again by `change`.
        return
    count = channels.slots(table, link)
    first_want = channels.first(table, link)
    # Slots that want the link, plus the NIC: the loop ends when all were offered a turn.
    left = senders.wanted(net, link) + (1 if senders.nic(net, link) > 0 else 0)
    turn = senders.turn(net, link)
    again = lk.FOREVER
    stalled = 0
    while left > 0:
        turn = turn + 1 if turn < count else 0
        crossed = 0
        if turn == count:
            if senders.nic(net, link) == 0:
                continue
            # The NIC cuts a packet only once a VC has room for it; until then its size is computed.
            message = first_message(net, pool, senders.at_nic(net, link))
            flits = _flits(
                table, min(messages.left(pool, message), option.packet(table, table[lk.T_OPTIONS]))
            )
        else:
            want = first_want + turn
            if wants.link(net, want) != link + 1:
                continue
            if wants.since(net, want) > now:
                again = min(again, wants.since(net, want))
                left -= 1
                continue
            packet = slots.first(net, channels.first(table, link) + turn)
            flits = packets.flits(pool, packet)
            # The dateline counts only within one ring: a packet that turns into another dimension starts in
            # the lower half.
            if packets.ring(pool, packet) == channels.ring(table, link):
                crossed = packets.crossed(pool, packet)
        left -= 1
        vc = _channel(table, net, pool, link, flits, crossed, now)
        if vc >= 0:
            _grant(table, net, pool, queue, link, turn, vc, crossed, now)
            return
        # Something is ready but no VC has room.
        stalled = 1
    if stalled > 0:
        if senders.stalled(net, link) == 0:
            senders.set_stalled(net, link, now + 1)
        # Look again when the first credits in flight arrive. Those still to be returned wake the link in
        # `leave`.
        for vc in range(option.vcs(table, table[lk.T_OPTIONS])):
            back = slots.back(net, channels.end(table, link) + vc)
            if back > 0 and credit_rows.time(pool, back) > now:
                again = min(again, credit_rows.time(pool, back))
    wake(net, queue, link, again)


@inner
def _review(table, net, queue, first, now):
    """Wake links from `first` on that something waits for."""
    # A bounded number of wake-ups per event keeps the queue within the room of one burst.
    for link in range(first, min(first + ck.STEP, table[lk.T_LINKS])):
        if senders.wanted(net, link) > 0 or senders.nic(net, link) > 0:
            wake(net, queue, link, now)
    if first + ck.STEP < table[lk.T_LINKS]:
        push(net, queue, now, (first + ck.STEP) * lk.CODES + ck.REVIEW)


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    while comes(net, queue, limit):
        now = net[lk.N_NOW]
        what = pop(net, queue)
        code = what % lk.CODES
        row = what // lk.CODES
        if code == ck.ARBITRATE:
            _arbitrate(table, net, pool, queue, row, now)
        elif code == ck.ARRIVED:
            deliver(net, pool, row)
        elif code == ck.EMPTY:
            serve(table, net, pool, queue, row, now)
        else:
            _review(table, net, queue, row, now)
    return reached(net, queue, limit)
