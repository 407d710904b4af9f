"""Messages on links: whole messages move from device to device, and a link carries one at a time.

A message holds a link for bytes / bandwidth and is at the other end after latency + bytes / bandwidth; only then
does it ask for its next link. Both times are whole ticks. Its links follow from the coordinates of its two ends,
one dimension after the other (`armillary.platform.links`).
"""

from __future__ import annotations

from armillary.engine.layout_kernel import *
from armillary.jit import inner, use

queue = use("armillary.engine.congestion.queue_kernel")
push, new_row = queue.push, queue.new_row


@inner
def next_link(prog, mem, message):
    """Move a message on to its next device; returns (link, dimension)."""
    npus = prog[Z_NPUS]
    here = mem[message + W_AT]
    to = mem[message + W_TO]
    if here >= npus:
        # In the switch of a dimension, on the way down to an NPU.
        d = here // npus - 1
        here -= npus * (d + 1)
        mem[message + W_AT] = here
        return prog[prog[LINK_DIMS] + d * LD_COLUMNS + LD_FIRST] + npus + here, d
    d = 0
    at = prog[LINK_DIMS]
    while here // prog[at + LD_STRIDE] % prog[at + LD_SIZE] == to // prog[at + LD_STRIDE] % prog[at + LD_SIZE]:
        d += 1
        at += LD_COLUMNS
    size = prog[at + LD_SIZE]
    stride = prog[at + LD_STRIDE]
    kind = prog[at + LD_KIND]
    first = prog[at + LD_FIRST]
    own = here // stride % size
    other = to // stride % size
    if kind == STAR:
        mem[message + W_AT] = npus * (d + 1) + here + (other - own) * stride
        return first + here, d
    if kind == ALL_PAIRS:
        mem[message + W_AT] = here + (other - own) * stride
        return first + here * (size - 1) + (other - 1 if other > own else other), d
    ahead = other - own
    if kind == LOOP:
        ahead = ahead % size
        ahead = 1 if 2 * ahead <= size else -1
    beside = own + 1 if ahead > 0 else own - 1
    mem[message + W_AT] = here + (beside % size - own) * stride
    return first + 2 * here + (0 if ahead > 0 else 1), d


@inner
def send_message(prog, st, mem, heap, source, to, size, code, a, b, tick):
    """Put a message of size class `size` on its first link; on arrival (code, a, b) happens."""
    message = new_row(st, mem)
    mem[message + W_AT] = source
    mem[message + W_TO] = to
    mem[message + W_SIZE] = size
    mem[message + W_CODE] = code
    mem[message + W_A] = a
    mem[message + W_B] = b
    forward(prog, st, mem, heap, message, tick)


@inner
def forward(prog, st, mem, heap, message, tick):
    """Let a message cross its next link as soon as those before it have left."""
    link, d = next_link(prog, mem, message)
    mem[message + W_COST] = prog[LINK_COSTS] + 2 * (mem[message + W_SIZE] * prog[Z_LINKS] + d)
    mem[message + W_NEXT] = 0
    at = st[LINK] + link * LK_COLUMNS
    if st[at + LK_TICK] < tick or (st[at + LK_TICK] == tick and st[at + LK_SEQ] <= st[V_NOW]):
        transmit(prog, st, mem, heap, at, message, tick)
    elif st[at + LK_HEAD] == 0:
        # The link becoming free is an event only if someone waits for it; its place was kept.
        st[at + LK_HEAD] = message
        st[at + LK_TAIL] = message
        push(st, heap, st[at + LK_TICK], st[at + LK_SEQ], FREE_LINK + KINDS * link)
    else:
        mem[st[at + LK_TAIL] + W_NEXT] = message
        st[at + LK_TAIL] = message


@inner
def transmit(prog, st, mem, heap, at, message, tick):
    """Occupy the link at address `at`."""
    cost = mem[message + W_COST]
    seq = st[V_SEQ]
    st[V_SEQ] = seq + 2
    st[at + LK_TICK] = tick + prog[cost]
    st[at + LK_SEQ] = seq + 2
    push(st, heap, tick + prog[cost + 1], seq + 1, HOP + KINDS * message)


@inner
def link_free(prog, st, mem, heap, link, tick):
    """A link for which messages wait is free: the first of them takes it."""
    at = st[LINK] + link * LK_COLUMNS
    message = st[at + LK_HEAD]
    following = mem[message + W_NEXT]
    st[at + LK_HEAD] = following
    transmit(prog, st, mem, heap, at, message, tick)
    if following > 0:
        push(st, heap, st[at + LK_TICK], st[at + LK_SEQ], FREE_LINK + KINDS * link)
