"""Messages on links: whole messages move from device to device, and a link carries one at a time.

A message holds a link for bytes / bandwidth and is at the other end after latency + bytes / bandwidth; only then
does it ask for its next link. Both times are whole ticks. Its links follow from the coordinates of its two ends,
one dimension after the other (`armillary.platform.links`).
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.common.layout_kernel import *

queue = use("armillary.engine.astra_sim.congestion.queue_kernel")
append, due, new_row, take = queue.append, queue.due, queue.new_row, queue.take


@inner
def next_link(prog, mem, message):
    """Move a message on to its next device; returns (link, dimension)."""
    npus = prog[Z_NPUS]
    here = mem[message + W_AT]
    if here >= npus:
        # In the switch of a dimension, on the way down to an NPU.
        d = here // npus - 1
        here -= npus * (d + 1)
        mem[message + W_AT] = here
        return prog[prog[LINK_DIMS] + d * LD_COLUMNS + LD_FIRST] + npus + here, d
    own = here
    other = mem[message + W_TO]
    d = 0
    at = prog[LINK_DIMS]
    if prog[Z_LINKS] > 1:
        size = prog[at + LD_SIZE]
        while own % size == other % size:
            own //= size
            other //= size
            d += 1
            at += LD_COLUMNS
            size = prog[at + LD_SIZE]
        own %= size
        other %= size
    size = prog[at + LD_SIZE]
    kind = prog[at + LD_KIND]
    first = prog[at + LD_FIRST]
    ahead = other - own
    if kind == STAR:
        mem[message + W_AT] = npus * (d + 1) + here + ahead * prog[at + LD_STRIDE]
        return first + here, d
    if kind == ALL_PAIRS:
        mem[message + W_AT] = here + ahead * prog[at + LD_STRIDE]
        return first + here * (size - 1) + (other - 1 if ahead > 0 else other), d
    if kind == LOOP:
        if ahead < 0:
            ahead += size
        ahead = 1 if 2 * ahead <= size else -1
    if ahead > 0:
        mem[message + W_AT] = here + (1 if own + 1 < size else 1 - size) * prog[at + LD_STRIDE]
        return first + 2 * here, d
    mem[message + W_AT] = here - (1 if own > 0 else 1 - size) * prog[at + LD_STRIDE]
    return first + 2 * here + 1, d


@inner
def send_message(prog, st, mem, heap, source, to, size, code, a, b, tick):
    """Put a message of size class `size` on its first link; on arrival (code, a, b) happens.

    Without links `size` is the time that it takes.
    """
    message = new_row(st, mem)
    mem[message + W_TO] = to
    mem[message + W_CODE] = code
    mem[message + W_A] = a
    mem[message + W_B] = b
    if prog[Z_LINKS] == 0:
        mem[message + W_AT] = to
        due(prog, st, mem, heap, tick + size, HOP + KINDS * message)
        return
    mem[message + W_AT] = source
    mem[message + W_SIZE] = prog[LINK_COSTS] + 2 * prog[Z_LINKS] * size
    forward(prog, st, mem, heap, message, tick)


@inner
def forward(prog, st, mem, heap, message, tick):
    """Let a message cross its next link as soon as those before it have left."""
    link, d = next_link(prog, mem, message)
    mem[message + W_COST] = mem[message + W_SIZE] + 2 * d
    row = ROW_COLUMNS + link * LK_COLUMNS
    if mem[row + LK_BUSY] == 1:
        append(mem, row + LK_HEAD, HOP + KINDS * message)
    else:
        transmit(prog, st, mem, heap, row, message, tick)


@inner
def transmit(prog, st, mem, heap, row, message, tick):
    """Let a message occupy a link."""
    cost = mem[message + W_COST]
    mem[row + LK_BUSY] = 1
    due(prog, st, mem, heap, tick + prog[cost + 1], HOP + KINDS * message)
    due(prog, st, mem, heap, tick + prog[cost], FREE_LINK + KINDS * row)


@inner
def link_free(prog, st, mem, heap, row, tick):
    """A link is free: the first message that waits for it takes it."""
    mem[row + LK_BUSY] = 0
    what = take(mem, row + LK_HEAD)
    if what > 0:
        transmit(prog, st, mem, heap, row, what // KINDS, tick)
