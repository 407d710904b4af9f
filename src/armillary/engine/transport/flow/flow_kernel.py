"""Network model `flow`: messages are fluid, and share links max-min fairly (see `fair_kernel`).

A message takes all links of its route at one rate from its begin until its last byte has left, and has arrived a
latency of the route later. Rates are in 2**-V_SCALE bytes per ps, rounded up, but no message ends before its slowest
link can have carried it; volumes are exact, and ends are rounded up to a ps. All that begins and ends in a ps is
taken together: rates are set anew once, when it is over.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.flow import layout as fk

queue_kernel = use("armillary.engine.transport.queue_kernel")
new_row, free_row, full, deliver = (
    queue_kernel.new_row,
    queue_kernel.free_row,
    queue_kernel.full,
    queue_kernel.deliver,
)
gate_kernel = use("armillary.engine.transport.gate_kernel")
admit, left = gate_kernel.admit, gate_kernel.left
ranked_kernel = use("armillary.engine.transport.flow.ranked_kernel")
add, move, remove_first = ranked_kernel.add, ranked_kernel.move, ranked_kernel.remove_first
fair_kernel = use("armillary.engine.transport.flow.fair_kernel")
share, share_of, flow_at = fair_kernel.share, fair_kernel.share_of, fair_kernel.flow_at
use_kernel = use("armillary.engine.transport.use_kernel")
link_row, duration, carried = use_kernel.link_row, use_kernel.duration, use_kernel.carried
chains, dirty, flows, links, option = accessors(fk.CHAIN, fk.DIRTY, fk.FLOW, lk.LINK, fk.OPTION)
route_links, routes, rows, shares = accessors(lk.ROUTE_LINK, lk.ROUTE_FIRST, lk.ROW, fk.SHARE)
value, weights = accessors(fk.VALUE, fk.WEIGHT)


@inner
def _set_scale(table, net):
    """Choose the unit of rates: 2**-40 bytes per ps, larger for links of 2 TB/s and more."""
    # 2**-40 bytes per ps resolves 1 byte/s; `_moved` needs rates below MOST_RATE to multiply them by 2**20.
    scale = 40
    # Rates of all stages: the scale holds for the whole run.
    for i in range(table[lk.T_STAGES] * table[lk.T_LINKS]):
        while (
            links.slow(table, i) > 0
            and (links.fast(table, i) << scale) // links.slow(table, i) >= fk.MOST_RATE
        ):
            scale -= 1
    value.set_scale(net, net[fk.N_VALUES], scale)


@inner
def _moved(scale, rate, ps):
    """Return the bytes that a rate moves in some time, and the fraction of a byte beyond.

    Their product has up to 82 bits: 20 bits of the time at a time.
    """
    # The low 20 bits of the time apart: their product with a rate stays within 61 bits. The carry of the
    # fractions comes last.
    mask = (1 << scale) - 1
    high = rate * (ps >> 20)
    low = rate * (ps & 0xFFFFF)
    part = ((high << 20) & mask) + (low & mask)
    return (high >> (scale - 20)) + (low >> scale) + (part >> scale), part & mask


@inner
def _ps_to_move(scale, rate, size, part):
    """Return how many ps a volume takes, rounded up; at most about 2**61 (27 days)."""
    # Division in two digits, for the same reason; the cap keeps the shifted quotient within 62 bits.
    high = size << (scale - 20)
    low = ((high % rate) << 20) + part
    return (min(high // rate, 1 << 41) << 20) + (low + rate - 1) // rate


@inner
def _look_at(net, link):
    """Have a link looked at when the ps is over."""
    values = net[fk.N_VALUES]
    at = share_of(net, link)
    if shares.dirty(net, at) == 0:
        shares.set_dirty(net, at, 1)
        dirty.set_link(net, value.dirty(net, values), link)
        value.add_dirty(net, values, 1)


@inner
def _account(table, net, link, now):
    """Count what a link has carried at the rate it had so far."""
    at = share_of(net, link)
    since = shares.since(net, at)
    # Accounted in this ps already.
    if since == now:
        return
    shares.set_since(net, at, now)
    if shares.rate(net, at) > 0:
        scale = value.scale(net, net[fk.N_VALUES])
        size, part = _moved(scale, shares.rate(net, at), now - since)
        part += shares.part(net, at)
        shares.set_part(net, at, part & (1 << scale) - 1)
        carried(table, net, link, size + (part >> scale), since, now)


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps); of messages with the lowest key all get what they can."""
    values = net[fk.N_VALUES]
    # The first message sets the scale: tables are not known before the kernel runs.
    if value.scale(net, values) == 0:
        _set_scale(table, net)
    net[lk.N_NOW] = max(net[lk.N_NOW], now)
    net[lk.N_IN_FLIGHT] += 1
    row = new_row(net, pool)
    rows.set_cookie(pool, row, cookie)
    flows.set_route(pool, row, route)
    flows.set_chain(pool, row, 0)
    flows.set_key(pool, row, key)
    flows.set_left(pool, row, size)
    if admit(net, pool, route, row, key, fk.M_KEY):
        _begin_from(table, net, pool, queue, row, now)


