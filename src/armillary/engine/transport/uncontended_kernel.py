"""Network model `uncontended`: as `congestion`, but a link carries any number of messages at a time."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import fifo_layout as ff
from armillary.engine.transport import layout as lk

queue_kernel = use("armillary.engine.transport.queue_kernel")
push, pop, deliver = queue_kernel.push, queue_kernel.pop, queue_kernel.deliver
comes, reached = queue_kernel.comes, queue_kernel.reached
use_kernel = use("armillary.engine.transport.use_kernel")
link_row, duration, carried = use_kernel.link_row, use_kernel.duration, use_kernel.carried
fifo_kernel = use("armillary.engine.transport.fifo_kernel")
inject, change, stay = fifo_kernel.inject, fifo_kernel.change, fifo_kernel.stay
links, messages, route_links, rows = accessors(lk.LINK, ff.MESSAGE, lk.ROUTE_LINK, lk.ROW)


@inner
def advance(table, net, pool, queue, limit):
    """See `armillary.engine.transport.transport`."""
    while comes(net, queue, limit):
        now = net[lk.N_NOW]
        what = pop(net, queue)
        row = what // lk.CODES
        if what % lk.CODES == ff.ARRIVED:
            deliver(net, pool, row)
            continue
        if what % lk.CODES == ff.AGAIN and rows.next(pool, row) > 0:
            push(net, queue, now, rows.next(pool, row) * lk.CODES + ff.AGAIN)
        link = route_links.link(table, messages.at(pool, row))
        at = link_row(table, net, link)
        if links.slow(table, at) == 0:
            stay(net, pool, row)
            continue
        size = messages.size(pool, row)
        end = max(now + duration(table, at, size), messages.tail(pool, row))
        carried(table, net, link, size, now, end)
        messages.set_tail(pool, row, end + links.latency(table, at))
        messages.add_at(pool, row, 1)
        if messages.at(pool, row) < messages.end(pool, row):
            push(net, queue, now + links.latency(table, at), row * lk.CODES + ff.HEAD)
        else:
            push(net, queue, messages.tail(pool, row), row * lk.CODES + ff.ARRIVED)
    return reached(net, queue, limit)
