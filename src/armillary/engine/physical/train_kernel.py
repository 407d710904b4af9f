"""Trains: the chunks of a collective of one phase, which follow one another through the same ports.

A lane serves them in their order and keeps its rate from one to the next, so when each is through follows from when
the rate changes. There is one event for a whole train. As long as the rate has never changed the train is whole, and
its rows follow from its start and its rate; once it has, rows are written chunk by chunk.
"""

from __future__ import annotations

from armillary.base.jit import inner
from armillary.engine.physical.fluid_layout_kernel import *


@inner
def plan_of(prog, item):
    """Return the address of the plan of a collective."""
    return prog[PLANS] + prog[prog[ITEMS] + item * I_COLUMNS + I_PLAN] * PL_COLUMNS


@inner
def phase_of(prog, plan, chunk):
    """Return the address of the phase of a chunk of a plan of one phase."""
    return prog[PHASES] + prog[prog[CHUNKS] + prog[plan + PL_CHUNKS] + chunk] * PH_COLUMNS


@inner
def ticks_of(volume, rate):
    """Return how long a volume takes."""
    return (max(volume, 0) + rate - 1) // rate


@inner
def rest(prog, st, lane, rate):
    """Return how long the chunks behind the head of a train take at a rate."""
    plan = plan_of(prog, st[st[LANE_ITEM] + lane])
    last = st[st[LANE_CHUNKS] + lane] - 1
    head = st[st[LANE_HEAD] + lane]
    bigger = max(0, prog[plan + PL_BIGGER] - head - 1)
    ticks = (last - head - bigger) * ticks_of(prog[phase_of(prog, plan, last) + PH_VOLUME], rate)
    if bigger > 0:
        ticks += bigger * ticks_of(prog[phase_of(prog, plan, 0) + PH_VOLUME], rate)
    return ticks


@inner
def advance_train(prog, st, lane, tick):
    """Write down which chunks of a train were through by a tick, and what is left of its head."""
    rate = st[st[LANE_RATE] + lane]
    since = st[st[LANE_SINCE] + lane]
    st[st[LANE_SINCE] + lane] = tick
    if rate == 0:
        return
    item = st[st[LANE_ITEM] + lane]
    plan = plan_of(prog, item)
    last = st[st[LANE_CHUNKS] + lane] - 1
    row = prog[prog[ITEMS] + item * I_COLUMNS + I_ROW]
    chunk = st[st[LANE_HEAD] + lane]
    end = since + ticks_of(st[st[LANE_REMAINING] + lane], rate)
    while chunk < last and end <= tick:
        st[st[ROW_END] + row + chunk] = end + prog[phase_of(prog, plan, chunk) + PH_LATENCY]
        chunk += 1
        st[st[ROW_START] + row + chunk] = end
        st[st[LANE_REMAINING] + lane] = prog[phase_of(prog, plan, chunk) + PH_VOLUME]
        since = end
        end += ticks_of(st[st[LANE_REMAINING] + lane], rate)
    st[st[LANE_HEAD] + lane] = chunk
    st[st[LANE_REMAINING] + lane] -= rate * (tick - since)


@inner
def end_train(prog, st, lane, tick):
    """Note when the chunks of a train went; returns the tick at which the last of them has arrived."""
    item = st[st[LANE_ITEM] + lane]
    at = prog[ITEMS] + item * I_COLUMNS
    plan = plan_of(prog, item)
    last = st[st[LANE_CHUNKS] + lane] - 1
    bigger = prog[plan + PL_BIGGER]
    done = tick + prog[phase_of(prog, plan, last) + PH_LATENCY]
    line = prog[LINE_ROWS] + st[st[LANE_LINE] + lane] * LN_COLUMNS
    comm = prog[COMMS] + prog[at + I_COMM] * CO_COLUMNS
    members = prog[comm + CO_ITEMS] + st[st[ITEM_INSTANCE] + item] * prog[comm + CO_REPS]
    whole = st[st[LANE_QUEUE] + lane] == WHOLE
    row = prog[at + I_ROW]
    if whole:
        rate = st[st[LANE_RATE] + lane]
        begun = st[st[LANE_SINCE] + lane]
        if bigger > 0:
            # What a bigger chunk reduces may take a little longer.
            phase = phase_of(prog, plan, 0)
            through = begun + bigger * ticks_of(prog[phase + PH_VOLUME], rate)
            done = max(done, through + prog[phase + PH_LATENCY])
    else:
        advance_train(prog, st, lane, tick)
        st[st[ROW_END] + row + last] = done
        if bigger > 0:
            done = max(done, st[st[ROW_END] + row + bigger - 1])
    for i in range(prog[line + LN_MACHINES]):
        other = st[st[INSTANCE_ITEM] + members + prog[prog[LINES] + prog[line + LN_LOCAL] + i]]
        if whole:
            st[st[TRAIN_START] + other] = begun
            st[st[TRAIN_RATE] + other] = rate
        elif other != item:
            own = prog[prog[ITEMS] + other * I_COLUMNS + I_ROW]
            for chunk in range(last + 1):
                st[st[ROW_START] + own + chunk] = st[st[ROW_START] + row + chunk]
                st[st[ROW_END] + own + chunk] = st[st[ROW_END] + row + chunk]
    return done
