"""The route of a chunk through its phases, and the choice of its next level under `chunk_order: online-greedy`.

The first member of a collective that is ready for the next level of a chunk asks. At the end of the tick the level with
the least load is chosen for all members, one chunk after the other. The load of a level is that of its fullest line:
the ticks of all volumes that this collective has sent there and that have not ended, those in flight in full.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.physical import layout as lk

heaps = use("armillary.engine.common.heap_kernel")
put, take = heaps.put, heaps.take
queried, asking, chosen, comms = accessors(lk.QUERIED, lk.ASKING, lk.CHOSEN, lk.COMMS)
item_state, items, chunk_flows, phases = accessors(lk.ITEM_STATE, lk.ITEMS, lk.CHUNK_FLOWS, lk.PHASES)
plan_chunks, plans = accessors(lk.CHUNKS, lk.PLANS)


@inner
def choice_of(prog, st, item, chunk):
    """Return the number in CHOSEN of a chunk of the collective that an item has joined."""
    comm = items.comm(prog, item)
    return comms.chosen(prog, comm) + item_state.instance(st, item) * comms.chunks(prog, comm) + chunk


@inner
def phase_row(prog, st, item, chunk, p):
    """Return the number of the row of PHASES for a phase of a chunk."""
    plan = items.plan(prog, item)
    # Routes of a chunk lie one after the other in PHASES, each with the same number of phases.
    row = plan_chunks.phase(prog, plans.chunks(prog, plan) + chunk) + p
    if plans.choices(prog, plan) > 0:
        route = chosen.route(st, choice_of(prog, st, item, chunk))
        row += route * plans.phases(prog, plan)
    return row


@inner
def must_ask(prog, st, item, chunk, p):
    """Tell whether the level of a phase is still to be chosen; if so the member waits for that."""
    plan = items.plan(prog, item)
    if p + 1 >= plans.choices(prog, plan):
        return False  # the last level is what is left
    number = choice_of(prog, st, item, chunk)
    # Another member asked first, and the choice holds for all.
    if p < chosen.levels(st, number):
        return False
    # A heap by number: the order of choices must not depend on which member asked first within the tick.
    if chosen.item(st, number) == 0:
        chosen.set_item(st, number, item + 1)
        put(st, queried.at_chunk(st, 0), st[lk.V_QUERIED], number)
        st[lk.V_QUERIED] += 1
    asking.set_item(st, st[lk.V_ASKING], item)
    asking.set_chunk(st, st[lk.V_ASKING], chunk)
    asking.set_phase(st, st[lk.V_ASKING], p)
    st[lk.V_ASKING] += 1
    return True


@inner
def choose(prog, st, number):
    """Choose the least loaded level for a chunk, of equal ones the first in the plain order."""
    item = chosen.item(st, number) - 1
    plan = items.plan(prog, item)
    comm = items.comm(prog, item)
    first_chunk_flow = comms.chunk_flow(prog, comm) + item_state.instance(st, item) * comms.chunk_flows(
        prog, comm
    )
    done = chosen.levels(st, number)
    left = plans.choices(prog, plan) - done
    # Routes are permutations in lexicographic order: (left - 1)! of them begin with the levels chosen and one more.
    routes = 1
    for i in range(2, left):
        routes *= i
    chunk = number - choice_of(prog, st, item, 0)
    first = phase_row(prog, st, item, chunk, done)
    best = 0
    least = lk.NEVER
    for i in range(left):
        phase = first + i * routes * plans.phases(prog, plan)
        load = 0
        for line in range(phases.first(prog, phase), phases.first(prog, phase) + phases.lines(prog, phase)):
            load = max(load, chunk_flows.load(st, first_chunk_flow + phases.chunk_flow(prog, phase) + line))
        # Strictly less: of equal loads the first level in the plain order wins.
        if load < least:
            best = i
            least = load
    chosen.add_route(st, number, best * routes)
    chosen.set_levels(st, number, done + 1)
    chosen.set_item(st, number, 0)
    # The volume of this chunk counts from now on, so that the next choice within this tick prefers another level.
    phase = first + best * routes * plans.phases(prog, plan)
    for line in range(phases.first(prog, phase), phases.first(prog, phase) + phases.lines(prog, phase)):
        chunk_flows.add_load(
            st, first_chunk_flow + phases.chunk_flow(prog, phase) + line, phases.ticks(prog, phase)
        )


@inner
def choose_all(prog, st):
    """Choose the next level of every chunk for which a member has asked, in the order of collectives and chunks."""
    while st[lk.V_QUERIED] > 0:
        number = take(st, queried.at_chunk(st, 0), st[lk.V_QUERIED])
        st[lk.V_QUERIED] -= 1
        choose(prog, st, number)
