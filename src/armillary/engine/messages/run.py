"""Run a program whose messages cross a network; returns its final state with the use of the links."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from armillary.base.allowed import Pace
from armillary.base.counts import MOST_EVENTS, check_count
from armillary.base.jit import Mode, load
from armillary.base.patience import Patience, as_arrays
from armillary.base.tables import Guards, at_least, room
from armillary.engine.common.lowered import BUDGET, FIRST_WORDS
from armillary.engine.messages import layout as lk
from armillary.engine.messages.program import MessageProgram, MessageRun
from armillary.engine.physical import layout as physical
from armillary.engine.physical.program import fire, first_state
from armillary.engine.transport import layout as tk
from armillary.engine.transport.network import lower_network
from armillary.engine.transport.transport import Room, Transport
from armillary.engine.transport.transport import first_state as first_net

Ints = NDArray[np.int64]
HOPS = 4
KERNEL = "armillary.engine.messages.loop_kernel"
CHANGE = "smaller collectives, larger packets, or network model flow or congestion"
PER_EVENT = 15e-6
"""Seconds of an interpreted event, see `_estimate`."""


def execute(program: MessageProgram, transport: Transport, mode: Mode | None = None) -> MessageRun:
    """Run the program to the end of its events.

    Args:
        program: The program.
        transport: What moves its messages.
        mode: Which kernel; by default whichever is sooner done.
    """
    z = program.sizes
    topology = program.stages[0].topology
    # Before routes are found: where messages alone are too many, these may be, too.
    _check(_estimate(program, tk.FOREVER), transport)
    transport = transport.on(program.stages, program.routes)
    events = _estimate(program, transport.grain)
    _check(events, transport)
    if transport.in_python:
        mode = "interpreted"
    # Of long routes, an event may look at all links.
    hops = np.diff(np.concatenate(program.routes.first)).mean() if len(program.pairs) else 0.0
    patience = Patience(KERNEL, transport.kernel, mode, events * PER_EVENT * max(float(hops) / HOPS, 1.0))
    mode = patience.mode
    parts = topology.planes
    table = lower_network(
        program.stages, program.routes, transport.options(topology), transport.tables(topology), parts
    )
    kernel = load(KERNEL, mode, transport.kernel)
    prog, _ = lk.PROGRAM.program(program.tables, mode, program.scalars)
    # Twice the chunk flows, because one for which there was no room is looked at once more.
    sizes = {
        "dirty": 2 * z["chunk_flows"], "block sizes": 64, "pairs of nodes": len(program.pairs),
        "switches": len(program.tables["SWITCH_LIMIT"]),
    }  # fmt: skip
    state, place = first_state(program, mode, lk.STATE, sizes)
    if mode == "interpreted":
        table = table.tolist()
    shapes = program.tables["SHAPES"].reshape(-1, lk.SH_COLUMNS)
    # The largest block that a chunk may need, see `round_kernel.allocate`.
    most = int(shapes[:, lk.SH_MEMBERS].max(initial=1)) * lk.ME_COLUMNS + lk.RU_HEAD
    block = 1 << most.bit_length()
    mem, heap = (
        room(max(1 << 16, block), mode),
        room((z["ranks"] + z["slots"]) * physical.HEAP_COLUMNS + FIRST_WORDS, mode),
    )
    net = first_net(transport, topology, mode, program.routes.count)
    # A message in parts has a row of its own besides those of the parts.
    rooms = Room(transport, mode, _at_once(program) * (parts + (parts > 1)), topology.links)
    # Address 0 means no block, so the first ones are left out.
    state[lk.V_MEMORY] = 1 << 3
    fire(program, state, heap)
    guards, more = Guards(prog, state, table, net), True
    pace = Pace(f"network model {transport.name}", events, "events", CHANGE)
    while more and state[physical.V_STATUS] in (physical.OK, physical.GROW):
        heap = at_least(heap, (state[physical.V_HEAP] + lk.EVENTS) * physical.HEAP_COLUMNS, mode)
        mem = at_least(mem, state[lk.V_MEMORY] + block, mode)
        rooms.fit(net)
        budget = guards.budget(patience.events(pace.slice(BUDGET)))
        more = kernel.run(prog, state, mem, heap, table, net, rooms.pool, rooms.queue, budget, block)
        pace.at(int(state[physical.V_EVENTS] + net[tk.N_EVENTS]))
        if patience.is_over():
            mode = rooms.mode = patience.mode
            kernel = load(KERNEL, mode, transport.kernel)
            prog, state, mem, heap, table, net = as_arrays(prog, state, mem, heap, table, net)
            rooms.pool, rooms.queue = as_arrays(rooms.pool, rooms.queue)
    patience.end()
    end = np.asarray(net, np.int64)
    # All events are over, so messages still in flight never arrive.
    lost = state[lk.V_FLYING] > 0
    blocked = transport.blocked(end, np.asarray(rooms.pool), np.asarray(table), topology) if lost else []
    return MessageRun(state, place, end, blocked, transport.abandoned(end, topology) if lost else [])


def events(run: MessageRun) -> int:
    """Return the events of the ranks and of the network together."""
    return run.scalar(physical.V_EVENTS) + int(run.net[tk.N_EVENTS])


def _check(events: int, transport: Transport) -> None:
    what = f"network model {transport.name}: events of messages and packets, by their estimate"
    check_count(events, MOST_EVENTS, what, CHANGE)


def _estimate(program: MessageProgram, grain: int) -> int:
    """Return a rough estimate of the number of events of a run whose messages move in parts of `grain` bytes."""
    z = program.sizes
    moves = int((_sends(program) * program.tables["ROUNDS"][lk.RO_REPEAT :: lk.RO_COLUMNS]).sum())
    messages = z["rows"] * moves // z["ranks"] + z["pairs"]
    largest = max(program.tables[name].max(initial=0) for name in ("SIZES", "CHANNEL_ROUTE"))
    parts = program.stages[0].topology.planes
    return z["states"] + messages * HOPS * (parts + int(largest) // grain)


def _at_once(program: MessageProgram) -> int:
    """Return the most messages that begin in one step of the loop.

    A step either begins a run, whose members each enter a round, or moves two members to their next round, whose
    messages leave if the members at their other ends wait there.
    """
    most = 1
    rounds = program.tables["ROUNDS"].reshape(-1, lk.RO_COLUMNS)
    for row in program.tables["SHAPES"].reshape(-1, lk.SH_COLUMNS)[:, : lk.SH_FIRST + 1].tolist():
        members, count, first = row
        if count:
            at, size = rounds[first], count * (members + 1)
            sends, receives = (
                np.diff(program.tables[name][at[place] : at[place] + size].reshape(count, -1), axis=1).max(
                    axis=0
                )
                for name, place in (("SENDS", lk.RO_SENDS), ("RECEIVES", lk.RO_RECEIVES))
            )
            most = max(most, int(sends.sum()), 2 * int((sends + receives).max()))
    return most


def _sends(program: MessageProgram) -> Ints:
    """Return the messages of every round of the schedules."""
    starts = program.tables["ROUNDS"][lk.RO_SENDS :: lk.RO_COLUMNS]
    sends = program.tables["SENDS"]
    ends = np.append(starts[1:], len(sends)) - 1
    found: Ints = sends[ends] - sends[starts] if len(starts) else np.zeros(0, np.int64)
    return found
