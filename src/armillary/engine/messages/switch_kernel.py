"""What switches do in collectives: they add up what comes on each port, for so many chunks at a time."""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.messages.message_layout_kernel import *
from armillary.engine.transport.layout_kernel import PS

share = use("armillary.engine.physical.share_kernel")
touch_lane = share.touch_lane
rounds = use("armillary.engine.messages.round_kernel")
pair_of, size_row = rounds.pair_of, rounds.size_row


@inner
def occupy(prog, st, line_row, lane):
    """Have all switches of a line work on one more chunk; if one of them cannot, let the lane wait."""
    first = prog[SWITCHES] + prog[line_row + LI_SWITCH]
    count = prog[line_row + LI_SWITCHES]
    for i in range(first, first + count):
        if st[st[SWITCH_USED] + prog[i]] >= prog[prog[SWITCH_LIMIT] + prog[i]]:
            if st[st[LANE_WAITS] + lane] == 0:
                st[st[LANE_WAITS] + lane] = 1
                st[st[WAITING] + st[V_WAITING]] = lane
                st[V_WAITING] += 1
            return False
    for i in range(first, first + count):
        st[st[SWITCH_USED] + prog[i]] += 1
    return True


@inner
def release(prog, st, line_row):
    """A chunk is through the switches of a line; lanes that waited for any switch are looked at before others."""
    first = prog[SWITCHES] + prog[line_row + LI_SWITCH]
    count = prog[line_row + LI_SWITCHES]
    if count == 0:
        return
    for i in range(first, first + count):
        st[st[SWITCH_USED] + prog[i]] -= 1
    for i in range(st[V_WAITING]):
        lane = st[st[WAITING] + i]
        st[st[LANE_WAITS] + lane] = 0
        touch_lane(st, lane)
    st[V_WAITING] = 0


@inner
def through_switch(prog, st, mem, run, move, move_row, tick):
    """Return the tick at which a switch has dealt with a message.

    What comes from one node is added up in order, and while it comes: from when its first byte can have been there.
    """
    done = tick
    if prog[move_row + MV_REDUCE] == ADDED_IN_SWITCH:
        busy = st[PAIR_BUSY] + pair_of(prog, mem, run, move)
        size = size_row(prog, mem, run, move_row)
        begin = max(tick * PS - prog[size + SZ_WIRE], st[busy])
        end = max(begin + prog[size + SZ_REDUCE], tick * PS)
        st[busy] = end
        done = (end + PS - 1) // PS
    return done + prog[prog[PHASE_SHAPE] + mem[run + RU_PHASE] * PS_COLUMNS + PS_LATENCY]
