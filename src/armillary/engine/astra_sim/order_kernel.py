"""The order in which the streams (chunks in a phase) that wait in a queue are started."""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.common.layout_kernel import *

way = use("armillary.engine.astra_sim.way_kernel")
phase_row, SCHEDULED = way.phase_row, way.SCHEDULED


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
