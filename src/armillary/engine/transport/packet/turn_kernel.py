"""The messages that a link sends, in classes by key: those of the lowest send a packet each in turn."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inlined, inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.switch import layout as pk

queue_kernel = use("armillary.engine.transport.queue_kernel")
new_row, free_row = queue_kernel.new_row, queue_kernel.free_row
classes, messages, ports, rows = accessors(pk.CLASS, pk.MESSAGE, pk.FAIR_PORT, lk.ROW)
routes = accessors(lk.ROUTE_FIRST)


@inner
def new_message(table, net, pool, cookie, route, size, key):
    """Return the row of a message that is to leave its NPU by a route, none of it sent."""
    row = new_row(net, pool)
    rows.set_cookie(pool, row, cookie)
    messages.set_first(pool, row, routes.first(table, route))
    messages.set_last(pool, row, routes.first(table, route + 1) - 1)
    messages.set_key(pool, row, key)
    messages.set_send(pool, row, size)
    net[lk.N_IN_FLIGHT] += 1
    return row


@inner
def line_up(net, pool, link, row):
    """Let a message have its turns on a link, after others with its key."""
    key = messages.key(pool, row)
    before = 0
    class_ = ports.class_(net, link)
    # Keys are few, so a sorted list of classes is cheap.
    while class_ > 0 and classes.key(pool, class_) < key:
        before = class_
        class_ = rows.next(pool, class_)
    rows.set_next(pool, row, 0)
    if class_ > 0 and classes.key(pool, class_) == key:
        rows.set_next(pool, classes.last(pool, class_), row)
        classes.set_last(pool, class_, row)
    else:
        new = new_row(net, pool)
        rows.set_next(pool, new, class_)
        classes.set_key(pool, new, key)
        classes.set_first(pool, new, row)
        classes.set_last(pool, new, row)
        if before > 0:
            rows.set_next(pool, before, new)
        else:
            ports.set_class_(net, link, new)


@inlined
def next_turn(net, pool, link):
    """Return the message whose turn it is, which leaves its class; `turn_over` follows."""
    # The first class has the lowest key: others wait until it is empty.
    class_ = ports.class_(net, link)
    message = classes.first(pool, class_)
    classes.set_first(pool, class_, rows.next(pool, message))
    return message


@inlined
def turn_over(net, pool, link, message, stays):
    """End the turn of a message, which returns at the end of its class if it `stays`."""
    class_ = ports.class_(net, link)
    if stays:
        rows.set_next(pool, message, 0)
        if classes.first(pool, class_) == 0:
            classes.set_first(pool, class_, message)
        else:
            rows.set_next(pool, classes.last(pool, class_), message)
        classes.set_last(pool, class_, message)
    # The class is empty: a later message with this key makes a new one.
    elif classes.first(pool, class_) == 0:
        ports.set_class_(net, link, rows.next(pool, class_))
        free_row(net, pool, class_)


@inlined
def first_of_turn(net, pool, link):
    """Return the message whose turn is next, 0: there is none."""
    class_ = ports.class_(net, link)
    return classes.first(pool, class_) if class_ > 0 else 0
