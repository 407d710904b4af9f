"""The ways of packets, chosen at every node: by hash or by queue, per packet or flowlet, straight or by a detour.

Oblivious choices are hashes of the packet's tag and the node, as switches hash header fields: the tag changes with the
packet (spraying), or with the queue pair. By queue the link with the fewest waiting bytes is chosen, of several the
first from a hashed place on; a link that transmits counts as one byte.

With DIGITS the tag is the number of a way: each node takes its last digit, to the base of the links there, and passes
on the rest. Numbers below the product of these bases are then all ways of a tree, each once, as source routes are. A
sender takes them all before it takes one again, in an order of the round's own (NDP, section 3.1), and so puts the same
load on each; packets that draw a way each put more on some, by chance.

With flowlets (Vanini et al., "Let it flow", NSDI 2017) a switch keeps a flow on its link until nothing of it came for
a gap, and chooses anew then. Valiant's detour is drawn at the source. UGAL decides at the first switch (Kim et al.,
ISCA 2008, section 4.2, as UGAL-G): straight if q_straight x H_straight <= q_detour x H_detour + bias, q the most that
waits for one of the first two links of the way, which on a dragonfly are those up to the global link of its group.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.switch import hop_layout as hl
from armillary.engine.transport.switch import layout as pk

depth = use("armillary.engine.transport.switch.port_kernel").depth
mix = use("armillary.engine.transport.switch.mark_kernel").mix
links, messages, ports, route_links, uses = accessors(lk.LINK, pk.MESSAGE, pk.PORT, lk.ROUTE_LINK, lk.USE)
hoppers, nodes, nexts, choices = accessors(hl.HOPPER, hl.NODE, hl.NEXT, hl.CHOICE)
betweens, flowlets, option = accessors(hl.BETWEEN, hl.FLOWLET, hl.WAYS)
MOST_WAYS = 1 << 16
"""More are as good as all: a sender takes them in turn."""


@inner
def set_out(table, net, pool, row, message):
    """Let a packet of a message begin, on the first link of the message's route."""
    options = table[lk.T_OPTIONS]
    first = route_links.link(table, messages.first(pool, message))
    goal = links.head(table, route_links.link(table, messages.last(pool, message)))
    tag = mix(mix(option.salt(table, options), links.tail(table, first)), goal)
    # Packets of a message go over its queue pairs in turn.
    turn = messages.send(pool, message) // option.mtu(table, options)
    if option.spread(table, options) == hl.DIGITS:
        slot = links.tail(table, first) * hl.SLOTS + goal % hl.SLOTS
        ways = count_ways(table, net, links.head(table, first), goal)
        turn, tag = next_way(flowlets.turn(net, slot), ways, tag)
        flowlets.set_turn(net, slot, turn)
        aim(table, net, pool, row, links.tail(table, first), goal, tag)
        return
    tag = mix(tag, turn % option.pairs(table, options))
    if option.spread(table, options) == hl.EACH:
        # What the link has carried so far: no two packets of an NPU find the same.
        tag = mix(tag, uses.bytes(net, first))
    aim(table, net, pool, row, links.tail(table, first), goal, tag)


@inner
def aim(table, net, pool, row, node, goal, tag):
    """Let a packet go from a node to a goal, with a tag."""
    hoppers.set_goal(pool, row, goal)
    hoppers.set_tag(pool, row, tag)
    detour = option.detour(table, table[lk.T_OPTIONS])
    via = 0
    if detour == hl.ALWAYS:
        via = _between(table, node, goal, tag)
    elif detour == hl.SOONER:
        via = hl.UNDECIDED
    hoppers.set_via(pool, row, via)


