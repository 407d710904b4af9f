"""What switches do in collectives: they add up what comes on each port, for so many chunks at a time."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.messages import layout as lk
from armillary.engine.transport import layout as tk

share = use("armillary.engine.physical.share_kernel")
touch_chunk_flow = share.touch_chunk_flow
round_kernel = use("armillary.engine.messages.round_kernel")
pair_of, size_row = round_kernel.pair_of, round_kernel.size_row
chunk_flow_runs, limits, line_routes, moves = accessors(
    lk.CHUNK_FLOW_RUNS, lk.SWITCH_LIMIT, lk.LINE_ROUTES, lk.MOVES
)
pair_state, phase_shapes, runs, sizes = accessors(lk.PAIR_STATE, lk.PHASE_SHAPE, lk.RUN, lk.SIZES)
switch_state, switches, waiting = accessors(lk.SWITCH_STATE, lk.SWITCHES, lk.WAITING)


@inner
def occupy(prog, st, line_row, chunk_flow):
    """Have all switches of a line work on one more chunk; if one of them cannot, let the chunk flow wait."""
    first = line_routes.switch(prog, line_row)
    count = line_routes.switches(prog, line_row)
    for i in range(first, first + count):
        switch = switches.switch(prog, i)
        if switch_state.used(st, switch) >= limits.limit(prog, switch):
            if chunk_flow_runs.waits(st, chunk_flow) == 0:
                chunk_flow_runs.set_waits(st, chunk_flow, 1)
                waiting.set_chunk_flow(st, st[lk.V_WAITING], chunk_flow)
                st[lk.V_WAITING] += 1
            return False
    for i in range(first, first + count):
        switch_state.add_used(st, switches.switch(prog, i), 1)
    return True


@inner
def release(prog, st, line_row):
    """A chunk is through the switches of a line; chunk flows that waited for any switch are looked at before others."""
    first = line_routes.switch(prog, line_row)
    count = line_routes.switches(prog, line_row)
    if count == 0:
        return
    for i in range(first, first + count):
        switch_state.add_used(st, switches.switch(prog, i), -1)
    for i in range(st[lk.V_WAITING]):
        chunk_flow = waiting.chunk_flow(st, i)
        chunk_flow_runs.set_waits(st, chunk_flow, 0)
        touch_chunk_flow(st, chunk_flow)
    st[lk.V_WAITING] = 0


@inner
def through_switch(prog, st, mem, run, move, move_row, tick):
    """Return the tick at which a switch has dealt with a message.

    What comes from one node is added up in order, and while it comes: from when its first byte can have been there.
    """
    done = tick
    if moves.reduce(prog, move_row) == lk.ADDED_IN_SWITCH:
        pair = pair_of(prog, mem, run, move)
        size = size_row(prog, mem, run, move_row)
        begin = max(tick * tk.PS - sizes.edge(prog, size), pair_state.busy(st, pair))
        end = max(begin + sizes.reduce(prog, size), tick * tk.PS)
        pair_state.set_busy(st, pair, end)
        done = (end + tk.PS - 1) // tk.PS
    return done + phase_shapes.latency(prog, runs.phase(mem, run))
