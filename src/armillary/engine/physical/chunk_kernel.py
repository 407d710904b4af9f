"""Chunks of collectives that go from phase to phase, and the order in which a lane serves them."""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.physical.fluid_layout_kernel import *

choice = use("armillary.engine.physical.choice_kernel")
phase_row, must_ask, choose_all = choice.phase_row, choice.must_ask, choice.choose_all
touch_lane = use("armillary.engine.physical.share_kernel").touch_lane
complete_node = use("armillary.engine.physical.rank_kernel").complete_node
trains = use("armillary.engine.physical.train_kernel")
plan_of, phase_of = trains.plan_of, trains.phase_of


@inner
def order_of(prog, priority, tick):
    """Return the place of a lane in the global order: lowest is served first, 0 means none yet."""
    return priority * (1 << 50) + prog[Z_SIGN] * (tick + 1)


@inner
def before(st, places, a, b, phases):
    """Tell whether a volume comes before another in the list of its lane: by place, then phase, then chunk."""
    if st[places + a] != st[places + b]:
        return st[places + a] < st[places + b]
    if a % phases != b % phases:
        return a % phases < b % phases
    return a < b


@inner
def insert(prog, st, lane, item, key, phases, place):
    """Insert a waiting volume into a lane's list.

    Of one place, what other dimensions wait for comes first: with the lowest chunk first, a faster dimension could
    bring chunks back so early that they hold up those that have not left yet.
    """
    first = prog[prog[ITEMS] + item * I_COLUMNS + I_ROW]
    rows = st[ROW_NEXT] + first
    places = st[ROW_PLACE] + first
    st[places + key] = place
    at = st[st[LANE_QUEUE] + lane]
    if at < 0 or before(st, places, key, at, phases):
        st[rows + key] = at
        st[st[LANE_QUEUE] + lane] = key
        if at < 0:
            st[st[LANE_TAIL] + lane] = key
        return
    tail = st[st[LANE_TAIL] + lane]
    if before(st, places, tail, key, phases):
        # As a rule, what comes last is served last.
        st[rows + tail] = key
        st[rows + key] = -1
        st[st[LANE_TAIL] + lane] = key
        return
    while st[rows + at] >= 0 and before(st, places, st[rows + at], key, phases):
        at = st[rows + at]
    st[rows + key] = st[rows + at]
    st[rows + at] = key


