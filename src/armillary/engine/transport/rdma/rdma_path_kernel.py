"""The paths that a sender of protocol `rdma` gives its packets: numbers that switches hash, as UDP source ports are.

Oblivious: all in turn, each round in another order (by exclusive or); a packet that is sent again takes the next turn,
so it leaves a path that is slow or down. Bitmap: the same, without those that have a penalty: 1 for a mark, 4 for a
loss, at most 15; a skip takes 1 off. REPS (Bonato et al., "REPS: recycled entropy packet spraying", 2024): the path of
a packet that came through unmarked is used once more, of which 8 are kept; else a random one. Penalties and sizes as
htsim has them. Permuted (NDP): no hash, but all shortest ways, each once per round.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.rdma import layout as rl

hop_kernel = use("armillary.engine.transport.switch.hop_kernel")
count_ways, next_way = hop_kernel.count_ways, hop_kernel.next_way
mix = use("armillary.engine.transport.switch.mark_kernel").mix
flows, links, option, paths = accessors(rl.FLOW, lk.LINK, rl.OPTION, rl.PATH)
ON_MARK, ON_LOSS, WORST = 1, 4, 15


@inner
def next_path(table, net, flow, number):
    """Return the path of the next packet of a connection."""
    options = table[lk.T_OPTIONS]
    choice = option.choice(table, options)
    if choice in (rl.BY_MESSAGE, rl.FLOWLETS):
        return number % option.pairs(table, options)
    count = option.paths(table, options)
    seed = mix(option.salt(table, options), flow)
    if choice == rl.REPS:
        kept = flows.recycled(net, flow)
        many = kept & 15
        if many == 0:
            return mix(mix(seed, number), net[lk.N_EVENTS]) & (count - 1)
        first = kept >> 4
        flows.set_recycled(net, flow, ((first + 1) % rl.KEPT) * 16 + many - 1)
        return paths.value(net, flow * count + first)
    if choice == rl.PERMUTED:
        return _permuted(table, net, flow, seed)
    path = 0
    for _ in range(count):
        turn = flows.turn(net, flow)
        path = (turn & (count - 1)) ^ (mix(seed, turn // count) & (count - 1))
        flows.set_turn(net, flow, turn + 1)
        penalty = paths.value(net, flow * count + path)
        if choice != rl.BITMAP or penalty == 0:
            break
        paths.set_value(net, flow * count + path, penalty - 1)
    return path


@inner
def _permuted(table, net, flow, seed):
    """Return the next of all ways of a connection: each once per round, in an order of the round's own."""
    ways = flows.ways(net, flow)
    if ways == 0:
        ways = count_ways(table, net, links.head(table, flows.out(net, flow)), flows.goal(net, flow))
        flows.set_ways(net, flow, ways)
    turn, path = next_way(flows.turn(net, flow), ways, seed)
    flows.set_turn(net, flow, turn)
    return path


@inner
def path_back(table, net, flow, path, mark, kind):
    """The answer to a packet has come: note how its path did."""
    options = table[lk.T_OPTIONS]
    choice = option.choice(table, options)
    count = option.paths(table, options)
    if choice == rl.BITMAP:
        more = ON_LOSS if kind == rl.NACK else ON_MARK * mark
        if more > 0:
            at = flow * count + path
            paths.set_value(net, at, min(WORST, paths.value(net, at) + more))
    elif choice == rl.REPS and kind == rl.ACK and mark == 0:
        kept = flows.recycled(net, flow)
        many = kept & 15
        if many < rl.KEPT:
            at = ((kept >> 4) + many) % rl.KEPT
            paths.set_value(net, flow * count + at, path)
            flows.set_recycled(net, flow, kept + 1)
