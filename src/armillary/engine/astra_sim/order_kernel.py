"""The order in which the streams (chunks in a phase) that wait in a queue are started."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.astra_sim import layout as lk

route_kernel = use("armillary.engine.astra_sim.route_kernel")
phase_row, SCHEDULED = route_kernel.phase_row, route_kernel.SCHEDULED
items, phases, plans, queues_now, streams = accessors(lk.ITEMS, lk.PHASES, lk.PLANS, lk.QUEUES, lk.STREAMS)


@inner
def enqueue(prog, st, r, queue, stream, left):
    """Put a stream into a queue of its rank, of whose running streams `left` have ended: in turn, or as ordered."""
    q = r * prog[lk.Z_LEVELS] * prog[lk.Z_QUEUES] + queue
    after = queues_now.tail(st, q)
    # The tail is not reset when a queue runs empty: the head decides.
    if queues_now.head(st, q) < 0:
        after = -1
    elif SCHEDULED and prog[lk.Z_ORDER] != lk.IN_TURN:
        after = place_of(prog, st, q, stream, queues_now.running(st, q) - left)
    if after < 0:
        streams.set_next(st, stream, queues_now.head(st, q))
        queues_now.set_head(st, q, stream)
    else:
        streams.set_next(st, stream, streams.next(st, after))
        streams.set_next(st, after, stream)
    if streams.next(st, stream) < 0:
        queues_now.set_tail(st, q, stream)


@inner
def row_of(prog, st, stream):
    """Return the row of the phase that a stream is in."""
    at = streams.item(st, stream)
    return phase_row(prog, st, at, stream - items.stream(prog, at), streams.phase(st, stream))


@inner
def phases_left(prog, st, stream):
    """Return the number of phases of a stream after its current one."""
    plan = items.plan(prog, streams.item(st, stream))
    return plans.phases(prog, plan) - 1 - streams.phase(st, stream)


@inner
def place_of(prog, st, q, stream, running):
    """Return the waiting stream of a queue that another one goes after, -1: before all.

    As in ASTRA-sim, streams that are equal in what they are ordered by go before those that came earlier.
    """
    order = prog[lk.Z_ORDER]
    row = row_of(prog, st, stream)
    left = phases_left(prog, st, stream)
    # Phases that neither scatter nor gather are not reordered; nor, smallest first, are streams with one
    # phase left after this.
    if phases.kind(prog, row) == lk.OTHER or (order == lk.SMALLEST and left == 1):
        return queues_now.tail(st, q)
    after = -1
    here = queues_now.head(st, q)
    last = -1
    while here >= 0:
        there = row_of(prog, st, here)
        if order == lk.SMALLEST:
            passes = phases.bytes(prog, there) < phases.bytes(prog, row)
        elif order == lk.FEWEST_LEFT:
            passes = phases_left(prog, st, here) < left
        elif after < 0:
            # The first one that waits keeps its place behind those that run.
            passes = running > 0
        # Alternate: reduce-scatters and all-gathers in turn, as long as the waiting ones already do.
        else:
            passes = (
                last != lk.OTHER
                and phases.kind(prog, there) != lk.OTHER
                and (last != phases.kind(prog, there))
            )
        if not passes:
            break
        last = phases.kind(prog, there)
        after = here
        here = streams.next(st, here)
    return after
