"""The order in which the streams (chunks in a phase) that wait in a queue are started.

`touch` tells when that order hangs on which of two events of one rank and tick was registered first, and nothing
that is known says which.
"""

from __future__ import annotations

from armillary.engine.layout_kernel import *
from armillary.jit import in_variant, inner, use

way = use("armillary.engine.way_kernel")
phase_row, queue_of, cost_of, SCHEDULED = way.phase_row, way.queue_of, way.cost_of, way.SCHEDULED
LISTED = in_variant("contention")
"""Events are in the order in which they were registered: there is nothing to tell."""


@inner
def enqueue(prog, st, r, queue, stream, left):
    """Put a stream into a queue of its rank, of whose running streams `left` have ended: in turn, or as ordered."""
    q = r * prog[Z_LEVELS] * prog[Z_QUEUES] + queue
    after = st[st[QUEUE_TAIL] + q]
    if st[st[QUEUE_HEAD] + q] < 0:
        after = -1
    elif SCHEDULED and prog[Z_ORDER] != IN_TURN:
        after = place_of(prog, st, q, stream, st[st[QUEUE_RUNNING] + q] - left)
    if after < 0:
        st[st[STREAM_NEXT] + stream] = st[st[QUEUE_HEAD] + q]
        st[st[QUEUE_HEAD] + q] = stream
    else:
        st[st[STREAM_NEXT] + stream] = st[st[STREAM_NEXT] + after]
        st[st[STREAM_NEXT] + after] = stream
    if st[st[STREAM_NEXT] + stream] < 0:
        st[st[QUEUE_TAIL] + q] = stream


@inner
def touch(prog, st, r, queue, stream, p, tick):
    """Note that a queue changes since phase `p` of a stream has ended (-1: since a node has); compare with before.

    Of two events of a tick that were registered at different ticks the order is known, and of the ends of two phases
    that took the same way at the same time: messages do not overtake each other there.
    """
    if LISTED or st[V_TIED] == 1:
        return
    q = r * prog[Z_LEVELS] * prog[Z_QUEUES] + queue
    if st[st[TOUCH_TICK] + q] == tick and st[st[TOUCH_REGISTERED] + q] == st[V_REGISTERED]:
        before = st[st[TOUCH_STREAM] + q]
        if before != stream and not together(prog, st, before, st[st[TOUCH_PHASE] + q], stream, p):
            st[V_TIED] = 1
    st[st[TOUCH_TICK] + q] = tick
    st[st[TOUCH_REGISTERED] + q] = st[V_REGISTERED]
    st[st[TOUCH_STREAM] + q] = stream
    st[st[TOUCH_PHASE] + q] = p


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
    line = prog[LINE_ROWS] + prog[prog[RING_ENTRY] + 2 * (prog[row + PH_RING] + prog[at + I_LOCAL])] * LN_COLUMNS
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
def row_of(prog, st, stream):
    """Return the row of the phase that a stream is in."""
    at = prog[ITEMS] + st[st[STREAM_ITEM] + stream] * I_COLUMNS
    return phase_row(prog, st, at, stream - prog[at + I_STREAM], st[st[STREAM_PHASE] + stream])


@inner
def phases_left(prog, st, stream):
    """Return how many phases of a stream come after the one it is in."""
    plan = prog[prog[ITEMS] + st[st[STREAM_ITEM] + stream] * I_COLUMNS + I_PLAN]
    return prog[prog[PLANS] + plan * PL_COLUMNS + PL_PHASES] - 1 - st[st[STREAM_PHASE] + stream]


@inner
def place_of(prog, st, q, stream, running):
    """Return the waiting stream of a queue that another one goes after, -1: before all.

    As in ASTRA-sim, streams that are equal in what they are ordered by go before those that came earlier.
    """
    order = prog[Z_ORDER]
    row = row_of(prog, st, stream)
    left = phases_left(prog, st, stream)
    if prog[row + PH_KIND] == OTHER or (order == SMALLEST and left == 1):
        return st[st[QUEUE_TAIL] + q]
    after = -1
    here = st[st[QUEUE_HEAD] + q]
    last = -1
    while here >= 0:
        there = row_of(prog, st, here)
        if order == SMALLEST:
            passes = prog[there + PH_BYTES] < prog[row + PH_BYTES]
        elif order == FEWEST_LEFT:
            passes = phases_left(prog, st, here) < left
        elif after < 0:
            # The first one that waits keeps its place behind those that run.
            passes = running > 0
        else:
            passes = last != OTHER and prog[there + PH_KIND] != OTHER and last != prog[there + PH_KIND]
        if not passes:
            break
        last = prog[there + PH_KIND]
        after = here
        here = st[st[STREAM_NEXT] + here]
    return after
