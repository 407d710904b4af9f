"""Network model `loggops`: what a message takes of both ends, and nothing between (Hoefler et al., LogGOPSim, 2010).

A message of s bytes takes o + (s - 1) O of the sender's CPU and g + (s - 1) G of the link by which it leaves. Its first
byte comes L after the o. There it takes o + (s - 1) max(O, G) of the receiver's CPU, after which it has arrived, and
g + (s - 1) G of the link by which it comes. Above S bytes the sender's CPU and link are busy until the first byte is
taken. What needs a resource that is busy waits in its line.

The network has no contention inside: only ends are shared. Ignored: switches, packets, buffers, urgency, and the time
that NPUs compute. A run costs two events per message, and one for each time that it waits: as LogGOPSim's, which it
equals where all receives are posted.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.loggops import layout as gl

queue_kernel = use("armillary.engine.transport.queue_kernel")
push, pop, new_row, deliver = queue_kernel.push, queue_kernel.pop, queue_kernel.new_row, queue_kernel.deliver
comes, reached = queue_kernel.comes, queue_kernel.reached
stop, restart, restart_next = queue_kernel.stop, queue_kernel.restart, queue_kernel.restart_next
use_kernel = use("armillary.engine.transport.use_kernel")
link_row, duration, carried = use_kernel.link_row, use_kernel.duration, use_kernel.carried
busy, links, messages, option = accessors(gl.BUSY, lk.LINK, gl.MESSAGE, gl.OPTION)
route_links, routes, rows = accessors(lk.ROUTE_LINK, lk.ROUTE_FIRST, lk.ROW)


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps); the key has no meaning here."""
    row = new_row(net, pool)
    rows.set_cookie(pool, row, cookie)
    first, end = routes.first(table, route), routes.first(table, route + 1)
    messages.set_size(pool, row, size)
    messages.set_route(pool, row, route)
    net[lk.N_IN_FLIGHT] += 1
    if first == end:
        push(net, queue, now, row * lk.CODES + gl.DONE)
        return
    messages.set_first(pool, row, route_links.link(table, first))
    messages.set_last(pool, row, route_links.link(table, end - 1))
    push(net, queue, now, row * lk.CODES + gl.POST)


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: what waits for links that were down may go on."""
    restart(net, queue, now, gl.AGAIN)


@inner
def _cpu(table, link, is_post):
    """Return the resource of the CPU at an end of a route."""
    return links.tail(table, link) if is_post else links.head(table, link)


@inner
def _port(table, link, is_post):
    """Return the resource of a link at an end of a route."""
    return table[lk.T_NODES] + (link if is_post else table[lk.T_LINKS] + link)


@inner
def _slowest(table, net, route):
    """Return the row of the slowest link of a route; -1: one is down."""
    found = -1
    for place in range(routes.first(table, route), routes.first(table, route + 1)):
        row = link_row(table, net, route_links.link(table, place))
        if links.slow(table, row) == 0:
            return -1
        # Rates are compared by what a large message takes: slow / fast is no whole number.
        if found < 0 or duration(table, row, gl.PART) > duration(table, found, gl.PART):
            found = row
    return found


@inner
def _latency(table, net, route):
    given = option.L(table, table[lk.T_OPTIONS])
    if given >= 0:
        return given
    whole = 0
    for place in range(routes.first(table, route), routes.first(table, route + 1)):
        whole += links.latency(table, link_row(table, net, route_links.link(table, place)))
    return whole


@inner
def _times(rest, per_byte):
    """Return ps of `rest` bytes, rounded down; in two parts, as the product of both need not fit 63 bits."""
    return (rest >> gl.BITS) * per_byte + ((rest & (gl.PART - 1)) * per_byte >> gl.BITS)


@inner
def _of_link(table, net, route, size):
    """Return what a message takes of a link: all but a byte by the model; all where links say, which none can beat."""
    given = option.G(table, table[lk.T_OPTIONS])
    if given >= 0:
        return _times(max(0, size - 1), given)
    return duration(table, _slowest(table, net, route), size)


@inner
def _wait(net, pool, queue, row, resource, now):
    """Put a message at the end of the line of a resource."""
    rows.set_next(pool, row, 0)
    if busy.line(net, resource) == 0:
        busy.set_line(net, resource, row)
        push(net, queue, max(now, busy.until(net, resource)), resource * lk.CODES + gl.WAKE)
    else:
        rows.set_next(pool, busy.line_last(net, resource), row)
    busy.set_line_last(net, resource, row)


@inner
def _wake(table, net, pool, queue, resource, now):
    """A resource may be free: the first of its line tries again."""
    row = busy.line(net, resource)
    if busy.until(net, resource) <= now:
        busy.set_line(net, resource, rows.next(pool, row))
        _try(table, net, pool, queue, row, True, now)
    if busy.line(net, resource) > 0:
        push(net, queue, max(now, busy.until(net, resource)), resource * lk.CODES + gl.WAKE)


@inner
def _try(table, net, pool, queue, row, woken, now):
    """Let a message leave, or be taken, unless what it needs is busy."""
    is_post = messages.step(pool, row) == gl.POST
    link = messages.first(pool, row) if is_post else messages.last(pool, row)
    cpu, port = _cpu(table, link, is_post), _port(table, link, is_post)
    cpu_free, port_free = busy.until(net, cpu), busy.until(net, port)
    waits_cpu, waits_port = cpu_free > now, port_free > now
    # What comes when a resource is free again stands behind those that waited for it.
    if not (waits_cpu or waits_port or woken):
        waits_cpu, waits_port = busy.line(net, cpu) > 0, busy.line(net, port) > 0
    if waits_cpu or waits_port:
        later = port if waits_port and (not waits_cpu or port_free > cpu_free) else cpu
        _wait(net, pool, queue, row, later, now)
    elif is_post:
        _leave(table, net, pool, queue, row, cpu, port, now)
    else:
        _taken(table, net, pool, queue, row, cpu, port, now)


@inner
def _leave(table, net, pool, queue, row, cpu, port, now):
    route = messages.route(pool, row)
    # In flight a message keeps the rate with which it left.
    if _slowest(table, net, route) < 0:
        stop(net, pool, row)
        return
    options = table[lk.T_OPTIONS]
    rest = max(0, messages.size(pool, row) - 1)
    whole = _of_link(table, net, route, messages.size(pool, row))
    messages.set_whole(pool, row, whole)
    busy.set_until(net, cpu, now + option.o(table, options) + _times(rest, option.O(table, options)))
    busy.set_until(net, port, now + option.g(table, options) + whole)
    carried(table, net, messages.first(pool, row), messages.size(pool, row), now, now + whole)
    messages.set_step(pool, row, gl.ARRIVE)
    push(
        net,
        queue,
        now + option.o(table, options) + _latency(table, net, route),
        row * lk.CODES + gl.ARRIVE,
    )


@inner
def _taken(table, net, pool, queue, row, cpu, port, now):
    options = table[lk.T_OPTIONS]
    size = messages.size(pool, row)
    rest = max(0, size - 1)
    whole = messages.whole(pool, row)
    done = now + option.o(table, options) + max(whole, _times(rest, option.O(table, options)))
    busy.set_until(net, cpu, done)
    busy.set_until(net, port, now + option.g(table, options) + whole)
    if messages.first(pool, row) != messages.last(pool, row):
        carried(table, net, messages.last(pool, row), size, now, now + whole)
    if size > option.S(table, options):
        link = messages.first(pool, row)
        for resource in (_cpu(table, link, True), _port(table, link, True)):
            busy.set_until(net, resource, max(now, busy.until(net, resource)))
    push(net, queue, done, row * lk.CODES + gl.DONE)


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    while comes(net, queue, limit):
        now = net[lk.N_NOW]
        what = pop(net, queue)
        code, of = what % lk.CODES, what // lk.CODES
        if code == gl.DONE:
            deliver(net, pool, of)
        elif code == gl.WAKE:
            _wake(table, net, pool, queue, of, now)
        else:
            if code == gl.AGAIN:
                restart_next(net, pool, queue, now, of, gl.AGAIN)
            messages.set_step(pool, of, gl.ARRIVE if code == gl.ARRIVE else gl.POST)
            _try(table, net, pool, queue, of, False, now)
    return reached(net, queue, limit)
