"""Which way a chunk takes through its phases, and the choice of its next level where that is made on the way.

The first member of a collective that is ready for the next level of a chunk asks; at the end of the tick the level
with the least load is chosen, for all members, one chunk after the other. The load of a level is that of its fullest
line: ticks of all that this collective has sent there and that is not through, what is under way in full.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.physical.fluid_layout_kernel import *

heaps = use("armillary.engine.common.heap_kernel")
put, take = heaps.put, heaps.take


@inner
def choice_of(prog, st, item, chunk):
    """Return the number in CHOSEN of a chunk of the collective that an item has joined."""
    comm = prog[COMMS] + prog[prog[ITEMS] + item * I_COLUMNS + I_COMM] * CO_COLUMNS
    return prog[comm + CO_CHOSEN] + st[st[ITEM_INSTANCE] + item] * prog[comm + CO_CHUNKS] + chunk


@inner
def phase_row(prog, st, item, chunk, p):
    """Return the number of the row of PHASES for a phase of a chunk."""
    plan = prog[PLANS] + prog[prog[ITEMS] + item * I_COLUMNS + I_PLAN] * PL_COLUMNS
    row = prog[prog[CHUNKS] + prog[plan + PL_CHUNKS] + chunk] + p
    if prog[plan + PL_CHOICES] > 0:
        way = st[st[CHOSEN] + choice_of(prog, st, item, chunk) * CH_COLUMNS + CH_WAY]
        row += way * prog[plan + PL_PHASES]
    return row


@inner
def must_ask(prog, st, item, chunk, p):
    """Tell whether the level of a phase is still to be chosen; if so the member waits for that."""
    plan = prog[PLANS] + prog[prog[ITEMS] + item * I_COLUMNS + I_PLAN] * PL_COLUMNS
    if p + 1 >= prog[plan + PL_CHOICES]:
        return False  # the last level is what is left
    number = choice_of(prog, st, item, chunk)
    row = st[CHOSEN] + number * CH_COLUMNS
    if p < st[row + CH_LEVELS]:
        return False
    if st[row + CH_ITEM] == 0:
        st[row + CH_ITEM] = item + 1
        put(st, st[ASKED], st[V_ASKED], number)
        st[V_ASKED] += 1
    waits = st[ASKING] + st[V_ASKING] * AS_COLUMNS
    st[waits + AS_ITEM] = item
    st[waits + AS_CHUNK] = chunk
    st[waits + AS_PHASE] = p
    st[V_ASKING] += 1
    return True


@inner
def choose(prog, st, number):
    """Choose the least loaded level for a chunk, of equal ones the first in the plain order."""
    row = st[CHOSEN] + number * CH_COLUMNS
    item = st[row + CH_ITEM] - 1
    at = prog[ITEMS] + item * I_COLUMNS
    plan = prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS
    comm = prog[COMMS] + prog[at + I_COMM] * CO_COLUMNS
    lanes = prog[comm + CO_LANE] + st[st[ITEM_INSTANCE] + item] * prog[comm + CO_LANES]
    done = st[row + CH_LEVELS]
    left = prog[plan + PL_CHOICES] - done
    ways = 1  # that begin with the same levels and one more
    for i in range(2, left):
        ways *= i
    chunk = number - choice_of(prog, st, item, 0)
    first = phase_row(prog, st, item, chunk, done)
    best = 0
    least = NEVER
    for i in range(left):
        phase = prog[PHASES] + (first + i * ways * prog[plan + PL_PHASES]) * PH_COLUMNS
        load = 0
        for line in range(prog[phase + PH_FIRST], prog[phase + PH_FIRST] + prog[phase + PH_LINES]):
            load = max(load, st[st[LANE_LOAD] + lanes + prog[phase + PH_LANE] + line])
        if load < least:
            best = i
            least = load
    st[row + CH_WAY] += best * ways
    st[row + CH_LEVELS] = done + 1
    st[row + CH_ITEM] = 0
    phase = prog[PHASES] + (first + best * ways * prog[plan + PL_PHASES]) * PH_COLUMNS
    for line in range(prog[phase + PH_FIRST], prog[phase + PH_FIRST] + prog[phase + PH_LINES]):
        st[st[LANE_LOAD] + lanes + prog[phase + PH_LANE] + line] += prog[phase + PH_TICKS]


@inner
def choose_all(prog, st):
    """Choose for every chunk for which a member has asked, in the order of collectives and chunks."""
    while st[V_ASKED] > 0:
        number = take(st, st[ASKED], st[V_ASKED])
        st[V_ASKED] -= 1
        choose(prog, st, number)
