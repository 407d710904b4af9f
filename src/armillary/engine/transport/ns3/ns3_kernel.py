"""The protocol of transports for ns-3: interpreted only, because ns-3 holds the messages and the clock."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.errors import InputError
from armillary.base.jit import compiling, inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.ns3 import layout as nk
from armillary.engine.transport.ns3.simulation import run_of

queue_kernel = use("armillary.engine.transport.queue_kernel")
new_row, deliver = queue_kernel.new_row, queue_kernel.deliver
use_kernel = use("armillary.engine.transport.use_kernel")
link_row, duration, carried = use_kernel.link_row, use_kernel.duration, use_kernel.carried
links, routes, rows, runs, uses = accessors(lk.LINK, lk.ROUTE_FIRST, lk.ROW, nk.RUN, lk.USE)
if compiling():
    raise InputError("network 'ns3' runs in Python, got mode compiled, expected interpreted")


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps); the key has no meaning here."""
    row = new_row(net, pool)
    rows.set_cookie(pool, row, cookie)
    net[lk.N_IN_FLIGHT] += 1
    # ns-3 has no route from a node to itself.
    if routes.first(table, route) == routes.first(table, route + 1):
        net[lk.N_NOW] = max(net[lk.N_NOW], now)
        deliver(net, pool, row)
        return
    run_of(runs.number(net, 0), table).inject(row, route, size, now)


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: links have other bandwidths."""
    run_of(runs.number(net, 0), table).change(net[lk.N_STAGE])


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time."""
    # A local message is waiting to be taken at this ps; ns-3 must not advance past it.
    if net[lk.N_DELIVERED] > 0:
        return net[lk.N_NOW]
    run = run_of(runs.number(net, 0), table)
    now = run.advance(limit)
    for row in run.take():
        deliver(net, pool, row)
    net[lk.N_EVENTS] = run.events
    if now < lk.FOREVER:
        net[lk.N_NOW] = now
    counted = runs.counted(net, 0)
    # Reading the counters of all links costs a call into C++, so it is done once per bin, and at the end.
    if net[lk.N_IN_FLIGHT] == 0 or now == lk.FOREVER or now - counted >= 1 << net[lk.N_BIN_BITS]:
        _count_use(table, net, run, counted)
        runs.set_counted(net, 0, net[lk.N_NOW])
    return now


def _count_use(table, net, run, since):
    """Take over what ns-3 counted at every link, as if it had been carried evenly since the last time."""
    use = run.use()
    for link in range(table[lk.T_LINKS]):
        size, depth, drops, marks = use[4 * link : 4 * link + 4]
        uses.set_depth(net, link, depth)
        uses.set_drops(net, link, drops)
        uses.set_marks(net, link, marks)
        row = link_row(table, net, link)
        more = size - uses.bytes(net, link)
        if net[lk.N_IN_FLIGHT] > 0:
            # ns-3 counts a packet when it begins to leave: what is still to leave counts the next time.
            more = min(
                more, (net[lk.N_NOW] - since) * links.fast(table, row) // max(1, links.slow(table, row))
            )
        if more > 0:
            # `carried` counts the whole span as busy; ns-3 tells bytes only, so busy time is what these need.
            busy = uses.busy(net, link) + duration(table, row, more)
            carried(table, net, link, more, since, net[lk.N_NOW])
            uses.set_busy(net, link, busy)