@inner
def phase_at(prog, st, item, key):
    """Return the address of the phase of the chunk in `key`."""
    plan = prog[PLANS] + prog[prog[ITEMS] + item * I_COLUMNS + I_PLAN] * PL_COLUMNS
    phases = prog[plan + PL_PHASES]
    return prog[PHASES] + phase_row(prog, st, item, key // phases, key % phases) * PH_COLUMNS


@inner
def arrive(prog, st, item, chunk, row, tick):
    """One rank is ready for a phase of a chunk; the last one of its line gets its lane, others -1."""
    at = prog[ITEMS] + item * I_COLUMNS
    plan = prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS
    comm = prog[COMMS] + prog[at + I_COMM] * CO_COLUMNS
    number = prog[prog[RING_ENTRY] + 2 * (prog[row + PH_RING] + prog[at + I_LOCAL])]
    line = prog[LINE_ROWS] + number * LN_COLUMNS
    ordinal = st[st[ITEM_INSTANCE] + item]
    count = st[ARRIVED] + prog[comm + CO_ARRIVED] + ordinal * prog[comm + CO_STRIDE]
    count += chunk * prog[plan + PL_LINES] + prog[row + PH_LINE] + number
    st[count] += 1
    if st[count] < prog[line + LN_MACHINES]:
        return -1
    lane = prog[comm + CO_LANE] + ordinal * prog[comm + CO_LANES] + prog[row + PH_LANE] + number
    members = prog[comm + CO_ITEMS] + ordinal * prog[comm + CO_REPS]
    first = st[st[INSTANCE_ITEM] + members + prog[prog[LINES] + prog[line + LN_LOCAL]]]
    st[st[LANE_LINE] + lane] = number
    st[st[LANE_ITEM] + lane] = first
    if st[st[LANE_KEY] + lane] == 0:
        urgent = prog[at + I_PRIORITY]
        for i in range(prog[line + LN_MACHINES]):
            other = st[st[INSTANCE_ITEM] + members + prog[prog[LINES] + prog[line + LN_LOCAL] + i]]
            urgent = min(urgent, prog[prog[ITEMS] + other * I_COLUMNS + I_PRIORITY])
        st[st[LANE_KEY] + lane] = order_of(prog, urgent, tick)
    return lane


@inner
def enter_train(prog, st, item, tick):
    """One rank is ready for all chunks of a train."""
    plan = plan_of(prog, item)
    lane = arrive(prog, st, item, 0, phase_of(prog, plan, 0), tick)
    if lane >= 0:
        st[st[LANE_QUEUE] + lane] = 0
        touch_lane(st, lane)


@inner
def enter(prog, st, heap, item, chunk, p, tick):
    """One rank is ready for a phase of a chunk; the last one of its line puts it on the lane."""
    if must_ask(prog, st, item, chunk, p):
        return
    plan = plan_of(prog, item)
    phases = prog[plan + PL_PHASES]
    row = prog[PHASES] + phase_row(prog, st, item, chunk, p) * PH_COLUMNS
    lane = arrive(prog, st, item, chunk, row, tick)
    if lane < 0:
        return
    if p + 1 >= prog[plan + PL_CHOICES]:
        st[st[LANE_LOAD] + lane] += prog[row + PH_TICKS]  # else it was when its level was chosen
    place = 0
    if prog[Z_WITHIN] == FIFO:
        place = tick
    elif prog[Z_WITHIN] == SMALLEST:
        place = prog[row + PH_VOLUME]
    insert(prog, st, lane, st[st[LANE_ITEM] + lane], chunk * phases + p, phases, place)
    touch_lane(st, lane)


@inner
def enter_asking(prog, st, heap, tick):
    """Let those enter that waited for the choice of a level."""
    choose_all(prog, st)
    for i in range(st[V_ASKING]):
        waits = st[ASKING] + i * AS_COLUMNS
        enter(prog, st, heap, st[waits + AS_ITEM], st[waits + AS_CHUNK], st[waits + AS_PHASE], tick)
    st[V_ASKING] = 0


@inner
def phase_done(prog, st, heap, lane, key, tick):
    """Every member of a line has finished a phase of a chunk, or a train: they enter the next, or end."""
    line = prog[LINE_ROWS] + st[st[LANE_LINE] + lane] * LN_COLUMNS
    at = prog[ITEMS] + st[st[LANE_ITEM] + lane] * I_COLUMNS
    comm = prog[COMMS] + prog[at + I_COMM] * CO_COLUMNS
    plan = prog[PLANS] + prog[at + I_PLAN] * PL_COLUMNS
    phases = prog[plan + PL_PHASES]
    train = prog[plan + PL_TRAIN] > 0
    ordinal = st[st[ITEM_INSTANCE] + st[st[LANE_ITEM] + lane]]
    members = prog[comm + CO_ITEMS] + ordinal * prog[comm + CO_REPS]
    begun = st[st[ROW_START] + prog[at + I_ROW] + key]
    for i in range(prog[line + LN_MACHINES]):
        item = st[st[INSTANCE_ITEM] + members + prog[prog[LINES] + prog[line + LN_LOCAL] + i]]
        row = prog[ITEMS] + item * I_COLUMNS
        if train:
            complete_node(prog, st, prog[row + I_RANK], prog[row + I_NODE], tick)
            continue
        st[st[ROW_START] + prog[row + I_ROW] + key] = begun
        st[st[ROW_END] + prog[row + I_ROW] + key] = tick
        if key % phases + 1 < phases:
            enter(prog, st, heap, item, key // phases, key % phases + 1, tick)
        else:
            st[st[ITEM_LEFT] + item] -= 1
            if st[st[ITEM_LEFT] + item] == 0:
                complete_node(prog, st, prog[row + I_RANK], prog[row + I_NODE], tick)
