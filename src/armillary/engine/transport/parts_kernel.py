"""Messages in parts, one for each plane of the network (see `armillary.platform.topology.planes`).

The routes of the parts of a message stand side by side. Its transport knows parts only; their sender gets the cookie of
the message back with the last of them.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk

queue_kernel = use("armillary.engine.transport.queue_kernel")
new_row, free_row = queue_kernel.new_row, queue_kernel.free_row
inject = use("armillary.engine.transport.chosen_kernel").inject
wholes = accessors(lk.WHOLE)


@inner
def send_parts(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps): all of it on its only route, or an even part on each of its routes."""
    parts = table[lk.T_PARTS]
    if parts == 1:
        inject(table, net, pool, queue, cookie, route, size, key, now)
        return
    row = new_row(net, pool)
    wholes.set_cookie(pool, row, cookie)
    wholes.set_left(pool, row, parts)
    for p in range(parts):
        # What does not divide evenly goes to the first planes, a byte each.
        share = size // parts + (1 if p < size % parts else 0)
        inject(table, net, pool, queue, row, route * parts + p, share, key, now)


@inner
def whole(table, net, pool, cookie):
    """Return the cookie of the message of which a part has arrived, or -1 while there are more to come."""
    if table[lk.T_PARTS] == 1:
        return cookie
    # The cookie of a part is the row of its message.
    wholes.add_left(pool, cookie, -1)
    if wholes.left(pool, cookie) > 0:
        return -1
    of_message = wholes.cookie(pool, cookie)
    free_row(net, pool, cookie)
    return of_message
