"""Messages that begin at given times, on a transport that the variant chooses."""

from __future__ import annotations

from armillary.base.jit import njit, use
from armillary.engine.transport import layout as lk

queue_kernel = use("armillary.engine.transport.queue_kernel")
full, take_delivered = queue_kernel.full, queue_kernel.take_delivered
parts_kernel = use("armillary.engine.transport.parts_kernel")
send_parts, whole = parts_kernel.send_parts, parts_kernel.whole
advance = use("armillary.engine.transport.chosen_kernel").advance

# A message that is offered: begin in ps, route, bytes, key
OF_BEGIN, OF_ROUTE, OF_SIZE, OF_KEY = range(4)
OF_COLUMNS = 4


@njit
def run(table, net, pool, queue, offers, arrived, next_offer, budget):
    """Offer up to about `budget` messages from `next_offer` on, and write the ps at which they arrive.

    Returns the number of the next: again with more room if the status is GROW. Offers are in the order of their begin.
    """
    count = len(offers) // OF_COLUMNS
    net[lk.N_STATUS] = lk.OK
    while budget > 0:
        if net[lk.N_OFFERING] == 0:
            # Run to the next begin at most: a message must not leave in the past of the network.
            limit = lk.FOREVER
            if next_offer < count:
                limit = offers[next_offer * OF_COLUMNS]
            now = advance(table, net, pool, queue, limit)
        else:
            # There was no room for all that begin now: they do before anything else happens.
            now = net[lk.N_NOW]
            net[lk.N_OFFERING] = 0
        # Arrivals are taken first: their rows are free for what begins now.
        cookie = take_delivered(net, pool)
        while cookie >= 0:
            message = whole(table, net, pool, cookie)
            if message >= 0:
                arrived[message] = now
            budget -= 1
            cookie = take_delivered(net, pool)
        if net[lk.N_STATUS] != lk.OK:
            return next_offer
        if now == lk.FOREVER:
            return next_offer
        while next_offer < count and offers[next_offer * OF_COLUMNS] == now:
            if full(net):
                net[lk.N_STATUS] = lk.GROW
                net[lk.N_OFFERING] = 1
                return next_offer
            at = next_offer * OF_COLUMNS
            send_parts(
                table, net, pool, queue, next_offer, offers[at + 1], offers[at + 2], offers[at + 3], now
            )
            next_offer += 1
    return next_offer