@inner
def onward(table, net, pool, row, link):
    """A packet came by `link`: return the one it takes next, -1 at its destination."""
    node = links.head(table, link)
    goal = hoppers.goal(pool, row)
    if node == goal:
        return -1
    hoppers.set_source(pool, row, link)
    via = hoppers.via(pool, row)
    if via == hl.UNDECIDED:
        via = _decided(table, net, node, links.tail(table, link), goal, hoppers.tag(pool, row))
        hoppers.set_via(pool, row, via)
    # A detour ends where the packet enters the place.
    if via > 0 and nodes.place(table, node) == nodes.place(table, via - 1):
        via = 0
        hoppers.set_via(pool, row, 0)
    target = goal if via == 0 else via - 1
    tag = hoppers.tag(pool, row)
    to = next_link(table, net, node, target, tag)
    if option.spread(table, table[lk.T_OPTIONS]) == hl.DIGITS:
        hoppers.set_tag(pool, row, tag // choices_at(table, net, node, target))
    return to


@inner
def choices_at(table, net, node, target):
    """Return among how many links a packet at a node chooses towards a node."""
    if nodes.anchor(table, target) == node:
        return 1
    at = _at(table, net, node, target)
    return nexts.first(table, at + 1) - nexts.first(table, at)


@inner
def count_ways(table, net, node, goal):
    """Return the product of the choices on a way from a node to a goal, at most MOST_WAYS."""
    ways = 1
    while node != goal:
        ways = min(MOST_WAYS, ways * choices_at(table, net, node, goal))
        node = links.head(table, next_link(table, net, node, goal, 0))
    return ways


@inner
def next_way(turn, ways, seed):
    """Return the turn after this one, and which of some ways it takes: each once per round, in another order each."""
    most = 1
    while most < ways:
        most *= 2
    while True:
        way = (turn & (most - 1)) ^ (mix(seed, turn // most) & (most - 1))
        turn += 1
        # An exclusive or permutes powers of two only: what is beyond the ways is left out.
        if way < ways:
            return turn, way


@inner
def _at(table, net, node, target):
    """Return the row of NEXT of a node for a destination."""
    number = net[lk.N_STAGE] * option.count(table, table[lk.T_OPTIONS]) + nodes.number(table, target)
    return number * table[lk.T_NODES] + node


@inner
def _waits(net, link):
    """Return what waits for a link, in half bytes and with the packet in transmission as one."""
    return 2 * depth(net, link) + (1 if ports.free(net, link) > net[lk.N_NOW] else 0)


@inner
def _least(table, net, first, count, tag):
    """Return the link of `count` in CHOICE for which the least waits, of several the first from a hashed place on."""
    begin = tag % count
    best = choices.link(table, first + begin)
    least = _waits(net, best)
    for i in range(1, count):
        if least == 0:
            break
        at = begin + i
        link = choices.link(table, first + (at if at < count else at - count))
        waits = _waits(net, link)
        if waits < least:
            best = link
            least = waits
    return best


@inner
def next_link(table, net, node, target, tag):
    """Return the link that a packet at a node takes towards a node."""
    if nodes.anchor(table, target) == node:
        return nodes.last(table, target)
    at = _at(table, net, node, target)
    first = nexts.first(table, at)
    count = nexts.first(table, at + 1) - first
    if count == 1:
        return choices.link(table, first)
    options = table[lk.T_OPTIONS]
    if option.spread(table, options) == hl.DIGITS:
        return choices.link(table, first + tag % count)
    own = mix(tag, node)
    if option.spread(table, options) == hl.GAPS:
        return _of_flowlet(table, net, node, first, count, own)
    if option.by_queue(table, options) > 0:
        return _least(table, net, first, count, own)
    return choices.link(table, first + own % count)


@inner
def again(table, net, pool, row, link):
    """Return the link that a packet takes which waits for a link that went down: that one, if there is no other."""
    via = hoppers.via(pool, row)
    goal = hoppers.goal(pool, row) if via <= 0 else via - 1
    return next_link(table, net, links.tail(table, link), goal, hoppers.tag(pool, row))


@inner
def _of_flowlet(table, net, node, first, count, own):
    """Return the link that the flow last took, or another after a gap."""
    slot = node * hl.SLOTS + own % hl.SLOTS
    now = net[lk.N_NOW]
    options = table[lk.T_OPTIONS]
    link = flowlets.link(net, slot) - 1
    fresh = link < 0 or now - flowlets.time(net, slot) > option.gap(table, options)
    # Another flow of the same slot may have left a link that does not lead there.
    if not fresh:
        fresh = True
        for i in range(count):
            if choices.link(table, first + i) == link:
                fresh = False
    if fresh:
        own = mix(own, now)
        if option.by_queue(table, options) > 0:
            link = _least(table, net, first, count, own)
        else:
            link = choices.link(table, first + own % count)
        flowlets.set_link(net, slot, link + 1)
    flowlets.set_time(net, slot, now)
    return link


@inner
def _between(table, source, goal, tag):
    """Return a random node to go by way of, plus 1; 0: none was found, or it would be no detour."""
    count = option.nodes_between(table, table[lk.T_OPTIONS])
    ends = nodes.place(table, source)
    if ends == nodes.place(table, goal):
        return 0
    drawn = tag
    for _ in range(hl.TRIES):
        drawn = mix(drawn, count)
        node = betweens.node(table, drawn % count)
        place = nodes.place(table, node)
        if place != ends and place != nodes.place(table, goal):
            return node + 1
    return 0


@inner
def _queue(table, net, node, target, tag):
    """Return the most that waits for one of the next two links towards a node."""
    most = 0
    for _ in range(2):
        if node != target and nodes.place(table, node) != nodes.place(table, target):
            at = _at(table, net, node, target)
            first = nexts.first(table, at)
            link = _least(table, net, first, nexts.first(table, at + 1) - first, mix(tag, node))
            most = max(most, _waits(net, link))
            node = links.head(table, link)
    return most


@inner
def _decided(table, net, node, source, goal, tag):
    """Return by way of which node a packet goes, plus 1; 0: straight."""
    via = _between(table, source, goal, tag)
    if via == 0:
        return 0
    target = nodes.anchor(table, goal)
    straight = nexts.far(table, _at(table, net, node, target))
    detour = nexts.far(table, _at(table, net, node, via - 1)) + nexts.far(
        table, _at(table, net, via - 1, target)
    )
    bias = 2 * option.bias(table, table[lk.T_OPTIONS])
    waits = _queue(table, net, node, target, tag) * straight
    return 0 if waits <= _queue(table, net, node, via - 1, tag) * detour + bias else via
