"""Which way each chunk of a collective goes: its phases, and for each the queue, the direction or tree, and its turn.

`prog` is the program and `st` the state (see `layout_kernel`).
"""

from __future__ import annotations

from armillary.base.jit import in_variant, inner
from armillary.engine.common.layout_kernel import *

SCHEDULED = in_variant("contention") or in_variant("scheduled")
"""Chunks may go several ways, and queues may be in another order than first come, first served."""


@inner
def phase_row(prog, st, at, chunk, p):
    """Return the address of the row of phase p of a chunk of the item at address `at`."""
    plan = prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS
    if SCHEDULED and prog[plan + PL_ROUTES] >= 0:
        here = prog[at + I_ROW] + chunk * prog[plan + PL_PHASES] + p
        return prog[PHASES] + st[st[ROW_PHASE] + here] * PH_COLUMNS
    return prog[PHASES] + (prog[plan + PL_FIRST] + p) * PH_COLUMNS


@inner
def turn_of(prog, st, at, row, chunk, p, base, count, kept):
    """Return the how-many-eth one a phase is at its queues (or trees): from its item's `base`, or as it was `kept`."""
    if SCHEDULED:
        plan = prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS
        if prog[plan + PL_ROUTES] >= 0:
            return st[st[kept] + prog[at + I_ROW] + chunk * prog[plan + PL_PHASES] + p]
    return st[st[base] + prog[at + I_BASE] + p] + chunk * prog[row + count]


@inner
def queue_of(prog, st, at, chunk, p):
    """Return the queue of one phase of one chunk: queues of a level are used in turn."""
    row = phase_row(prog, st, at, chunk, p)
    number = turn_of(prog, st, at, row, chunk, p, QUEUE_BASE, PH_COUNT, ROW_QUEUE)
    queues = prog[Z_QUEUES]
    family = prog[row + PH_FAMILY]
    half = queues >> 1
    if queues == 1:
        local = 0
    elif family == ALL:
        local = number % queues
    elif family == FIRST:
        local = number % half
    else:
        local = half + number % (queues - half)
    return prog[row + PH_LEVEL] * queues + local


@inner
def cost_of(prog, st, at, row, chunk, p):
    """Return the phase cost: the variant is the direction of the queue, or which of two trees."""
    if prog[row + PH_TREE] >= 0:
        number = turn_of(prog, st, at, row, chunk, p, TREE_BASE, PH_TREE_COUNT, ROW_TREE)
        variant = number & 1
    else:
        family = prog[row + PH_FAMILY]
        queues = prog[Z_QUEUES]
        variant = 1 if family == LAST else 0
        if family == ALL and queues > 1:
            number = turn_of(prog, st, at, row, chunk, p, QUEUE_BASE, PH_COUNT, ROW_QUEUE)
            variant = 1 if number % queues >= queues >> 1 else 0
    return prog[row + (PH_COST1 if variant == 1 else PH_COST0)]


@inner
def after_kept(prog, st, r, at, plan, instance):
    """Return the routes of a collective, given whether work of an earlier one is left over.

    Rank 0 forgets that work when it starts a collective, but who starts it first chooses the routes for all.
    """
    if r == 0:
        st[st[KEPT]] = -1
    if prog[plan + PL_GREEDY] == 0:
        return prog[plan + PL_ROUTES]
    routes = st[st[INSTANCE_ROUTES] + instance]
    if routes < 0:
        routes = prog[plan + PL_ROUTES]
        kept = st[st[KEPT]]
        if kept >= 0:
            routes = prog[prog[AFTER] + prog[at + I_PLAN] * prog[Z_PLANS] + kept]
            if routes < 0:
                st[V_STATUS] = CARRIED
                st[V_B] = kept
        st[st[KEPT]] = prog[at + I_PLAN]
        st[st[INSTANCE_ROUTES] + instance] = routes
    return routes


@inner
def count_ways(prog, st, r, at, plan, routes, chunks):
    """Note for each chunk of a collective which way it goes, and its turn at the queues and trees there."""
    phases = prog[plan + PL_PHASES]
    period = prog[routes]
    levels = prog[Z_LEVELS]
    own = st[COUNTERS] + r * (levels * 3 + prog[Z_TREES])
    turn = st[st[TURN] + r] if prog[plan + PL_IN_TURN] == 1 else 0
    for chunk in range(chunks):
        way = prog[routes + 1 + (turn + chunk) % period]
        for p in range(phases):
            here = prog[at + I_ROW] + chunk * phases + p
            number = prog[plan + PL_FIRST] + way * phases + p
            row = prog[PHASES] + number * PH_COLUMNS
            st[st[ROW_PHASE] + here] = number
            counter = own + prog[row + PH_LEVEL] * 3 + prog[row + PH_FAMILY]
            st[st[ROW_QUEUE] + here] = st[counter]
            st[counter] += 1
            if prog[row + PH_TREE] >= 0:
                counter = own + levels * 3 + prog[row + PH_TREE]
                st[st[ROW_TREE] + here] = st[counter]
                st[counter] += 1
    if prog[plan + PL_IN_TURN] == 1:
        st[st[TURN] + r] = (turn + chunks) % period


@inner
def count_way(prog, st, r, at, plan):
    """Note the turn of the first chunk of a collective at the queues and trees of each of its phases."""
    chunks = prog[at + I_CHUNKS]
    phases = prog[plan + PL_PHASES]
    first = prog[plan + PL_FIRST]
    base = prog[at + I_BASE]
    levels = prog[Z_LEVELS]
    own = r * (levels * 3 + prog[Z_TREES])
    for p in range(phases):
        row = prog[PHASES] + (first + p) * PH_COLUMNS
        counter = own + prog[row + PH_LEVEL] * 3 + prog[row + PH_FAMILY]
        st[st[QUEUE_BASE] + base + p] = st[st[COUNTERS] + counter] + prog[row + PH_INDEX]
        if prog[row + PH_TREE] >= 0:
            counter = own + levels * 3 + prog[row + PH_TREE]
            st[st[TREE_BASE] + base + p] = st[st[COUNTERS] + counter] + prog[row + PH_TREE_INDEX]
    for p in range(phases):
        row = prog[PHASES] + (first + p) * PH_COLUMNS
        if prog[row + PH_INDEX] == 0:
            counter = own + prog[row + PH_LEVEL] * 3 + prog[row + PH_FAMILY]
            st[st[COUNTERS] + counter] += chunks * prog[row + PH_COUNT]
        if prog[row + PH_TREE] >= 0 and prog[row + PH_TREE_INDEX] == 0:
            counter = own + levels * 3 + prog[row + PH_TREE]
            st[st[COUNTERS] + counter] += chunks * prog[row + PH_TREE_COUNT]
