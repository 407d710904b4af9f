"""Network model `congestion`: FIFO links, one message at a time on each, cut through at every node.

A message may take a link when its first byte is there and all that came before it have left; it holds the link
until its last byte has gone, which is never before its last byte has come. Buffers have no limit.

Whole messages move; packets, headers, buffers, priorities and fair sharing are ignored, so a short message waits
behind a long one and two messages never share a link. A run costs one event per message and link of its route, each
O(log events): the cheapest model with contention.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.congestion import layout as ff

queue_kernel = use("armillary.engine.transport.queue_kernel")
push, pop, new_row, deliver = queue_kernel.push, queue_kernel.pop, queue_kernel.new_row, queue_kernel.deliver
comes, reached = queue_kernel.comes, queue_kernel.reached
stop, restart, restart_next = queue_kernel.stop, queue_kernel.restart, queue_kernel.restart_next
use_kernel = use("armillary.engine.transport.use_kernel")
link_row, duration, carried, waiting = (
    use_kernel.link_row,
    use_kernel.duration,
    use_kernel.carried,
    use_kernel.waiting,
)
free_at, links, messages, route_links = accessors(ff.FREE_AT, lk.LINK, ff.MESSAGE, lk.ROUTE_LINK)
routes, rows = accessors(lk.ROUTE_FIRST, lk.ROW)


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps); the key has no meaning here."""
    row = new_row(net, pool)
    rows.set_cookie(pool, row, cookie)
    messages.set_at(pool, row, routes.first(table, route))
    messages.set_end(pool, row, routes.first(table, route + 1))
    messages.set_size(pool, row, size)
    messages.set_tail(pool, row, now)
    net[lk.N_IN_FLIGHT] += 1
    push(
        net,
        queue,
        now,
        row * lk.CODES
        + (ff.HEAD if routes.first(table, route) < routes.first(table, route + 1) else ff.ARRIVED),
    )


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: what waits for links that were down may go on."""
    restart(net, queue, now, ff.AGAIN)


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    while comes(net, queue, limit):
        now = net[lk.N_NOW]
        what = pop(net, queue)
        row = what // lk.CODES
        if what % lk.CODES == ff.ARRIVED:
            deliver(net, pool, row)
            continue
        if what % lk.CODES == ff.AGAIN:
            restart_next(net, pool, queue, now, row, ff.AGAIN)
        link = route_links.link(table, messages.at(pool, row))
        at = link_row(table, net, link)
        if links.slow(table, at) == 0:
            stop(net, pool, row)
            continue
        free = free_at.time(net, link)
        start = max(now, free)
        size = messages.size(pool, row)
        # The first byte may come over a slower link: the tail bounds the end.
        end = max(start + duration(table, at, size), messages.tail(pool, row))
        free_at.set_time(net, link, end)
        carried(table, net, link, size, start, end)
        # Bytes ahead of this message are estimated by how long it waits at the rate of the link.
        waiting(table, net, link, int((start - now) / links.slow(table, at) * links.fast(table, at)), now)
        messages.set_tail(pool, row, end + links.latency(table, at))
        messages.add_at(pool, row, 1)
        if messages.at(pool, row) < messages.end(pool, row):
            # Cut through: the head goes on a latency after it started, while the tail still comes.
            push(net, queue, start + links.latency(table, at), row * lk.CODES + ff.HEAD)
        else:
            push(net, queue, messages.tail(pool, row), row * lk.CODES + ff.ARRIVED)
    return reached(net, queue, limit)