@inner
def _begin_from(table, net, pool, queue, row, now):
    """Let a message begin, and those after it of the same route as long as they have nothing to send."""
    # A message that moves nothing ends at once and would otherwise leave the gate shut.
    while row > 0 and not _begin(table, net, pool, queue, row, now):
        row = left(net, pool, flows.route(pool, row), fk.M_KEY)


@inner
def _begin(table, net, pool, queue, row, now):
    """Let a message flow from now on; returns whether it has something to send."""
    values = net[fk.N_VALUES]
    route = flows.route(pool, row)
    size = flows.left(pool, row)
    key = flows.key(pool, row)
    first = routes.first(table, route)
    last = routes.first(table, route + 1)
    moves = size > 0 and first < last
    time = bound = now
    for i in range(first, last):
        at = link_row(table, net, route_links.link(table, i))
        time += links.latency(table, at)
        # Rates are rounded up, so the fluid end may come early by some ps: the exact time on the slowest link
        # bounds it.
        bound = max(bound, now + duration(table, at, size))
        # Even an empty message must wait for a link that is down.
        moves = moves or links.slow(table, at) == 0
    sequence = net[lk.N_SEQUENCE]
    net[lk.N_SEQUENCE] = sequence + 1
    # It has no rate yet: parked beyond every limit until `_settle` gives it one.
    if moves:
        time = fk.NEVER
    net[lk.N_QUEUE] = add(queue, 0, net[lk.N_QUEUE], pool, fk.M_PLACE, row, time, sequence)
    if not moves:
        return False
    flows.set_weight(pool, row, 1)
    if route < option.weights(table, table[lk.T_OPTIONS]):
        flows.set_weight(pool, row, weights.weight(table, route))
    flows.set_level(pool, row, -1)
    flows.set_part(pool, row, 0)
    flows.set_since(pool, row, now)
    flows.set_bound(pool, row, bound)
    flows.set_mark(pool, row, 0)
    flows.set_link(pool, row, -1)
    rows.set_next(pool, row, value.fresh(net, values))
    value.set_fresh(net, values, row)
    value.set_least(net, values, min(value.least(net, values), key))
    value.set_lowest(net, values, min(value.lowest(net, values), key))
    value.set_highest(net, values, max(value.highest(net, values), key))
    chain = 0
    for i in range(first, last):
        link = route_links.link(table, i)
        # A place is an address: its two words hold the next place on the same link and the one before, and
        # rounding down gives the row.
        if (i - first) % fk.PLACES == 0:
            chain = new_row(net, pool)
            pool[chain] = flows.chain(pool, row)
            chains.set_flow(pool, chain, row)
            flows.set_chain(pool, row, chain)
        place = chain + fk.C_PLACES + 2 * ((i - first) % fk.PLACES)
        at = share_of(net, link)
        pool[place] = shares.first(net, at)
        pool[place + 1] = 0
        if pool[place] > 0:
            pool[pool[place] + 1] = place
        shares.set_first(net, at, place)
        _look_at(net, link)
    return True


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: look at the links that are not what they were."""
    values = net[fk.N_VALUES]
    before = value.stage(net, values) * table[lk.T_LINKS]
    for link in range(table[lk.T_LINKS]):
        at = link_row(table, net, link)
        was = before + link
        if links.slow(table, at) != links.slow(table, was) or links.fast(table, at) != links.fast(table, was):
            _look_at(net, link)
            # Any key may change: start below all of them.
            value.set_lowest(net, values, -fk.NEVER)
            place = shares.first(net, share_of(net, link))
            while place > 0:
                # The bound was computed with the old bandwidth.
                flows.set_bound(pool, flow_at(pool, place), 0)
                place = pool[place]
    value.set_stage(net, values, net[lk.N_STAGE])
    net[lk.N_NOW] = max(net[lk.N_NOW], now)


@inner
def _end(table, net, pool, queue, row, now):
    """The last byte of a flow has left: it gives its links up, and arrives after the latency of its route."""
    values = net[fk.N_VALUES]
    scale = value.scale(net, values)
    rate = flows.weight(pool, row) * flows.level(pool, row)
    size, part = _moved(scale, rate, now - flows.since(pool, row))
    # The end is rounded up to a ps, so the rate times the time exceeds the volume by a fraction.
    # What it would have moved beyond its last byte in this ps was not carried.
    beyond = (size - flows.left(pool, row) << scale) + part - flows.part(pool, row)
    if flows.link(pool, row) >= 0:
        shares.add_held(net, share_of(net, flows.link(pool, row)), -flows.weight(pool, row))
    route = flows.route(pool, row)
    time = now
    first = routes.first(table, route)
    chain = flows.chain(pool, row)
    flows.set_chain(pool, row, 0)
    # From the last link on, as the rows of places are found.
    for i in range(routes.first(table, route + 1) - 1, first - 1, -1):
        link = route_links.link(table, i)
        time += links.latency(table, link_row(table, net, link))
        at = share_of(net, link)
        shares.add_gone(net, at, rate)
        shares.add_part(net, at, -beyond)
        _look_at(net, link)
        place = chain + fk.C_PLACES + 2 * ((i - first) % fk.PLACES)
        after, before = pool[place], pool[place + 1]
        if before > 0:
            pool[before] = after
        else:
            shares.set_first(net, at, after)
        if after > 0:
            pool[after + 1] = before
        if (i - first) % fk.PLACES == 0:
            other = pool[chain]
            free_row(net, pool, chain)
            chain = other
    value.set_lowest(net, values, min(value.lowest(net, values), flows.key(pool, row)))
    move(queue, 0, net[lk.N_QUEUE], pool, fk.M_PLACE, row, time)
    _begin_from(table, net, pool, queue, left(net, pool, flows.route(pool, row), fk.M_KEY), now)


@inner
def _forget_ended(table, net, now):
    """Take the rates of flows that have ended off their links."""
    values = net[fk.N_VALUES]
    for i in range(value.dirty(net, values)):
        at = share_of(net, dirty.link(net, i))
        _account(table, net, dirty.link(net, i), now)
        shares.add_rate(net, at, -shares.gone(net, at))
        # Subtracted here and not in `_end`: until now the links carried at the full rate.
        shares.set_gone(net, at, 0)


@inner
def _set_rate(table, net, pool, queue, row, now):
    """Let a flow have its new level from now on."""
    values = net[fk.N_VALUES]
    scale = value.scale(net, values)
    weight = flows.weight(pool, row)
    # Bring what is left up to date at the old rate before the rate changes.
    if flows.level(pool, row) > 0:
        size, part = _moved(scale, weight * flows.level(pool, row), now - flows.since(pool, row))
        part = flows.part(pool, row) - part
        flows.add_left(pool, row, (part >> scale) - size)
        flows.set_part(pool, row, part & (1 << scale) - 1)
    more = weight * (flows.new(pool, row) - max(flows.level(pool, row), 0))
    flows.set_since(pool, row, now)
    flows.set_level(pool, row, flows.new(pool, row))
    rate = weight * flows.level(pool, row)
    route = flows.route(pool, row)
    for i in range(routes.first(table, route), routes.first(table, route + 1)):
        link = route_links.link(table, i)
        _account(table, net, link, now)
        shares.add_rate(net, share_of(net, link), more)
        # Less urgent flows live on what this one leaves: their links are affected.
        if flows.key(pool, row) < value.highest(net, values):
            _look_at(net, link)
    time = fk.NEVER
    if rate > 0:
        time = now + _ps_to_move(scale, rate, flows.left(pool, row), flows.part(pool, row))
        time = max(time, now, flows.bound(pool, row))
    move(queue, 0, net[lk.N_QUEUE], pool, fk.M_PLACE, row, time)


@inner
def _next_key(net, pool, key):
    """Return the lowest key above `key` on the links that are to be looked at."""
    values = net[fk.N_VALUES]
    # With one key there is nothing to look for.
    if value.least(net, values) == value.highest(net, values):
        return value.least(net, values) if key < value.least(net, values) else fk.NEVER
    lowest = fk.NEVER
    for i in range(value.dirty(net, net[fk.N_VALUES])):
        place = shares.first(net, share_of(net, dirty.link(net, i)))
        while place > 0:
            other = flows.key(pool, flow_at(pool, place))
            if key < other < lowest:
                lowest = other
            place = pool[place]
    return lowest


@inner
def _settle(table, net, pool, queue, now):
    """Set the rates that hold after all that has begun and ended in this ps, the most urgent key first."""
    values = net[fk.N_VALUES]
    _forget_ended(table, net, now)
    # In ascending order of keys: a key's room is what the more urgent ones leave.
    key = _next_key(net, pool, value.lowest(net, values) - 1)
    while key < fk.NEVER:
        row = share(table, net, pool, key)
        while row > 0:
            after = rows.next(pool, row)
            if flows.new(pool, row) != flows.level(pool, row):
                _set_rate(table, net, pool, queue, row, now)
            row = after
        # The highest key has nobody below to affect.
        key = _next_key(net, pool, key) if key < value.highest(net, values) else fk.NEVER
    for i in range(value.dirty(net, values)):
        shares.set_dirty(net, share_of(net, dirty.link(net, i)), 0)
    value.set_dirty(net, values, 0)
    value.set_lowest(net, values, fk.NEVER)


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    values = net[fk.N_VALUES]
    while True:
        time = queue[lk.Q_TIME] if net[lk.N_QUEUE] > 0 else fk.NEVER
        if time > net[lk.N_NOW]:
            # Arrivals are handed out before rates are set: their receivers may send in this same ps. With
            # nothing in flight nobody will, and the rates are settled so that the use of links is complete.
            if net[lk.N_DELIVERED] > 0 and (net[lk.N_IN_FLIGHT] > 0 or value.dirty(net, values) == 0):
                return net[lk.N_NOW]
            if value.dirty(net, values) > 0 and limit > net[lk.N_NOW]:
                _settle(table, net, pool, queue, net[lk.N_NOW])
                continue
        if time > limit:
            break
        if full(net):
            net[lk.N_STATUS] = lk.GROW
            return net[lk.N_NOW]
        net[lk.N_NOW] = time
        net[lk.N_EVENTS] += 1
        row = queue[lk.Q_WHAT]
        # A flow still on its links ends; one without a chain has ended before, and now arrives.
        if flows.chain(pool, row) > 0:
            _end(table, net, pool, queue, row, time)
        else:
            net[lk.N_QUEUE] = remove_first(queue, 0, net[lk.N_QUEUE], pool, fk.M_PLACE)
            deliver(net, pool, row)
    if net[lk.N_DELIVERED] > 0:
        return net[lk.N_NOW]
    if limit < lk.FOREVER:
        net[lk.N_NOW] = limit
    return limit
