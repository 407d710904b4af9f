"""Run a program of profile `physical` and give its columns back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.checked import Guards
from armillary.base.jit import Mode, load
from armillary.base.tables import Layout
from armillary.base.working_memory import at_least, room
from armillary.engine.common.layout import HEAP_COLUMNS
from armillary.engine.common.run import BUDGET, FIRST_WORDS, Run
from armillary.engine.physical import layout as lk
from armillary.engine.physical.program import PhysicalProgram

Ints = NDArray[np.int64]
INTERPRETED_EVENTS = 3_000
"""Below about this many events the interpreted kernel is done before the compiled one is loaded."""


def execute(program: PhysicalProgram, mode: Mode | None = None) -> Run:
    """Run the program to the end of its events.

    Args:
        program: The program.
        mode: Which kernel; by default the interpreted one for small programs.
    """
    z = program.sizes
    if mode is None:
        mode = "interpreted" if 2 * z["states"] + 3 * z["rows"] < INTERPRETED_EVENTS else "compiled"
    kernel = load("armillary.engine.physical.fluid_kernel", mode)
    prog, _ = lk.PROGRAM.program(program.tables, mode, program.scalars)
    state, place = first_state(program, mode)
    heap = room((z["ranks"] + z["slots"]) * HEAP_COLUMNS + FIRST_WORDS, mode)
    mem = room(z["ports"] * lk.EN_COLUMNS + FIRST_WORDS, mode)
    fire(program, state, heap)
    guards, more = Guards(prog, state), True
    while more and state[lk.V_STATUS] in (lk.OK, lk.GROW):
        events, entries = (state[lk.V_A], state[lk.V_B]) if state[lk.V_STATUS] == lk.GROW else (0, 0)
        heap = at_least(heap, (state[lk.V_HEAP] + events) * HEAP_COLUMNS, mode)
        mem = at_least(mem, state[lk.V_ENTRIES] + entries, mode)
        more = kernel.run(prog, state, mem, heap, guards.budget(BUDGET))
    return Run(state, place)


def fire(program: PhysicalProgram, state: Any, heap: Any) -> None:
    """Let every rank begin at its start delay."""
    delays = program.tables["RANKS"].reshape(-1, lk.R_COLUMNS)[:, lk.R_DELAY]
    for i, r in enumerate(np.argsort(delays, kind="stable").tolist()):  # ascending: a heap
        at = i * HEAP_COLUMNS
        heap[at], heap[at + 4], heap[at + 5] = int(delays[r]), lk.EV_START, r
    state[lk.V_HEAP] = len(delays)


def first_state(
    program: PhysicalProgram, mode: Mode, layout: Layout = lk.STATE, sizes: Mapping[str, int] | None = None
) -> tuple[Any, dict[str, slice]]:
    """Return the state before the first event, and where its tables are; `sizes` are those of further tables."""
    z = program.sizes
    nodes = program.tables["NODES"].reshape(-1, lk.N_COLUMNS)
    spans = program.tables["RANKS"].reshape(-1, lk.R_COLUMNS)
    ready, slots = np.zeros(z["states"], np.int64), np.zeros((z["slots"], lk.SLOT_COLUMNS), np.int64)
    waiting, heap = slots[:, lk.SLOT_WAITING], slots[:, lk.SLOT_HEAP]
    heap[:] = program.slot_ready
    degrees = [np.zeros(0, np.int64)]
    for row in spans.tolist():
        mine = nodes[row[lk.R_NODES] : row[lk.R_NODES] + row[lk.R_COUNT]]
        degrees.append(mine[:, lk.N_INDEGREE])
        free = np.flatnonzero(mine[:, lk.N_INDEGREE] == 0)
        for slot in range(row[lk.R_SLOTS]):
            here = free[mine[free, lk.N_SLOT] == slot]
            number = row[lk.R_SLOT] + slot
            ready[heap[number] : heap[number] + len(here)] = here
            waiting[number] = len(here)
    filled = {
        "NODE_INDEGREE": np.concatenate(degrees), "READY": ready, "SLOTS": slots.ravel(),
        "LEFT": spans[:, lk.R_COUNT].copy(),
    }  # fmt: skip
    return layout.state({"dirty": z["lanes"], **z, **(sizes or {})}, filled, mode)
