"""Switches that reduce: they add up what arrives on their ports, for a limited number of chunks at a time.

The limit is `in_network.operations`. A chunk holds one place in every switch of its line from its start to its end.
"""

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
    """Take a place for a chunk in all switches of a line, or let the chunk flow wait; returns whether it has them."""
    first = line_routes.switch(prog, line_row)
    count = line_routes.switches(prog, line_row)
    # All or nothing: two lines that each held one switch and waited for that of the other would deadlock.
    for i in range(first, first + count):
        switch = switches.switch(prog, i)
        if switch_state.used(st, switch) >= limits.limit(prog, switch):
            # At most once in the list, which has one row per chunk flow.
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
    """Free the places of a chunk in the switches of a line, and touch the chunk flows that wait for any switch."""
    first = line_routes.switch(prog, line_row)
    count = line_routes.switches(prog, line_row)
    if count == 0:
        return
    for i in range(first, first + count):
        switch_state.add_used(st, switches.switch(prog, i), -1)
    # In the order in which they began to wait. Those that still do not fit queue up again in that order.
    for i in range(st[lk.V_WAITING]):
        chunk_flow = waiting.chunk_flow(st, i)
        chunk_flow_runs.set_waits(st, chunk_flow, 0)
        touch_chunk_flow(st, chunk_flow)
    st[lk.V_WAITING] = 0


@inner
def through_switch(prog, st, mem, run, move, move_row, tick):
    """Return the tick at which a switch has processed a message.

    Messages from one node are added up one after the other, each while it arrives: from the earliest time at which its
    first byte can have been there.
    """
    done = tick
    if moves.reduce(prog, move_row) == lk.ADDED_IN_SWITCH:
        pair = pair_of(prog, mem, run, move)
        size = size_row(prog, mem, run, move_row)
        # `edge` is the least time that the message takes on a link: so long before its last byte its first
        # one came.
        begin = max(tick * tk.PS - sizes.edge(prog, size), pair_state.busy(st, pair))
        # A fast switch still waits for the last byte.
        end = max(begin + sizes.reduce(prog, size), tick * tk.PS)
        pair_state.set_busy(st, pair, end)
        done = (end + tk.PS - 1) // tk.PS
    return done + phase_shapes.latency(prog, runs.phase(mem, run))
