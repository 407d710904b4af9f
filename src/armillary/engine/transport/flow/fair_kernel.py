"""Max-min fair levels of flows on links, recomputed only for the flows that a change affects.

The level of a flow is its rate per weight. Levels rise from 0 together, in whole units; a link is full at the lowest
level at which its flows use all its room, and holds back those it has then (water filling: Bertsekas, Gallager, Data
Networks, 2nd ed., §6.5.2). So the levels are right, and the only ones, if every flow is held back by a full link on
which none has a higher level, and no link would be full one unit lower.

A change begins at some links and proceeds through links in the order of the levels at which they are full. A link that
is full earlier than before lowers its flows; one that is no longer full releases the flows that it held back; both
affect the other links of these flows. Flows of a lower key are more urgent: what they use is not available to others.

During one pass the mark of a flow says where it stands, relative to twice the pass's stamp: negative, it keeps its old
level; 0, it is open and rises; 1, it has its new level. No mark needs to be reset between passes.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.flow import layout as fk

ranked_kernel = use("armillary.engine.transport.flow.ranked_kernel")
add, move, remove_first = ranked_kernel.add, ranked_kernel.move, ranked_kernel.remove_first
link_row = use("armillary.engine.transport.use_kernel").link_row
chains, dirty, flows, links, route_links = accessors(fk.CHAIN, fk.DIRTY, fk.FLOW, lk.LINK, lk.ROUTE_LINK)
routes, rows, shares, value = accessors(lk.ROUTE_FIRST, lk.ROW, fk.SHARE, fk.VALUE)


@inner
def share_of(net, link):
    """Return the address of the row of a link."""
    return net[fk.N_ROWS] + link * fk.K_COLUMNS


@inner
def room_of(table, net, link):
    """Return the rate of a link, in 2**-V_SCALE bytes per ps, rounded up."""
    at = link_row(table, net, link)
    slow = links.slow(table, at)
    if slow == 0:
        return 0
    return ((links.fast(table, at) << value.scale(net, net[fk.N_VALUES])) + slow - 1) // slow


@inner
def flow_at(pool, place):
    """Return the flow that has a place on a link."""
    # Rows of the pool are P_COLUMNS wide and aligned, so the row of a place is found by rounding down.
    return chains.flow(pool, place - place % lk.P_COLUMNS)


@inner
def _await(net, at, level):
    """Have a link looked at when levels have risen to `level`, or before."""
    heap, values = net[fk.N_HEAP], net[fk.N_VALUES]
    place = shares.place(net, at)
    # Level and address order the heap: links that are full at the same level are handled by number.
    if place == 0:
        value.set_heap(net, values, add(net, heap, value.heap(net, values), net, fk.K_PLACE, at, level, at))
    elif net[heap + (place - 1) * lk.Q_COLUMNS] > level:
        move(net, heap, value.heap(net, values), net, fk.K_PLACE, at, level)


@inner
def _least(net, at, level):
    """Return a level below which a link cannot be full, `level` or above."""
    left = shares.left(net, at)
    if left <= 0:
        return level
    weight = shares.weight(net, at)
    if weight == 0:
        return fk.NEVER
    return max(level, (left + weight - 1) // weight)


@inner
def _quick_level(net, at, level):
    """Return what `_level_of` does where no flow that keeps its level loses by it, else -1."""
    left, weight = (shares.left(net, at), shares.weight(net, at))
    # No retained flow is above `level`, or the link still has room with the open flows at the top: none
    # loses.
    top = shares.top(net, at)
    if top <= level or left > weight * top:
        return _least(net, at, level)
    # Not full one level below the top, even with what the flows at the top would give up there: it is full at
    # the top.
    if left + shares.top_weight(net, at) > weight * (top - 1):
        return top
    return -1


@inner
def _touch(table, net, pool, link, key, level):
    """Note what a link has for flows of a key, and have it looked at.

    It comes before any of them is open or has a new level; `_open` and `_hold` keep what it finds up to date.
    """
    stamp = value.stamp(net, net[fk.N_VALUES])
    at = share_of(net, link)
    room = room_of(table, net, link)
    used = weight = 0
    full = top = -1
    top_weight = 0
    place = shares.first(net, at)
    if value.least(net, net[fk.N_VALUES]) == value.highest(net, net[fk.N_VALUES]):
        # All flows have one key: what the link has is known without looking at them.
        place = 0
        used = shares.rate(net, at)
        top = shares.most(net, at)
        if shares.held(net, at) > 0:
            full = top = shares.held_at(net, at)
            top_weight = shares.held(net, at)
            # No flow is above the level at which the link is full.
            shares.set_most(net, at, top)
    while place > 0:
        row = flow_at(pool, place)
        place = pool[place]
        # More urgent flows were settled before, at their own levels.
        if flows.key(pool, row) < key:
            room -= flows.weight(pool, row) * flows.level(pool, row)
        elif flows.key(pool, row) == key:
            mark = flows.mark(pool, row) - 2 * stamp
            if mark == 0:
                weight += flows.weight(pool, row)
            elif mark > 0:
                used += flows.weight(pool, row) * flows.new(pool, row)
            elif flows.level(pool, row) >= 0:
                used += flows.weight(pool, row) * flows.level(pool, row)
                # The link gave this flow its level, so this is where it was full before the change.
                if flows.link(pool, row) == link:
                    full = flows.level(pool, row)
                if flows.level(pool, row) > top:
                    top = flows.level(pool, row)
                    top_weight = 0
                if flows.level(pool, row) == top and flows.link(pool, row) == link:
                    top_weight += flows.weight(pool, row)
    room = max(room, 0)
    shares.set_stamp(net, at, stamp)
    shares.set_room(net, at, room)
    shares.set_left(net, at, room - used)
    shares.set_weight(net, at, weight)
    shares.set_full(net, at, full)
    shares.set_top(net, at, top)
    shares.set_top_weight(net, at, top_weight)
    # `_quick_level` may be -1 (unknown): then the link is looked at from `level` on and computed when popped.
    first = max(_quick_level(net, at, level), level)
    if full >= 0:
        # It must be looked at where it used to be full, too: there it may have to release flows.
        first = min(first, full)
    if first < fk.NEVER:
        _await(net, at, first)


@inner
def _choose(net, pool, row, mark):
    """Put a flow that kept its level so far among those that get one."""
    values = net[fk.N_VALUES]
    flows.set_mark(pool, row, 2 * value.stamp(net, values) + mark)
    rows.set_next(pool, row, value.chosen(net, values))
    value.set_chosen(net, values, row)


@inner
def _open(table, net, pool, row, key, level):
    """Let the level of a flow rise from where it is."""
    weight = flows.weight(pool, row)
    was = weight * max(flows.level(pool, row), 0)
    stamp = value.stamp(net, net[fk.N_VALUES])
    route = flows.route(pool, row)
    for i in range(routes.first(table, route), routes.first(table, route + 1)):
        other = route_links.link(table, i)
        at = share_of(net, other)
        if shares.stamp(net, at) < stamp:
            _touch(table, net, pool, other, key, level)
        shares.add_left(net, at, was)
        shares.add_weight(net, at, weight)
        # A weight of 0 at the top only makes the quick test less often decisive.
        if flows.link(pool, row) == other and flows.level(pool, row) == shares.top(net, at):
            shares.add_top_weight(net, at, -weight)
        _await(net, at, _least(net, at, level))
    # Only now: `_touch` takes it for one that keeps its level.
    _choose(net, pool, row, 0)


@inner
def _hold(table, net, pool, row, key, level, link):
    """Let a flow have a level: it is held back by a link."""
    # Marks of earlier passes are lower than twice this stamp.
    retained = flows.mark(pool, row) < 2 * value.stamp(net, net[fk.N_VALUES])
    weight = flows.weight(pool, row)
    stamp = value.stamp(net, net[fk.N_VALUES])
    route = flows.route(pool, row)
    for i in range(routes.first(table, route), routes.first(table, route + 1)):
        other = route_links.link(table, i)
        at = share_of(net, other)
        if shares.stamp(net, at) < stamp:
            _touch(table, net, pool, other, key, level)
        if retained:
            # A retained flow gives back what its level falls by.
            shares.add_left(net, at, weight * (flows.level(pool, row) - level))
            if flows.link(pool, row) == other and flows.level(pool, row) == shares.top(net, at):
                shares.add_top_weight(net, at, -weight)
        else:
            shares.add_left(net, at, -(weight * level))
            shares.add_weight(net, at, -weight)
        shares.set_most(net, at, max(shares.most(net, at), level))
    if flows.link(pool, row) >= 0:
        shares.add_held(net, share_of(net, flows.link(pool, row)), -weight)
    shares.add_held(net, share_of(net, link), weight)
    shares.set_held_at(net, share_of(net, link), level)
    if retained:
        _choose(net, pool, row, 1)
    else:
        flows.add_mark(pool, row, 1)
    flows.set_new(pool, row, level)
    flows.set_link(pool, row, link)


@inner
def _level_of(net, pool, at, key, level):
    """Return the level at which a link is full, `level` or above, if others keep theirs; NEVER: it is not.

    What is used grows ever more slowly with the level: Newton's steps from below do not go too far.
    """
    quick = _quick_level(net, at, level)
    if quick >= 0:
        return quick
    stamp = value.stamp(net, net[fk.N_VALUES])
    # Newton's method on a concave piecewise linear function: at most one step per distinct level of flows.
    level = _least(net, at, level)
    while level < fk.NEVER:
        left = shares.room(net, at)
        weight = 0
        place = shares.first(net, at)
        while place > 0:
            row = flow_at(pool, place)
            place = pool[place]
            if flows.key(pool, row) == key:
                mark = flows.mark(pool, row) - 2 * stamp
                # An open flow takes whatever the level gives, so its own bound is infinite.
                of_flow = (
                    flows.level(pool, row) if mark < 0 else flows.new(pool, row) if mark > 0 else fk.NEVER
                )
                if of_flow > level:
                    weight += flows.weight(pool, row)
                else:
                    left -= flows.weight(pool, row) * of_flow
        if left <= level * weight:
            return level
        if weight == 0:
            return fk.NEVER
        level = (left + weight - 1) // weight
    return level


@inner
def share(table, net, pool, key):
    """Find the levels of flows of a key, from the links that are to be looked at on.

    Returns the first of a list of flows (by P_NEXT) that may have changed, with their levels in M_NEW.
    """
    values, heap = net[fk.N_VALUES], net[fk.N_HEAP]
    value.add_stamp(net, values, 1)
    value.set_chosen(net, values, 0)
    stamp = value.stamp(net, values)
    row = value.fresh(net, values)
    value.set_fresh(net, values, 0)
    while row > 0:
        after = rows.next(pool, row)
        if flows.key(pool, row) == key:
            _open(table, net, pool, row, key, 0)
        else:
            rows.set_next(pool, row, value.fresh(net, values))
            value.set_fresh(net, values, row)
        row = after
    for i in range(value.dirty(net, values)):
        if shares.stamp(net, share_of(net, dirty.link(net, i))) < stamp:
            _touch(table, net, pool, dirty.link(net, i), key, 0)
    # Levels are popped in ascending order. A stored level is a lower bound; links whose true level is higher
    # return to the heap.
    while value.heap(net, values) > 0:
        level, at = net[heap], net[heap + lk.Q_WHAT]
        value.set_heap(net, values, remove_first(net, heap, value.heap(net, values), net, fk.K_PLACE))
        link = (at - net[fk.N_ROWS]) // fk.K_COLUMNS
        now_full = _level_of(net, pool, at, key, level)
        full = shares.full(net, at)
        # It was full at `full`, now it is full later or never: its flows may rise.
        lets_go = 0 <= full < now_full
        if lets_go and level < full:
            _await(net, at, full)
            continue
        if not lets_go and now_full > level:
            if now_full < fk.NEVER:
                _await(net, at, now_full)
            continue
        shares.set_full(net, at, -1)
        # Nothing rises on it and nothing is above it: being full changes no flow.
        if not lets_go and shares.weight(net, at) == 0 and (shares.top(net, at) <= level):
            continue
        place = shares.first(net, at)
        while place > 0:
            row = flow_at(pool, place)
            place = pool[place]
            if flows.key(pool, row) != key:
                continue
            mark = flows.mark(pool, row) - 2 * stamp
            if lets_go:
                if mark < 0 and flows.link(pool, row) == link:
                    _open(table, net, pool, row, key, level)
            elif mark == 0 or (mark < 0 and flows.level(pool, row) > level):
                _hold(table, net, pool, row, key, level, link)
        # It may be full again, at a higher level.
        if lets_go and shares.weight(net, at) > 0:
            _await(net, at, _least(net, at, level))
    return value.chosen(net, values)
