"""Network model `flow`: messages are fluid, and share links max-min fairly (see `fair_kernel`).

A message takes all links of its route at one rate from its begin until its last byte has left, and has arrived a
latency of the route later. Rates are in 2**-V_SCALE bytes per ps, rounded up, but no message ends before its slowest
link can have carried it; volumes are exact, and ends are rounded up to a ps. All that begins and ends in a ps is
taken together: rates are set anew once, when it is over.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.flow_layout_kernel import *
from armillary.engine.transport.layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
new_row, free_row, full, deliver = events.new_row, events.free_row, events.full, events.deliver
gates = use("armillary.engine.transport.gate_kernel")
admit, left = gates.admit, gates.left
ranked = use("armillary.engine.transport.ranked_kernel")
add, move, remove_first = ranked.add, ranked.move, ranked.remove_first
fair = use("armillary.engine.transport.fair_kernel")
share, flow_at = fair.share, fair.flow_at
links = use("armillary.engine.transport.use_kernel")
link_row, duration, carried = links.link_row, links.duration, links.carried


@inner
def _set_scale(table, net):
    """Choose the unit of rates: 2**-40 bytes per ps, larger for links of 2 TB/s and more."""
    scale = 40
    for i in range(table[T_STAGES] * table[T_LINKS]):
        at = table[T_LINK] + i * L_COLUMNS
        while table[at + L_SLOW] > 0 and (table[at + L_FAST] << scale) // table[at + L_SLOW] >= MOST_RATE:
            scale -= 1
    net[net[N_VALUES] + V_SCALE] = scale


@inner
def _moved(scale, rate, ps):
    """Return the bytes that a rate moves in some time, and the fraction of a byte beyond.

    Their product has up to 82 bits: 20 bits of the time at a time.
    """
    mask = (1 << scale) - 1
    high = rate * (ps >> 20)
    low = rate * (ps & 0xFFFFF)
    part = ((high << 20) & mask) + (low & mask)
    return (high >> (scale - 20)) + (low >> scale) + (part >> scale), part & mask


@inner
def _ps_to_move(scale, rate, size, part):
    """Return how many ps a volume takes, rounded up; times beyond 2**61 (27 days) are that."""
    high = size << (scale - 20)
    low = ((high % rate) << 20) + part
    return (min(high // rate, 1 << 41) << 20) + (low + rate - 1) // rate


@inner
def _look_at(net, link):
    """Have a link looked at when the ps is over."""
    values = net[N_VALUES]
    at = net[N_ROWS] + link * K_COLUMNS
    if net[at + K_DIRTY] == 0:
        net[at + K_DIRTY] = 1
        net[net[N_DIRTY] + net[values + V_DIRTY]] = link
        net[values + V_DIRTY] += 1


@inner
def _account(table, net, link, now):
    """Count what a link has carried at the rate it had so far."""
    at = net[N_ROWS] + link * K_COLUMNS
    since = net[at + K_SINCE]
    if since == now:
        return
    net[at + K_SINCE] = now
    if net[at + K_RATE] > 0:
        scale = net[net[N_VALUES] + V_SCALE]
        size, part = _moved(scale, net[at + K_RATE], now - since)
        part += net[at + K_PART]
        net[at + K_PART] = part & ((1 << scale) - 1)
        carried(table, net, link, size + (part >> scale), since, now)


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps); of messages with the lowest key all get what they can."""
    values = net[N_VALUES]
    if net[values + V_SCALE] == 0:
        _set_scale(table, net)
    net[N_NOW] = max(net[N_NOW], now)
    net[N_UNDER_WAY] += 1
    row = new_row(net, pool)
    pool[row + P_COOKIE] = cookie
    pool[row + M_ROUTE] = route
    pool[row + M_CHAIN] = 0
    pool[row + M_KEY] = key
    pool[row + M_LEFT] = size
    if admit(net, pool, route, row, key, M_KEY):
        _begin_from(table, net, pool, queue, row, now)


@inner
def _begin_from(table, net, pool, queue, row, now):
    """Let a message begin, and those after it of the same route as long as they have nothing to send."""
    while row > 0 and not _begin(table, net, pool, queue, row, now):
        row = left(net, pool, pool[row + M_ROUTE], M_KEY)


