"""Network model `congestion`: FIFO links, one message at a time on each, cut through at every node.

A message may take a link when its first byte is there and all that came before it have left; it holds the link
until its last byte has gone, which is never before its last byte has come. Buffers have no limit.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
push, pop, new_row, deliver = events.push, events.pop, events.new_row, events.deliver
comes, reached = events.comes, events.reached
links = use("armillary.engine.transport.use_kernel")
link_row, duration, carried, waiting = links.link_row, links.duration, links.carried, links.waiting

# Row of a message: place of its next link in its route, and after its last; bytes; when its last byte is here
M_AT, M_END, M_SIZE, M_TAIL = range(2, 6)
HEAD, ARRIVED, AGAIN = range(3)
FREE_AT = N_OWN  # (links) when all that came so far have left
WAIT = N_OWN + 1  # first and last message that waits for a link that is down


@inner
def inject(table, net, pool, queue, cookie, route, size, key, now):
    """Let a message leave its NPU at `now` (ps); the key has no meaning here."""
    row = new_row(net, pool)
    first = table[T_ROUTE_FIRST] + route
    pool[row + P_COOKIE] = cookie
    pool[row + M_AT] = table[first]
    pool[row + M_END] = table[first + 1]
    pool[row + M_SIZE] = size
    pool[row + M_TAIL] = now
    net[N_UNDER_WAY] += 1
    push(net, queue, now, row * CODES + (HEAD if table[first] < table[first + 1] else ARRIVED))


@inner
def change(table, net, pool, queue, now):
    """The network is in another stage: what waits for links that were down may go on."""
    row = net[net[WAIT]]
    if row > 0:
        net[net[WAIT]] = 0
        push(net, queue, now, row * CODES + AGAIN)


@inner
def _stay(net, pool, row):
    """Let a message wait until links change."""
    pool[row + P_NEXT] = 0
    if net[net[WAIT]] == 0:
        net[net[WAIT]] = row
    else:
        pool[net[net[WAIT] + 1] + P_NEXT] = row
    net[net[WAIT] + 1] = row


@inner
def advance(table, net, pool, queue, limit):
    """Run up to `limit` (ps), or to the end of the first ps at which messages arrive; returns that time.

    Stops early with status GROW when there is too little room; then it is called again.
    """
    while comes(net, queue, limit):
        now = net[N_NOW]
        what = pop(net, queue)
        row = what // CODES
        if what % CODES == ARRIVED:
            deliver(net, pool, row)
            continue
        if what % CODES == AGAIN and pool[row + P_NEXT] > 0:
            push(net, queue, now, pool[row + P_NEXT] * CODES + AGAIN)
        link = table[table[T_ROUTE_LINK] + pool[row + M_AT]]
        at = link_row(table, net, link)
        if table[at + L_SLOW] == 0:
            _stay(net, pool, row)
            continue
        free = net[net[FREE_AT] + link]
        start = max(now, free)
        size = pool[row + M_SIZE]
        end = max(start + duration(table, at, size), pool[row + M_TAIL])
        net[net[FREE_AT] + link] = end
        carried(table, net, link, size, start, end)
        waiting(table, net, link, int((start - now) / table[at + L_SLOW] * table[at + L_FAST]), now)
        pool[row + M_TAIL] = end + table[at + L_LATENCY]
        pool[row + M_AT] += 1
        if pool[row + M_AT] < pool[row + M_END]:
            push(net, queue, start + table[at + L_LATENCY], row * CODES + HEAD)
        else:
            push(net, queue, pool[row + M_TAIL], row * CODES + ARRIVED)
    return reached(net, queue, limit)
