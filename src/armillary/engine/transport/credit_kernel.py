"""Network model `credit`: packets, routers with virtual channels, and credits (what Garnet models).

Garnet: Agarwal et al., ISPASS 2009. Virtual cut-through (Kermani and Kleinrock 1979): a packet moves on as soon as its
head is through the router and the whole of it fits into one VC of the next link; nothing then stops it, so that one
event moves it over a link with the times that all of its flits would have. See `credit.Credit` for the model.

All that a link's arbitration reads was settled before its ps, so that the order of links within it has no effect.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.credit_layout_kernel import *
from armillary.engine.transport.layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
push, pop, new_row, deliver = events.push, events.pop, events.new_row, events.deliver
comes, reached = events.comes, events.reached
links = use("armillary.engine.transport.use_kernel")
link_row, duration, carried, waiting = links.link_row, links.duration, links.carried, links.waiting
gates = use("armillary.engine.transport.gate_kernel")
admit, left = gates.admit, gates.left
nics = use("armillary.engine.transport.credit_nic_kernel")
enqueue, first_message, took_packet = nics.enqueue, nics.first_message, nics.took_packet
buffers = use("armillary.engine.transport.credit_buffer_kernel")
wake, append, leave = buffers.wake, buffers.append, buffers.leave
credits, serve = buffers.credits, buffers.serve


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps)."""
    message = new_row(net, pool)
    packet = table[table[T_OPTIONS] + O_PACKET]
    first = table[T_ROUTE_FIRST] + route
    pool[message + P_COOKIE] = cookie
    pool[message + M_AT] = table[first]
    pool[message + M_END] = table[first + 1]
    pool[message + M_LEFT] = size
    pool[message + M_OPEN] = max(1, (size + packet - 1) // packet)
    pool[message + M_LAST] = now
    pool[message + M_ROUTE] = route
    pool[message + M_KEY] = key
    net[N_UNDER_WAY] += 1
    if table[first] == table[first + 1]:
        push(net, queue, now, message * CODES + ARRIVED)
        return
    link = table[table[T_ROUTE_LINK] + table[first]]
    if admit(net, pool, route, message, key, M_KEY):
        enqueue(net, pool, net[N_OWN] + link * S_COLUMNS + S_NIC, message, key)
    waiting(table, net, link, net[net[N_USE] + link * U_COLUMNS + U_WAITING] + size, now)
    wake(net, queue, link, now)


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: what waits for links that were down may go on."""
    push(net, queue, now, REVIEW)


@inner
def _channel(table, net, pool, link, flits, crossed, now):
    """Return a VC of a link into which so many flits fit, the next in turn; -1: none.

    On rings the lower half of the VCs is for packets that have not crossed the dateline of theirs, the upper one for
    those that have (Dally and Seitz 1987).
    """
    own = table[T_OWN] + link * C_COLUMNS
    low = 0
    high = table[table[T_OPTIONS] + O_VCS]
    if high > 1 and table[own + C_RING] > 0:
        middle = (high + 1) // 2
        if crossed > 0:
            low = middle
        else:
            high = middle
    vc = net[net[N_OWN] + link * S_COLUMNS + S_VC]
    if vc < low or vc >= high:
        vc = low
    for _ in range(high - low):
        if credits(net, pool, net[N_OWN + 2] + (table[own + C_END] + vc) * V_COLUMNS, now) >= flits:
            return vc
        vc = vc + 1 if vc + 1 < high else low
    return -1


@inner
def _cut(table, net, pool, nic):
    """Make the next packet of the message whose turn it is in a NIC."""
    message = first_message(net, pool, nic)
    packet = new_row(net, pool)
    size = min(pool[message + M_LEFT], table[table[T_OPTIONS] + O_PACKET])
    pool[packet + K_MESSAGE] = message
    pool[packet + K_AT] = pool[message + M_AT]
    pool[packet + K_END] = pool[message + M_END]
    pool[packet + K_SIZE] = size
    pool[packet + K_FLITS] = _flits(table, size)
    pool[packet + K_TAIL] = 0
    pool[packet + K_RING] = 0
    pool[packet + K_CROSSED] = 0
    pool[message + M_LEFT] -= size
    took_packet(net, pool, nic)
    if pool[message + M_LEFT] == 0:
        after = left(net, pool, pool[message + M_ROUTE], M_KEY)
        if after > 0:
            enqueue(net, pool, nic, after, pool[after + M_KEY])
    return packet


@inner
def _flits(table, size):
    flit = table[table[T_OPTIONS] + O_FLIT]
    return max(1, (size + flit - 1) // flit)


@inner
def _gone(table, net, pool, link, packet, now):
    """Return when the last byte of a packet has gone whose first goes now."""
    size = pool[packet + K_FLITS] * table[table[T_OPTIONS] + O_FLIT]
    return max(now + duration(table, link_row(table, net, link), size), pool[packet + K_TAIL])


@inner
def _send(table, net, pool, queue, link, packet, vc, crossed, now, end):
    """Put a packet on a link from `now` to `end`, and into the slot there."""
    own = table[T_OWN] + link * C_COLUMNS
    row = link_row(table, net, link)
    size = pool[packet + K_SIZE]
    options = table[T_OPTIONS]
    carried(table, net, link, size, now, end)
    net[net[N_USE] + link * U_COLUMNS + U_WAITING] -= size
    net[net[N_OWN] + link * S_COLUMNS + S_FREE] = end
    through = table[row + L_LATENCY] + table[options + O_DELAY]
    at = pool[packet + K_AT] + 1
    pool[packet + K_AT] = at
    pool[packet + K_LINK] = link
    pool[packet + K_RING] = table[own + C_RING]
    pool[packet + K_CROSSED] = max(crossed, table[own + C_DATELINE])
    pool[packet + K_TAIL] = end + through
    pool[packet + K_HEAD] = now + through
    if at < pool[packet + K_END]:
        following = table[table[T_ROUTE_LINK] + at]
        waiting(table, net, following, net[net[N_USE] + following * U_COLUMNS + U_WAITING] + size, now)
        pool[packet + K_HEAD] = end + through if table[options + O_WHOLE] > 0 else now + max(1, through)
    slot = table[own + C_END] + vc
    net[net[N_OWN + 2] + slot * V_COLUMNS + V_CREDITS] -= pool[packet + K_FLITS]
    if append(net, pool, slot, packet):
        serve(table, net, pool, queue, slot, now)


@inner
def _grant(table, net, pool, queue, link, turn, vc, crossed, now):
    """Send the packet of the slot whose turn it is, or of the NIC, to a VC at the end of a link."""
    state = net[N_OWN] + link * S_COLUMNS
    own = table[T_OWN] + link * C_COLUMNS
    if net[state + S_STALLED] > 0:
        net[net[N_USE] + link * U_COLUMNS + U_PAUSED] += now + 1 - net[state + S_STALLED]
        net[state + S_STALLED] = 0
    net[state + S_TURN] = turn
    net[state + S_VC] = vc + 1
    if turn == table[own + C_SLOTS]:
        packet = _cut(table, net, pool, state + S_NIC)
        end = _gone(table, net, pool, link, packet, now)
        _send(table, net, pool, queue, link, packet, vc, crossed, now, end)
        wake(net, queue, link, _soonest(table, net, link))
        return
    slot = table[own + C_FIRST] + turn
    packet = net[net[N_OWN + 2] + slot * V_COLUMNS + V_FIRST]
    end = _gone(table, net, pool, link, packet, now)
    net[net[N_OWN + 1] + slot * W_COLUMNS + W_LINK] = 0
    net[state + S_WANTED] -= 1
    leave(table, net, pool, queue, slot, end)
    _send(table, net, pool, queue, link, packet, vc, crossed, now, end)
    wake(net, queue, link, _soonest(table, net, link))
    serve(table, net, pool, queue, slot, now)


@inner
def _soonest(table, net, link):
    """Return when something first is ready for a link; FOREVER: nothing is to be."""
    state = net[N_OWN] + link * S_COLUMNS
    if net[state + S_NIC] > 0:
        return 0
    own = table[T_OWN] + link * C_COLUMNS
    want = net[N_OWN + 1] + table[own + C_FIRST] * W_COLUMNS
    left = net[state + S_WANTED]
    soonest = FOREVER
    while left > 0:
        if net[want + W_LINK] == link + 1:
            soonest = min(soonest, net[want + W_FROM])
            left -= 1
        want += W_COLUMNS
    return soonest


@inner
def _arbitrate(table, net, pool, queue, link, now):
    """Give a link to the next in turn of those that are ready for it and fit, and say when to look again."""
    state = net[N_OWN] + link * S_COLUMNS
    if net[state + S_WAKE] != now:
        return
    net[state + S_WAKE] = FOREVER
    if table[link_row(table, net, link) + L_SLOW] == 0:
        net[N_A] = link
        return
    own = table[T_OWN] + link * C_COLUMNS
    slots = table[own + C_SLOTS]
    wants = net[N_OWN + 1] + table[own + C_FIRST] * W_COLUMNS
    left = net[state + S_WANTED] + (1 if net[state + S_NIC] > 0 else 0)
    turn = net[state + S_TURN]
    again = FOREVER
    stalled = 0
    while left > 0:
        turn = turn + 1 if turn < slots else 0
        crossed = 0
        if turn == slots:
            if net[state + S_NIC] == 0:
                continue
            message = first_message(net, pool, state + S_NIC)
            flits = _flits(table, min(pool[message + M_LEFT], table[table[T_OPTIONS] + O_PACKET]))
        else:
            want = wants + turn * W_COLUMNS
            if net[want + W_LINK] != link + 1:
                continue
            if net[want + W_FROM] > now:
                again = min(again, net[want + W_FROM])
                left -= 1
                continue
            packet = net[net[N_OWN + 2] + (table[own + C_FIRST] + turn) * V_COLUMNS + V_FIRST]
            flits = pool[packet + K_FLITS]
            if pool[packet + K_RING] == table[own + C_RING]:
                crossed = pool[packet + K_CROSSED]
        left -= 1
        vc = _channel(table, net, pool, link, flits, crossed, now)
        if vc >= 0:
            _grant(table, net, pool, queue, link, turn, vc, crossed, now)
            return
        stalled = 1
    if stalled > 0:
        if net[state + S_STALLED] == 0:
            net[state + S_STALLED] = now + 1
        for vc in range(table[table[T_OPTIONS] + O_VCS]):
            back = net[net[N_OWN + 2] + (table[own + C_END] + vc) * V_COLUMNS + V_BACK]
            if back > 0 and pool[back + B_TIME] > now:
                again = min(again, pool[back + B_TIME])
    wake(net, queue, link, again)


@inner
def _review(table, net, queue, first, now):
    """Wake links from `first` on that something waits for."""
    for link in range(first, min(first + STEP, table[T_LINKS])):
        state = net[N_OWN] + link * S_COLUMNS
        if net[state + S_WANTED] > 0 or net[state + S_NIC] > 0:
            wake(net, queue, link, now)
    if first + STEP < table[T_LINKS]:
        push(net, queue, now, (first + STEP) * CODES + REVIEW)


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    while comes(net, queue, limit):
        now = net[N_NOW]
        what = pop(net, queue)
        code = what % CODES
        row = what // CODES
        if code == ARBITRATE:
            _arbitrate(table, net, pool, queue, row, now)
        elif code == ARRIVED:
            deliver(net, pool, row)
        elif code == EMPTY:
            serve(table, net, pool, queue, row, now)
        else:
            _review(table, net, queue, row, now)
    return reached(net, queue, limit)