@inner
def _begin(table, net, pool, queue, row, now):
    """Let a message flow from now on; returns whether it has something to send."""
    values = net[N_VALUES]
    route = pool[row + M_ROUTE]
    size = pool[row + M_LEFT]
    key = pool[row + M_KEY]
    first = table[table[T_ROUTE_FIRST] + route]
    last = table[table[T_ROUTE_FIRST] + route + 1]
    flows = size > 0 and first < last
    time = bound = now
    for i in range(first, last):
        at = link_row(table, net, table[table[T_ROUTE_LINK] + i])
        time += table[at + L_LATENCY]
        bound = max(bound, now + duration(table, at, size))
        flows = flows or table[at + L_SLOW] == 0
    sequence = net[N_SEQUENCE]
    net[N_SEQUENCE] = sequence + 1
    if flows:
        time = NEVER
    net[N_QUEUE] = add(queue, 0, net[N_QUEUE], pool, M_PLACE, row, time, sequence)
    if not flows:
        return False
    pool[row + M_WEIGHT] = 1
    if route < table[table[T_OPTIONS]]:
        pool[row + M_WEIGHT] = table[table[T_OWN] + route]
    pool[row + M_LEVEL] = -1
    pool[row + M_PART] = 0
    pool[row + M_SINCE] = now
    pool[row + M_BOUND] = bound
    pool[row + M_MARK] = 0
    net[values + V_LOWEST] = min(net[values + V_LOWEST], key)
    net[values + V_HIGHEST] = max(net[values + V_HIGHEST], key)
    chain = 0
    for i in range(first, last):
        link = table[table[T_ROUTE_LINK] + i]
        if (i - first) % PLACES == 0:
            chain = new_row(net, pool)
            pool[chain] = pool[row + M_CHAIN]
            pool[chain + C_FLOW] = row
            pool[row + M_CHAIN] = chain
        place = chain + C_PLACES + (i - first) % PLACES
        at = net[N_ROWS] + link * K_COLUMNS
        pool[place] = net[at + K_FIRST]
        net[at + K_FIRST] = place
        _look_at(net, link)
    return True


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: look at the links that are not what they were."""
    values = net[N_VALUES]
    before = table[T_LINK] + net[values + V_STAGE] * table[T_LINKS] * L_COLUMNS
    for link in range(table[T_LINKS]):
        at = link_row(table, net, link)
        was = before + link * L_COLUMNS
        if table[at + L_SLOW] != table[was + L_SLOW] or table[at + L_FAST] != table[was + L_FAST]:
            _look_at(net, link)
            net[values + V_LOWEST] = -NEVER
            place = net[net[N_ROWS] + link * K_COLUMNS + K_FIRST]
            while place > 0:
                if flow_at(pool, place) > 0:
                    pool[flow_at(pool, place) + M_BOUND] = 0
                place = pool[place]
    net[values + V_STAGE] = net[N_STAGE]
    net[N_NOW] = max(net[N_NOW], now)


@inner
def _end(table, net, pool, queue, row, now):
    """The last byte of a flow has left: it gives its links up, and arrives after the latency of its route."""
    values = net[N_VALUES]
    scale = net[values + V_SCALE]
    rate = pool[row + M_WEIGHT] * pool[row + M_LEVEL]
    size, part = _moved(scale, rate, now - pool[row + M_SINCE])
    # What it would have moved beyond its last byte in this ps was not carried.
    beyond = ((size - pool[row + M_LEFT]) << scale) + part - pool[row + M_PART]
    first = table[T_ROUTE_FIRST] + pool[row + M_ROUTE]
    time = now
    for i in range(table[T_ROUTE_LINK] + table[first], table[T_ROUTE_LINK] + table[first + 1]):
        link = table[i]
        time += table[link_row(table, net, link) + L_LATENCY]
        at = net[N_ROWS] + link * K_COLUMNS
        net[at + K_GONE] += rate
        net[at + K_PART] -= beyond
        _look_at(net, link)
    chain = pool[row + M_CHAIN]
    pool[row + M_CHAIN] = 0
    while chain > 0:
        after = pool[chain]
        pool[chain + C_FLOW] = 0
        pool[chain] = net[values + V_DEAD]
        net[values + V_DEAD] = chain
        chain = after
    net[values + V_LOWEST] = min(net[values + V_LOWEST], pool[row + M_KEY])
    move(queue, 0, net[N_QUEUE], pool, M_PLACE, row, time)
    _begin_from(table, net, pool, queue, left(net, pool, pool[row + M_ROUTE], M_KEY), now)


@inner
def _forget_ended(table, net, pool, now):
    """Take flows that have ended off their links."""
    values = net[N_VALUES]
    for i in range(net[N_DIRTY], net[N_DIRTY] + net[values + V_DIRTY]):
        at = net[N_ROWS] + net[i] * K_COLUMNS
        _account(table, net, net[i], now)
        net[at + K_RATE] -= net[at + K_GONE]
        net[at + K_GONE] = 0
        if net[values + V_DEAD] == 0:
            continue
        kept = 0
        place = net[at + K_FIRST]
        while place > 0:
            after = pool[place]
            if flow_at(pool, place) == 0:
                if kept == 0:
                    net[at + K_FIRST] = after
                else:
                    pool[kept] = after
            else:
                kept = place
            place = after
    while net[values + V_DEAD] > 0:
        chain = net[values + V_DEAD]
        net[values + V_DEAD] = pool[chain]
        free_row(net, pool, chain)


@inner
def _set_rate(table, net, pool, queue, row, now):
    """Let a flow have its new level from now on."""
    values = net[N_VALUES]
    scale = net[values + V_SCALE]
    weight = pool[row + M_WEIGHT]
    if pool[row + M_LEVEL] > 0:
        size, part = _moved(scale, weight * pool[row + M_LEVEL], now - pool[row + M_SINCE])
        part = pool[row + M_PART] - part
        pool[row + M_LEFT] += (part >> scale) - size
        pool[row + M_PART] = part & ((1 << scale) - 1)
    more = weight * (pool[row + M_NEW] - max(pool[row + M_LEVEL], 0))
    pool[row + M_SINCE] = now
    pool[row + M_LEVEL] = pool[row + M_NEW]
    rate = weight * pool[row + M_LEVEL]
    first = table[T_ROUTE_FIRST] + pool[row + M_ROUTE]
    for i in range(table[T_ROUTE_LINK] + table[first], table[T_ROUTE_LINK] + table[first + 1]):
        _account(table, net, table[i], now)
        net[net[N_ROWS] + table[i] * K_COLUMNS + K_RATE] += more
        if pool[row + M_KEY] < net[values + V_HIGHEST]:
            _look_at(net, table[i])
    time = NEVER
    if rate > 0:
        time = now + _ps_to_move(scale, rate, pool[row + M_LEFT], pool[row + M_PART])
        time = max(time, now, pool[row + M_BOUND])
    move(queue, 0, net[N_QUEUE], pool, M_PLACE, row, time)


@inner
def _next_key(net, pool, key):
    """Return the lowest key above `key` on the links that are to be looked at."""
    lowest = NEVER
    for i in range(net[N_DIRTY], net[N_DIRTY] + net[net[N_VALUES] + V_DIRTY]):
        place = net[net[N_ROWS] + net[i] * K_COLUMNS + K_FIRST]
        while place > 0:
            other = pool[flow_at(pool, place) + M_KEY]
            if key < other < lowest:
                lowest = other
            place = pool[place]
    return lowest


@inner
def _settle(table, net, pool, queue, now):
    """Set the rates that hold after all that has begun and ended in this ps, the most urgent key first."""
    values = net[N_VALUES]
    _forget_ended(table, net, pool, now)
    key = _next_key(net, pool, net[values + V_LOWEST] - 1)
    while key < NEVER:
        row = share(table, net, pool, key)
        while row > 0:
            after = pool[row + P_NEXT]
            if pool[row + M_NEW] != pool[row + M_LEVEL]:
                _set_rate(table, net, pool, queue, row, now)
            row = after
        key = _next_key(net, pool, key) if key < net[values + V_HIGHEST] else NEVER
    for i in range(net[N_DIRTY], net[N_DIRTY] + net[values + V_DIRTY]):
        net[net[N_ROWS] + net[i] * K_COLUMNS + K_DIRTY] = 0
    net[values + V_DIRTY] = 0
    net[values + V_LOWEST] = NEVER


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    dirty = net[N_VALUES] + V_DIRTY
    while True:
        time = queue[Q_TIME] if net[N_QUEUE] > 0 else NEVER
        if time > net[N_NOW]:
            if net[N_DELIVERED] > 0 and (net[N_UNDER_WAY] > 0 or net[dirty] == 0):
                return net[N_NOW]
            if net[dirty] > 0 and limit > net[N_NOW]:
                _settle(table, net, pool, queue, net[N_NOW])
                continue
        if time > limit:
            break
        if full(net):
            net[N_STATUS] = GROW
            return net[N_NOW]
        net[N_NOW] = time
        net[N_EVENTS] += 1
        row = queue[Q_WHAT]
        if pool[row + M_CHAIN] > 0:
            _end(table, net, pool, queue, row, time)
        else:
            net[N_QUEUE] = remove_first(queue, 0, net[N_QUEUE], pool, M_PLACE)
            deliver(net, pool, row)
    if net[N_DELIVERED] > 0:
        return net[N_NOW]
    if limit < FOREVER:
        net[N_NOW] = limit
    return limit
