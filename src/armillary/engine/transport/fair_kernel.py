"""Max-min fair levels of flows on links, found anew for those flows only that a change touches.

The level of a flow is its rate per weight. Levels rise from 0 together, in whole units; a link is full at the lowest
level at which its flows use all its room, and holds back those it has then (water filling: Bertsekas, Gallager, Data
Networks, 2nd ed., §6.5.2). So the levels are right, and the only ones, if every flow is held back by a full link on
which none has a higher level, and no link would be full one unit lower.

A change begins at some links, and goes through links in the order of the levels at which they are full: one that is
full earlier than before lowers its flows; one that is not full where it was lets go the flows it held back; and both
touch the other links of these flows. Flows of a lower key are more urgent: what they take is no room for others.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.flow_layout_kernel import *
from armillary.engine.transport.layout_kernel import *

ranked = use("armillary.engine.transport.ranked_kernel")
add, move, remove_first = ranked.add, ranked.move, ranked.remove_first
link_row = use("armillary.engine.transport.use_kernel").link_row


@inner
def room_of(table, net, link):
    """Return the rate of a link, in 2**-V_SCALE bytes per ps, rounded up."""
    at = link_row(table, net, link)
    slow = table[at + L_SLOW]
    if slow == 0:
        return 0
    return ((table[at + L_FAST] << net[net[N_VALUES] + V_SCALE]) + slow - 1) // slow


@inner
def flow_at(pool, place):
    """Return the flow that has a place on a link."""
    return pool[place - place % P_COLUMNS + C_FLOW]


@inner
def _await(net, at, level):
    """Have a link looked at when levels have risen to `level`, or before."""
    heap, values = net[N_HEAP], net[N_VALUES]
    place = net[at + K_PLACE]
    if place == 0:
        net[values + V_HEAP] = add(net, heap, net[values + V_HEAP], net, K_PLACE, at, level, at)
    elif net[heap + (place - 1) * Q_COLUMNS] > level:
        move(net, heap, net[values + V_HEAP], net, K_PLACE, at, level)


@inner
def _least(net, at, level):
    """Return a level below which a link cannot be full, `level` or above."""
    left = net[at + K_LEFT]
    if left <= 0:
        return level
    weight = net[at + K_WEIGHT]
    if weight == 0:
        return NEVER
    return max(level, (left + weight - 1) // weight)


@inner
def _quick_level(net, at, level):
    """Return what `_level_of` does where no flow that keeps its level loses by it, else -1."""
    left, weight = net[at + K_LEFT], net[at + K_WEIGHT]
    top = net[at + K_TOP]
    if top <= level or left > weight * top:
        return _least(net, at, level)
    if left + net[at + K_TOP_WEIGHT] > weight * (top - 1):
        return top
    return -1


@inner
def _touch(table, net, pool, link, key, level):
    """Note what a link has for flows of a key, and have it looked at."""
    stamp = net[net[N_VALUES] + V_STAMP]
    at = net[N_ROWS] + link * K_COLUMNS
    room = room_of(table, net, link)
    used = weight = 0
    full = top = -1
    top_weight = 0
    place = net[at + K_FIRST]
    while place > 0:
        row = flow_at(pool, place)
        place = pool[place]
        if pool[row + M_KEY] < key:
            room -= pool[row + M_WEIGHT] * pool[row + M_LEVEL]
        elif pool[row + M_KEY] == key:
            mark = pool[row + M_MARK] - 2 * stamp
            if mark == 0:
                weight += pool[row + M_WEIGHT]
            elif mark > 0:
                used += pool[row + M_WEIGHT] * pool[row + M_NEW]
            elif pool[row + M_LEVEL] >= 0:
                used += pool[row + M_WEIGHT] * pool[row + M_LEVEL]
                if pool[row + M_LINK] == link:
                    full = pool[row + M_LEVEL]
                if pool[row + M_LEVEL] > top:
                    top = pool[row + M_LEVEL]
                    top_weight = 0
                if pool[row + M_LEVEL] == top:
                    top_weight += pool[row + M_WEIGHT]
    room = max(room, 0)
    net[at + K_STAMP] = stamp
    net[at + K_ROOM] = room
    net[at + K_LEFT] = room - used
    net[at + K_WEIGHT] = weight
    net[at + K_FULL] = full
    net[at + K_TOP] = top
    net[at + K_TOP_WEIGHT] = top_weight
    first = max(_quick_level(net, at, level), level)
    if full >= 0:
        first = min(first, full)
    if first < NEVER:
        _await(net, at, first)


@inner
def _choose(net, pool, row, mark):
    """Put a flow that kept its level so far among those that get one."""
    values = net[N_VALUES]
    pool[row + M_MARK] = 2 * net[values + V_STAMP] + mark
    pool[row + P_NEXT] = net[values + V_CHOSEN]
    net[values + V_CHOSEN] = row


@inner
def _open(table, net, pool, row, key, level):
    """Let the level of a flow rise from where it is."""
    _choose(net, pool, row, 0)
    weight = pool[row + M_WEIGHT]
    was = weight * max(pool[row + M_LEVEL], 0)
    stamp = net[net[N_VALUES] + V_STAMP]
    first = table[T_ROUTE_FIRST] + pool[row + M_ROUTE]
    for i in range(table[T_ROUTE_LINK] + table[first], table[T_ROUTE_LINK] + table[first + 1]):
        at = net[N_ROWS] + table[i] * K_COLUMNS
        if net[at + K_STAMP] < stamp:
            _touch(table, net, pool, table[i], key, level)
        else:
            net[at + K_LEFT] += was
            net[at + K_WEIGHT] += weight
            if pool[row + M_LEVEL] == net[at + K_TOP]:
                net[at + K_TOP_WEIGHT] -= weight
            _await(net, at, _least(net, at, level))


@inner
def _hold(table, net, pool, row, key, level, link):
    """Let a flow have a level: it is held back by a link."""
    kept = pool[row + M_MARK] < 2 * net[net[N_VALUES] + V_STAMP]
    if kept:
        _choose(net, pool, row, 1)
    else:
        pool[row + M_MARK] += 1
    pool[row + M_NEW] = level
    pool[row + M_LINK] = link
    weight = pool[row + M_WEIGHT]
    stamp = net[net[N_VALUES] + V_STAMP]
    first = table[T_ROUTE_FIRST] + pool[row + M_ROUTE]
    for i in range(table[T_ROUTE_LINK] + table[first], table[T_ROUTE_LINK] + table[first + 1]):
        at = net[N_ROWS] + table[i] * K_COLUMNS
        if net[at + K_STAMP] < stamp:
            _touch(table, net, pool, table[i], key, level)
        elif kept:
            net[at + K_LEFT] += weight * (pool[row + M_LEVEL] - level)
            if pool[row + M_LEVEL] == net[at + K_TOP]:
                net[at + K_TOP_WEIGHT] -= weight
        else:
            net[at + K_LEFT] -= weight * level
            net[at + K_WEIGHT] -= weight


@inner
def _level_of(net, pool, at, key, level):
    """Return the level at which a link is full, `level` or above, if others keep theirs; NEVER: it is not.

    What is used grows ever more slowly with the level: Newton's steps from below do not go too far.
    """
    quick = _quick_level(net, at, level)
    if quick >= 0:
        return quick
    stamp = net[net[N_VALUES] + V_STAMP]
    level = _least(net, at, level)
    while level < NEVER:
        left = net[at + K_ROOM]
        weight = 0
        place = net[at + K_FIRST]
        while place > 0:
            row = flow_at(pool, place)
            place = pool[place]
            if pool[row + M_KEY] == key:
                mark = pool[row + M_MARK] - 2 * stamp
                of_flow = pool[row + M_LEVEL] if mark < 0 else (pool[row + M_NEW] if mark > 0 else NEVER)
                if of_flow > level:
                    weight += pool[row + M_WEIGHT]
                else:
                    left -= pool[row + M_WEIGHT] * of_flow
        if left <= level * weight:
            return level
        if weight == 0:
            return NEVER
        level = (left + weight - 1) // weight
    return level


@inner
def share(table, net, pool, key):
    """Find the levels of flows of a key, from the links that are to be looked at on.

    Returns the first of a list of flows (by P_NEXT) that may have changed, with their levels in M_NEW.
    """
    values, heap, rows = net[N_VALUES], net[N_HEAP], net[N_ROWS]
    net[values + V_STAMP] += 1
    net[values + V_CHOSEN] = 0
    stamp = net[values + V_STAMP]
    for i in range(net[N_DIRTY], net[N_DIRTY] + net[values + V_DIRTY]):
        place = net[rows + net[i] * K_COLUMNS + K_FIRST]
        while place > 0:
            row = flow_at(pool, place)
            place = pool[place]
            if pool[row + M_LEVEL] < 0 and pool[row + M_KEY] == key and pool[row + M_MARK] < 2 * stamp:
                _open(table, net, pool, row, key, 0)
    for i in range(net[N_DIRTY], net[N_DIRTY] + net[values + V_DIRTY]):
        if net[rows + net[i] * K_COLUMNS + K_STAMP] < stamp:
            _touch(table, net, pool, net[i], key, 0)
    while net[values + V_HEAP] > 0:
        level, at = net[heap], net[heap + Q_WHAT]
        net[values + V_HEAP] = remove_first(net, heap, net[values + V_HEAP], net, K_PLACE)
        link = (at - rows) // K_COLUMNS
        now_full = _level_of(net, pool, at, key, level)
        full = net[at + K_FULL]
        lets_go = 0 <= full < now_full
        if lets_go and level < full:
            _await(net, at, full)
            continue
        if not lets_go and now_full > level:
            if now_full < NEVER:
                _await(net, at, now_full)
            continue
        net[at + K_FULL] = -1
        if not lets_go and net[at + K_WEIGHT] == 0 and net[at + K_TOP] <= level:
            continue
        place = net[at + K_FIRST]
        while place > 0:
            row = flow_at(pool, place)
            place = pool[place]
            if pool[row + M_KEY] != key:
                continue
            mark = pool[row + M_MARK] - 2 * stamp
            if lets_go:
                if mark < 0 and pool[row + M_LINK] == link:
                    _open(table, net, pool, row, key, level)
            elif mark == 0 or (mark < 0 and pool[row + M_LEVEL] > level):
                _hold(table, net, pool, row, key, level, link)
        if lets_go and net[at + K_WEIGHT] > 0:
            _await(net, at, _least(net, at, level))
    return net[values + V_CHOSEN]
