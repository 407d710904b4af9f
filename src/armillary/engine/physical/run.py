"""Run a program of profile `physical` and give its columns back."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.checked import Guards
from armillary.base.jit import Mode, load
from armillary.base.working_memory import at_least, room
from armillary.engine.common.flat import flat_program, flat_state
from armillary.engine.common.layout_kernel import HEAP_COLUMNS
from armillary.engine.common.run import BUDGET, FIRST_WORDS, Run
from armillary.engine.physical import fluid_layout_kernel as lk
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
    prog, _ = flat_program(program.tables, mode, program.scalars, lk)
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
    program: PhysicalProgram, mode: Mode, layout: ModuleType = lk, more: Mapping[str, int] | None = None
) -> tuple[Any, dict[str, slice]]:
    """Return the state before the first event, and where its tables are; `more` are the sizes of further tables."""
    z = program.sizes
    nodes = program.tables["NODES"].reshape(-1, lk.N_COLUMNS)
    spans = program.tables["RANKS"].reshape(-1, lk.R_COLUMNS)
    ready, sizes = np.zeros(z["states"], np.int64), np.zeros((z["slots"], 2), np.int64)
    sizes[:, 1] = program.slot_ready
    degrees = []
    for row in spans.tolist():
        mine = nodes[row[lk.R_NODES] : row[lk.R_NODES] + row[lk.R_COUNT]]
        degrees.append(mine[:, lk.N_INDEGREE])
        free = np.flatnonzero(mine[:, lk.N_INDEGREE] == 0)
        for slot in range(row[lk.R_SLOTS]):
            here = free[mine[free, lk.N_SLOT] == slot]
            number = row[lk.R_SLOT] + slot
            ready[sizes[number, 1] : sizes[number, 1] + len(here)] = here
            sizes[number, 0] = len(here)

    def none(size: int) -> Ints:
        return np.full(size, -1, np.int64)

    filled = {
        "INDEGREE": np.concatenate(degrees) if degrees else none(0), "NODE_START": none(z["states"]),
        "NODE_END": none(z["states"]), "READY": ready, "READY_SIZE": sizes.ravel(),
        "LEFT": spans[:, lk.R_COUNT].copy(), "INSTANCE_PLAN": none(z["instances"]),
        "LANE_HEAD": none(z["lanes"]), "LANE_QUEUE": none(z["lanes"]),
    }  # fmt: skip
    lanes = dict.fromkeys(
        ("LANE_REMAINING", "LANE_RATE", "LANE_SINCE", "LANE_VERSION", "LANE_ENTRY", "LANE_KEY", "LANE_DIRTY", "DIRTY",
         "LANE_RESET", "LANE_ITEM", "LANE_LINE", "STALE", "LANE_LOAD", "LANE_CHUNKS", "LANE_TAIL"), z["lanes"],
    )  # fmt: skip
    channels = dict.fromkeys(("SENT", "STARTED", "POSTED", "CAME"), z["channels"])
    empty = {
        "BUSY": z["slots"], "FINISH": z["ranks"], "TOUCHED": z["ranks"], "IS_TOUCHED": z["ranks"],
        "ITEM_LEFT": z["items"], "ITEM_INSTANCE": z["items"], "ORDINALS": z["ordinals"],
        "INSTANCE_ITEM": z["instance_items"], "ARRIVED": z["arrived"], "ROW_START": z["rows"], "ROW_END": z["rows"],
        "TRAIN_START": z["items"], "TRAIN_RATE": z["items"], "ROW_NEXT": z["rows"], "ROW_PLACE": z["rows"],
        "CHOSEN": z["chosen"] * lk.CH_COLUMNS, "ASKED": z["chosen"],
        "ASKING": z["asking"] * lk.AS_COLUMNS,
        "PORT_FIRST": z["ports"], "PORT_COUNT": z["ports"], "PORT_KEY": z["ports"], "PORT_FIRST_COUNT": z["ports"],
        "PORT_DIRTY": z["ports"], "DIRTY_PORTS": z["ports"],
        "LINE_FREE": z["lines"], "SEND_NODE": z["pairs"], "SEND_KEY": z["pairs"], "RECV_NODE": z["pairs"],
        "SERVER_FREE": z["servers"],
    }  # fmt: skip
    return flat_state({**lanes, **channels, **empty, **(more or {})}, filled, mode, layout)
