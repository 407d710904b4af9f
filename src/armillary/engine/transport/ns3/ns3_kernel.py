"""The protocol of transports for ns-3: interpreted only, as ns-3 keeps the messages and the time."""

from __future__ import annotations

from armillary.base.errors import InputError
from armillary.base.jit import compiling, inner, use
from armillary.engine.transport.layout_kernel import *
from armillary.engine.transport.ns3.simulation import run_of

events = use("armillary.engine.transport.queue_kernel")
new_row, deliver = events.new_row, events.deliver
links = use("armillary.engine.transport.use_kernel")
link_row, duration, carried = links.link_row, links.duration, links.carried
if compiling():
    raise InputError("network 'ns3' runs in Python, got mode compiled, expected interpreted")

RUN = N_OWN  # number of the run, and the ps up to which the use of links was counted


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps); the key has no meaning here."""
    row = new_row(net, pool)
    pool[row + P_COOKIE] = cookie
    net[N_UNDER_WAY] += 1
    at = table[T_ROUTE_FIRST] + route
    if table[at] == table[at + 1]:
        net[N_NOW] = max(net[N_NOW], now)
        deliver(net, pool, row)
        return
    run_of(net[net[RUN]], table).inject(row, route, size, now)


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: links have other bandwidths."""
    run_of(net[net[RUN]], table).change(net[N_STAGE])


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time."""
    if net[N_DELIVERED] > 0:
        return net[N_NOW]
    run = run_of(net[net[RUN]], table)
    now = run.advance(limit)
    for row in run.take():
        deliver(net, pool, row)
    net[N_EVENTS] = run.events
    if now < FOREVER:
        net[N_NOW] = now
    counted = net[RUN] + 1
    if net[N_UNDER_WAY] == 0 or now == FOREVER or now - net[counted] >= net[N_BIN]:
        _count_use(table, net, run, net[counted])
        net[counted] = net[N_NOW]
    return now


def _count_use(table, net, run, since):
    """Take over what ns-3 counted at every link, as if it had been carried evenly since the last time."""
    use = run.use()
    for link in range(table[T_LINKS]):
        at = net[N_USE] + link * U_COLUMNS
        size, net[at + U_DEPTH], net[at + U_DROPS], net[at + U_MARKS] = use[4 * link : 4 * link + 4]
        row = link_row(table, net, link)
        more = size - net[at + U_BYTES]
        if net[N_UNDER_WAY] > 0:
            # ns-3 counts a packet when it begins to leave: what is still to leave counts the next time.
            more = min(more, (net[N_NOW] - since) * table[row + L_FAST] // max(1, table[row + L_SLOW]))
        if more > 0:
            busy = net[at + U_BUSY] + duration(table, row, more)
            carried(table, net, link, more, since, net[N_NOW])
            net[at + U_BUSY] = busy
