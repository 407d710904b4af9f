"""Messages on links: whole messages move from device to device, and a link carries one at a time.

A message holds a link for bytes / bandwidth and is at the other end after latency + bytes / bandwidth; only then
does it ask for its next link. Both times are whole ticks. Its links follow from the coordinates of its two ends,
one dimension after the other (`armillary.platform.links`).
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.astra_sim import layout as lk

queue_kernel = use("armillary.engine.astra_sim.congestion.queue_kernel")
append, pending, new_row, take = (
    queue_kernel.append,
    queue_kernel.pending,
    queue_kernel.new_row,
    queue_kernel.take,
)
hops, link_costs, link_dims, link_rows = accessors(lk.HOPS, lk.LINK_COSTS, lk.LINK_DIMS, lk.LINK)


@inner
def next_link(prog, mem, message):
    """Move a message on to its next device; returns (link, dimension)."""
    npus = prog[lk.Z_NPUS]
    here = hops.at(mem, message)
    # Devices beyond the NPUs: npus * (d + 1) + x is the switch of dimension d for a message on its way to NPU
    # x.
    if here >= npus:
        # In the switch of a dimension, on the way down to an NPU.
        d = here // npus - 1
        here -= npus * (d + 1)
        hops.set_at(mem, message, here)
        return (link_dims.first(prog, d) + npus + here, d)
    # Strip the dimensions in which the ends agree: the message travels dimension by dimension, lowest first.
    own = here
    other = hops.to(mem, message)
    d = 0
    at = 0  # the dimension in which they differ
    if prog[lk.Z_LINKS] > 1:
        size = link_dims.size(prog, at)
        while own % size == other % size:
            own //= size
            other //= size
            d += 1
            at += 1
            size = link_dims.size(prog, at)
        own %= size
        other %= size
    size = link_dims.size(prog, at)
    kind = link_dims.kind(prog, at)
    first = link_dims.first(prog, at)
    ahead = other - own
    if kind == lk.STAR:
        hops.set_at(mem, message, npus * (d + 1) + here + ahead * link_dims.stride(prog, at))
        return first + here, d
    if kind == lk.ALL_PAIRS:
        hops.set_at(mem, message, here + ahead * link_dims.stride(prog, at))
        # A link to every other member but none to itself: targets beyond the own number move down by one.
        return first + here * (size - 1) + (other - 1 if ahead > 0 else other), d
    if kind == lk.LOOP:
        # The shorter way round; of two equally long ones the ascending.
        if ahead < 0:
            ahead += size
        ahead = 1 if 2 * ahead <= size else -1
    if ahead > 0:
        # Past the last member the loop wraps to the first.
        hops.set_at(mem, message, here + (1 if own + 1 < size else 1 - size) * link_dims.stride(prog, at))
        return first + 2 * here, d
    hops.set_at(mem, message, here - (1 if own > 0 else 1 - size) * link_dims.stride(prog, at))
    return first + 2 * here + 1, d


@inner
def send_message(prog, st, mem, heap, source, to, size, code, a, b, tick):
    """Put a message of size class `size` on its first link; on arrival (code, a, b) happens.

    Without links `size` is the time that it takes.
    """
    message = new_row(st, mem)
    hops.set_to(mem, message, to)
    hops.set_code(mem, message, code)
    hops.set_a(mem, message, a)
    hops.set_b(mem, message, b)
    if prog[lk.Z_LINKS] == 0:
        # No links: the message is treated as being at its destination, and `size` is its duration.
        hops.set_at(mem, message, to)
        pending(prog, st, mem, heap, tick + size, lk.HOP + lk.KINDS * message)
        return
    hops.set_at(mem, message, source)
    # Costs stand per size class and dimension; the dimension is added per hop.
    hops.set_size(mem, message, prog[lk.Z_LINKS] * size)
    forward(prog, st, mem, heap, message, tick)


@inner
def forward(prog, st, mem, heap, message, tick):
    """Let a message cross its next link as soon as those before it have left."""
    link, d = next_link(prog, mem, message)
    hops.set_cost(mem, message, hops.size(mem, message) + d)
    row = lk.ROW_COLUMNS + link * lk.LK_COLUMNS
    if link_rows.busy(mem, row) == 1:
        append(mem, link_rows.at_head(mem, row), lk.HOP + lk.KINDS * message)
    else:
        transmit(prog, st, mem, heap, row, message, tick)


@inner
def transmit(prog, st, mem, heap, row, message, tick):
    """Let a message occupy a link."""
    cost = hops.cost(mem, message)
    link_rows.set_busy(mem, row, 1)
    # Store and forward: the message is at the other end after latency and its own duration; the link is free
    # earlier by the latency.
    pending(prog, st, mem, heap, tick + link_costs.there(prog, cost), lk.HOP + lk.KINDS * message)
    pending(prog, st, mem, heap, tick + link_costs.held(prog, cost), lk.FREE_LINK + lk.KINDS * row)


@inner
def link_free(prog, st, mem, heap, row, tick):
    """A link is free: the first message that waits for it takes it."""
    link_rows.set_busy(mem, row, 0)
    what = take(mem, link_rows.at_head(mem, row))
    if what > 0:
        transmit(prog, st, mem, heap, row, what // lk.KINDS, tick)
