"""The route of each chunk of a collective: its phases, and for each the queue, the direction or tree, and its turn.

`prog` is the program and `st` the state (see `layout`).
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import in_variant, inner
from armillary.engine.astra_sim import layout as lk

after, bases, counters, instances, items = accessors(lk.AFTER, lk.BASES, lk.COUNTERS, lk.INSTANCES, lk.ITEMS)
retained_work, phases, plans, rank_state = accessors(lk.RETAINED, lk.PHASES, lk.PLANS, lk.RANK_STATE)
routed, route_rows = accessors(lk.ROUTED, lk.ROUTES)


SCHEDULED = in_variant("contention") or in_variant("scheduled")
"""Chunks may take several routes, and queues may be in another order than first come, first served."""


@inner
def phase_row(prog, st, at, chunk, p):
    """Return the address of the row of phase p of a chunk of the item at address `at`."""
    plan = items.plan(prog, at)
    # Routed chunks noted the row when the collective was issued.
    if SCHEDULED and plans.routes(prog, plan) >= 0:
        here = items.row(prog, at) + chunk * plans.phases(prog, plan) + p
        return routed.phase(st, here)
    return plans.first(prog, plan) + p


@inner
def turn_of(prog, st, at, row, chunk, p, tree):
    """Return the turn of a phase at its queues or trees: counted on from the first chunk, or as noted per chunk."""
    if SCHEDULED:
        plan = items.plan(prog, at)
        if plans.routes(prog, plan) >= 0:
            here = items.row(prog, at) + chunk * plans.phases(prog, plan) + p
            return routed.tree(st, here) if tree else routed.queue(st, here)
    base = items.base(prog, at) + p
    if tree:
        return bases.tree_base(st, base) + chunk * phases.tree_count(prog, row)
    return bases.queue_base(st, base) + chunk * phases.count(prog, row)


@inner
def queue_of(prog, st, at, chunk, p):
    """Return the queue of one phase of one chunk: queues of a level are used in turn."""
    # The direction follows from the queue, so the turn also decides that.
    row = phase_row(prog, st, at, chunk, p)
    number = turn_of(prog, st, at, row, chunk, p, False)
    queues = prog[lk.Z_QUEUES]
    family = phases.family(prog, row)
    half = queues >> 1
    if queues == 1:
        local = 0
    elif family == lk.ALL:
        local = number % queues
    elif family == lk.FIRST:
        local = number % half
    else:
        local = half + number % (queues - half)
    return phases.level(prog, row) * queues + local


@inner
def cost_of(prog, st, at, row, chunk, p):
    """Return the phase cost: the variant is the direction of the queue, or which of two trees."""
    # Two trees alternate, chunk by chunk.
    if phases.tree(prog, row) >= 0:
        number = turn_of(prog, st, at, row, chunk, p, True)
        variant = number & 1
    else:
        family = phases.family(prog, row)
        queues = prog[lk.Z_QUEUES]
        variant = 1 if family == lk.LAST else 0
        if family == lk.ALL and queues > 1:
            number = turn_of(prog, st, at, row, chunk, p, False)
            variant = 1 if number % queues >= queues >> 1 else 0
    return phases.cost1(prog, row) if variant == 1 else phases.cost0(prog, row)


@inner
def after_retained(prog, st, r, at, plan, instance):
    """Return the routes of a collective, given whether work of an earlier one is left over.

    Rank 0 forgets that work when it starts a collective, but who starts it first chooses the routes for all.
    """
    # Rank 0 forgets even for collectives that are not greedy.
    if r == 0:
        retained_work.set_plan(st, 0, -1)
    if plans.greedy(prog, plan) == 0:
        return plans.routes(prog, plan)
    # -1: nobody has begun this instance yet. Otherwise the first member has chosen the routes for all.
    routes = instances.routes(st, instance)
    if routes < 0:
        routes = plans.routes(prog, plan)
        retained = retained_work.plan(st, 0)
        if retained >= 0:
            # A pair that was not lowered: the run stops, is lowered with it, and starts again (`settled`).
            routes = after.routes(prog, items.plan(prog, at) * prog[lk.Z_PLANS] + retained)
            if routes < 0:
                st[lk.V_STATUS] = lk.CARRIED
                st[lk.V_B] = retained
        retained_work.set_plan(st, 0, items.plan(prog, at))
        instances.set_routes(st, instance, routes)
    return routes


@inner
def count_routes(prog, st, r, at, plan, routes, chunks):
    """Note for each chunk of a collective its route, and its turn at the queues and trees there."""
    steps = plans.phases(prog, plan)
    period = route_rows.route(prog, routes)
    levels = prog[lk.Z_LEVELS]
    # Counters of a rank: 3 families of queues for each dimension, then its trees.
    own = r * (levels * 3 + prog[lk.Z_TREES])
    turn = rank_state.turn(st, r) if plans.in_turn(prog, plan) == 1 else 0
    for chunk in range(chunks):
        route = route_rows.route(prog, routes + 1 + (turn + chunk) % period)
        for p in range(steps):
            here = items.row(prog, at) + chunk * steps + p
            number = plans.first(prog, plan) + route * steps + p
            routed.set_phase(st, here, number)
            counter = own + phases.level(prog, number) * 3 + phases.family(prog, number)
            # The turn before the addition: turns count from 0.
            routed.set_queue(st, here, counters.add_turn(st, counter, 1) - 1)
            if phases.tree(prog, number) >= 0:
                counter = own + levels * 3 + phases.tree(prog, number)
                routed.set_tree(st, here, counters.add_turn(st, counter, 1) - 1)
    if plans.in_turn(prog, plan) == 1:
        rank_state.set_turn(st, r, (turn + chunks) % period)


@inner
def count_route(prog, st, r, at, plan):
    """Note the turn of the first chunk of a collective at the queues and trees of each of its phases."""
    chunks = items.chunks(prog, at)
    steps = plans.phases(prog, plan)
    first = plans.first(prog, plan)
    base = items.base(prog, at)
    levels = prog[lk.Z_LEVELS]
    own = r * (levels * 3 + prog[lk.Z_TREES])
    # All phases read the counters before any advances them: those that share queues take neighbouring turns.
    for p in range(steps):
        row = first + p
        counter = own + phases.level(prog, row) * 3 + phases.family(prog, row)
        bases.set_queue_base(st, base + p, counters.turn(st, counter) + phases.index(prog, row))
        if phases.tree(prog, row) >= 0:
            counter = own + levels * 3 + phases.tree(prog, row)
            bases.set_tree_base(st, base + p, counters.turn(st, counter) + phases.tree_index(prog, row))
    for p in range(steps):
        row = first + p
        # The first phase of a family advances the counter for all of them.
        if phases.index(prog, row) == 0:
            counter = own + phases.level(prog, row) * 3 + phases.family(prog, row)
            counters.add_turn(st, counter, chunks * phases.count(prog, row))
        if phases.tree(prog, row) >= 0 and phases.tree_index(prog, row) == 0:
            counter = own + levels * 3 + phases.tree(prog, row)
            counters.add_turn(st, counter, chunks * phases.tree_count(prog, row))
