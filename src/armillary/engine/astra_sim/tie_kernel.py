"""Whether what came first within a tick made a difference that only the messages of all ranks tell: V_TIED.

ASTRA-sim takes the events of a tick in the order in which they were registered, all that are due on one rank in a row.
So of two events on a rank the one that was registered at an earlier tick comes first, but for point-to-point messages,
which arrive on their own: those that left before what else is due was registered may come before or after it. Of what
was registered at the same tick nothing is known here, unless `together` tells. Where two such events do not meet, in
a queue of streams, at a slot of their rank or at a memory, their order has no effect.
"""

from __future__ import annotations

from armillary.base.jit import in_variant, inner, use
from armillary.engine.common.layout_kernel import *

way = use("armillary.engine.astra_sim.way_kernel")
phase_row, queue_of, cost_of = way.phase_row, way.queue_of, way.cost_of
LISTED = in_variant("contention")
"""Events are in the order in which they were registered: there is nothing to tell."""


@inner
def touch(prog, st, r, queue, stream, p, tick):
    """Note that a queue changes since phase `p` of a stream has ended (-1: since a node has); compare with before.

    Of two events of a tick that were registered at different ticks the order is known, and of the ends of two phases
    that took the same way at the same time: messages do not overtake each other there.
    """
    if LISTED or st[V_TIED] == 1:
        return
    at = st[LAST_TOUCH] + (r * prog[Z_LEVELS] * prog[Z_QUEUES] + queue) * TO_COLUMNS
    registered = st[V_REGISTERED]
    if st[at + TO_TICK] == tick and st[at + TO_REGISTERED] == registered:
        before = st[at + TO_STREAM]
        if before != stream and not together(prog, st, before, st[at + TO_PHASE], stream, p):
            st[V_TIED] = 1
    st[at + TO_TICK] = tick
    st[at + TO_REGISTERED] = registered
    st[at + TO_STREAM] = stream
    st[at + TO_PHASE] = p


@inner
def together(prog, st, one, p, other, q):
    """Tell whether all members began phase `p` of a stream and phase `q` of another in turn, at the same ticks each."""
    item = st[st[STREAM_ITEM] + one]
    if p < 0 or q < 0 or st[st[STREAM_ITEM] + other] != item:
        return False
    at = prog[ITEMS] + item * I_COLUMNS
    first = one - prog[at + I_STREAM]
    second = other - prog[at + I_STREAM]
    row = phase_row(prog, st, at, first, p)
    if queue_of(prog, st, at, first, p) != queue_of(prog, st, at, second, q):
        return False
    beside = phase_row(prog, st, at, second, q)
    if cost_of(prog, st, at, row, first, p) != cost_of(prog, st, at, beside, second, q):
        return False
    comm = prog[COMMS] + prog[at + I_COMM] * CO_COLUMNS
    members = prog[comm + CO_ITEMS] + st[st[ITEM_INSTANCE] + item] * prog[comm + CO_REPS]
    line = (
        prog[LINE_ROWS] + prog[prog[RING_ENTRY] + 2 * (prog[row + PH_RING] + prog[at + I_LOCAL])] * LN_COLUMNS
    )
    phases = prog[prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS + PL_PHASES]
    for i in range(prog[line + LN_MACHINES]):
        member = prog[ITEMS] + st[st[INSTANCE_ITEM] + members + prog[prog[line + LN_LOCAL] + i]] * I_COLUMNS
        here = prog[member + I_ROW] + first * phases + p
        there = prog[member + I_ROW] + second * phases + q
        if st[st[ROW_START] + here] != st[st[ROW_START] + there]:
            return False
        if st[st[ROW_SEQ] + here] > st[st[ROW_SEQ] + there]:
            return False
    return True


@inner
def doubt(prog, st, r, kind, tick):
    """Note that a node of a kind completes; V_DOUBT: another one did, and might as well have been the second."""
    if LISTED:
        return
    at = st[COMPLETED] + r * D_COLUMNS
    pair = 1 if kind in (SEND, RECV) else 0
    st[V_DOUBT] = 0
    if st[at + D_TICK] == tick:
        if st[at + D_REGISTERED] == st[V_REGISTERED] or (st[at + D_PAIR] == 1 and pair == 0):
            st[V_DOUBT] = 1
            if st[at + D_SKIPPED] == 1:
                st[V_TIED] = 1
    else:
        for slot in range(NONE):
            st[at + D_FRESH + slot] = 0
            st[at + D_ISSUED + slot] = 0
        st[at + D_SKIPPED] = 0
        st[at + D_PAIR] = 0
    st[at + D_TICK] = tick
    st[at + D_REGISTERED] = st[V_REGISTERED]
    st[at + D_PAIR] = max(st[at + D_PAIR], pair)


@inner
def freed(prog, st, r, slot):
    """A completion frees a node: in doubt it matters if one before it has taken its slot."""
    if LISTED or slot == NONE:
        return
    at = st[COMPLETED] + r * D_COLUMNS
    if st[V_DOUBT] == 1 and st[at + D_ISSUED + slot] == 1:
        st[V_TIED] = 1
    st[at + D_FRESH + slot] = 1


@inner
def taken(prog, st, r, slot, skipped):
    """A node takes its slot: in doubt it matters if others wait, and some have done so since this tick only."""
    if LISTED:
        return
    at = st[COMPLETED] + r * D_COLUMNS
    if skipped:
        st[at + D_SKIPPED] = 1
        if st[V_DOUBT] == 1:
            st[V_TIED] = 1
    if slot == NONE:
        return
    if st[V_DOUBT] == 1 and st[at + D_FRESH + slot] == 1 and st[st[READY_SIZE] + r * 4 + slot] > 0:
        st[V_TIED] = 1
    st[at + D_ISSUED + slot] = 1


@inner
def served(prog, st, server, tick):
    """A memory that others share gets a request: who is first matters to all, and is known at the start only."""
    if LISTED:
        return
    if tick > 0 and st[st[SERVED_AT] + server] == tick:
        st[V_TIED] = 1
    st[st[SERVED_AT] + server] = tick
