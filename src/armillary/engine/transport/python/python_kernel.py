"""The protocol of transports for network models of other packages: interpreted only, as these are Python.

Messages that leave in the same ps go to the model in one call, after the arrivals of that ps.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.errors import InputError
from armillary.base.jit import compiling, inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.python import layout as pl
from armillary.engine.transport.python.transport import run_of

queue_kernel = use("armillary.engine.transport.queue_kernel")
push, pop, new_row, deliver = queue_kernel.push, queue_kernel.pop, queue_kernel.new_row, queue_kernel.deliver
comes, reached = queue_kernel.comes, queue_kernel.reached
use_kernel = use("armillary.engine.transport.use_kernel")
link_row, duration, carried = use_kernel.link_row, use_kernel.duration, use_kernel.carried
routes, rows, runs = accessors(lk.ROUTE_FIRST, lk.ROW, pl.RUN)
if compiling():
    raise InputError(
        "network models of other packages run in Python, got mode compiled, expected interpreted"
    )


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps)."""
    row = new_row(net, pool)
    rows.set_cookie(pool, row, cookie)
    net[lk.N_IN_FLIGHT] += 1
    if routes.first(table, route) == routes.first(table, route + 1):
        push(net, queue, now, row * lk.CODES + pl.ARRIVES)
        return
    run_of(runs.number(net, 0)).leave(row, route, size, key)
    push(net, queue, now, row * lk.CODES + pl.LEAVES)


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: messages that wait for links may leave."""
    for row in run_of(runs.number(net, 0)).again():
        push(net, queue, now, row * lk.CODES + pl.LEAVES)


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time."""
    while comes(net, queue, limit):
        now = net[lk.N_NOW]
        leaving = []
        # `comes` has moved to the time of the first event; all of that ps are taken together, in their order.
        while net[lk.N_QUEUE] > 0 and queue[lk.Q_TIME] == now:
            what = pop(net, queue)
            if what % lk.CODES == pl.ARRIVES:
                deliver(net, pool, what // lk.CODES)
            else:
                leaving.append(what // lk.CODES)
        if not leaving:
            continue
        run = run_of(runs.number(net, 0))
        # Read before `depart` forgets the messages whose arrival it knows.
        ways = [run.route(row) for row in leaving]
        times = dict(run.depart(leaving, table, net[lk.N_STAGE], now))
        for row, (route, size) in zip(leaving, ways, strict=True):
            # No subscript: where kernels are checked, that is an access to an array.
            end = times.get(row)
            if end is not None:
                push(net, queue, end, row * lk.CODES + pl.ARRIVES)
                _count_use(table, net, run, route, size, now, end)
    return reached(net, queue, limit)


@inner
def _count_use(table, net, run, route, size, begin, end):
    """Count a message on its links, each at its bandwidth and just before it arrives: before, it may have waited."""
    # The model says only when the message arrives, so busy time is what its bytes need.
    for link in run.links(table, net[lk.N_STAGE], route):
        long = duration(table, link_row(table, net, link.number), size)
        carried(table, net, link.number, size, max(begin, end - long), end)
