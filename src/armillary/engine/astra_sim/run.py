"""Run a lowered program: lay out its arrays, drive the kernel, and give its columns back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.allowed import Pace
from armillary.base.jit import Mode, load
from armillary.base.patience import Patience, as_arrays
from armillary.base.tables import Guards, Part, at_least, room
from armillary.engine.astra_sim import layout as lk
from armillary.engine.astra_sim.congestion.start import fire, first_rows
from armillary.engine.astra_sim.program import Lowered
from armillary.engine.common.lowered import BUDGET, FIRST_WORDS, Run

Ints = NDArray[np.int64]
PER_EVENT = 8e-6
"""Seconds of an interpreted event, see `estimate`."""


def execute(lowered: Lowered, mode: Mode | None = None) -> Run:
    """Run the program to the end of its events.

    Args:
        lowered: The program.
        mode: Which kernel; by default whichever is sooner done.
    """
    links, ranks, listed = lowered.sizes["links"], lowered.sizes["ranks"], lowered.listed
    name, columns = "armillary.engine.astra_sim.step_kernel", lk.HEAP_COLUMNS
    if listed:
        name, columns = "armillary.engine.astra_sim.congestion.loop_kernel", lk.QUEUE_COLUMNS
    events = estimate(lowered)
    patience = Patience(name, lowered.variant, mode, events * PER_EVENT)
    pace = Pace("profile astra-sim", events, "events", "fewer ranks, nodes or chunks")
    mode = patience.mode
    kernel = load(name, mode, lowered.variant)
    tables: dict[str, Part] = {**lowered.tables, "COSTS": lowered.costs.relocated}
    prog, base = lk.PROGRAM.program(tables, mode, lowered.scalars)
    _relocate(prog, base, lowered)
    state, place = _state(lowered, mode)
    burst, block = _burst(lowered)
    first = first_rows(links, ranks) if listed else 0
    mem, heap = room(first + FIRST_WORDS, mode), room(ranks * columns + FIRST_WORDS, mode)
    if listed:
        fire(state, mem, links, ranks)
    else:
        _fire(state, heap, ranks)
    guards = Guards(prog, state)
    # V_NOW counts, too: with contention the list of the running tick is not in the heap.
    while state[lk.V_STATUS] in (lk.OK, lk.GROW) and state[lk.V_HEAP] + state[lk.V_NOW] > 0:
        # Room for one burst beyond what is in use: the kernel checks between events only.
        heap = at_least(heap, (state[lk.V_HEAP] + burst) * columns, mode)
        mem = at_least(mem, state[lk.V_MEMBER_STATE] + block, mode)
        budget = guards.budget(patience.events(pace.slice(BUDGET)))
        kernel.run(prog, state, mem, heap, budget, len(heap) // columns - burst, len(mem) - block)
        pace.at(int(state[lk.V_EVENTS]))
        if patience.is_over():
            mode = patience.mode
            kernel = load(name, mode, lowered.variant)
            prog, state, mem, heap = as_arrays(prog, state, mem, heap)
    patience.end()
    return Run(state, place)


def _fire(state: Any, heap: Any, ranks: int) -> None:
    """Let every rank issue its first nodes at tick 0, in rank order."""
    for r in range(ranks):
        at = r * lk.HEAP_COLUMNS
        # Rows of zeros otherwise: all are registered at tick 0 and ordered by rank.
        heap[at + 3], heap[at + 4], heap[at + 5] = r, lk.EV_FIRE, r
    state[lk.V_HEAP] = state[lk.V_SEQ] = ranks


def estimate(lowered: Lowered) -> int:
    """Return an estimate of the number of events."""
    # A list of many links takes as long to make as to load the compiled kernel.
    events = lowered.sizes["states"] + lowered.sizes["rows"] + lowered.sizes["links"] // 100
    return events + lowered.sizes["rows"] * 20 * lowered.scalars[lk.Z_MESSAGES]


def _relocate(prog: Any, base: dict[str, int], lowered: Lowered) -> None:
    """Turn the places in COSTS and LINES that other tables hold into addresses."""
    # These two are laid out together with the other tables, so their addresses are known only now.
    for r in range(len(lowered.tables["PHASES"]) // lk.PH_COLUMNS):
        row = base["PHASES"] + r * lk.PH_COLUMNS
        for column in (lk.PH_COST0, lk.PH_COST1):
            prog[row + column] += base["COSTS"]
    for r in range(len(lowered.tables["LINE_ROWS"]) // lk.LN_COLUMNS):
        row = base["LINE_ROWS"] + r * lk.LN_COLUMNS
        for column in (lk.LN_INDEX, lk.LN_LOCAL, lk.LN_POSITION, lk.LN_RANK):
            prog[row + column] += base["LINES"]


def _state(lowered: Lowered, mode: Mode) -> tuple[Any, dict[str, slice]]:
    z = lowered.sizes
    ranks, levels, carries = z["ranks"], lowered.scalars[lk.Z_LEVELS], lowered.scalars[lk.Z_CARRIES]
    tied = not lowered.listed
    nodes = lowered.tables["NODES"].reshape(-1, lk.N_COLUMNS)
    spans = lowered.tables["RANKS"].reshape(-1, lk.R_COLUMNS)
    ready, ready_size = _roots(nodes, spans, z["states"])
    per_rank = [nodes[first : first + count] for first, count in spans[:, [lk.R_NODES, lk.R_COUNT]].tolist()]
    # Inner nodes of custom collectives do not count: their collective does.
    outer = [int((rows[:, lk.N_SLOT] != lk.INNER).sum()) for rows in per_rank]
    none: Callable[[int], Ints] = lambda size: np.full(size, -1, np.int64)  # noqa: E731
    filled = {
        "INDEGREE": np.concatenate([rows[:, lk.N_INDEGREE] for rows in per_rank]) if per_rank else none(0),
        "NODE_START": none(z["states"]), "NODE_END": none(z["states"]), "READY": ready, "READY_SIZE": ready_size,
        "LEFT": np.array(outer, np.int64), "QUEUE_HEAD": none(z["queues"]), "INSTANCE_PLAN": none(z["instances"]),
        "FREE": none(z["lines"]), "ROW_PHASE": none(z["routed"]), "RETAINED": none(carries),
        "INSTANCE_ROUTES": none(z["instances"] * carries), "LAST_TOUCH": none(z["queues"] * tied * lk.TO_COLUMNS),
        "COMPLETED": none(ranks * tied * lk.D_COLUMNS), "SERVED_AT": none(z["servers"] * tied),
    }  # fmt: skip
    ends = ranks * lk.ENDS_PER_RANK if lowered.costs.timing.bus else 0
    sizes = {
        "BUSY": 3 * ranks, "FLYING": ranks, "FINISH": ranks, "FINISHER": ranks, "DEFERRED": z["deferred"],
        "QUEUE_TAIL": z["queues"], "QUEUE_RUNNING": z["queues"], "STREAM_NEXT": z["streams"],
        "STREAM_PHASE": z["streams"], "STREAM_ITEM": z["streams"], "QUEUE_BASE": z["bases"], "TREE_BASE": z["bases"],
        "COUNTERS": ranks * (levels * 3 + z["trees"]), "ITEM_LEFT": z["items"], "PARTS_LEFT": z["items"],
        "ITEM_INSTANCE": z["items"], "ORDINALS": z["ordinals"], "INSTANCE_ITEM": z["instance_items"],
        "ARRIVED_AT": z["arrived"], "CHANNEL": z["channels"] * lk.CS_COLUMNS, "SEND_TICK": z["pairs"],
        "SEND_NODE": z["pairs"], "RECV_NODE": z["pairs"], "SERVER_FREE": z["servers"], "ROW_START": z["rows"],
        "ROW_END": z["rows"], "ROW_SEQ": z["rows"], "ROW_QUEUE": z["routed"], "ROW_TREE": z["routed"], "TURN": ranks,
        "BUS": ends * lk.E_COLUMNS,
        "BUCKETS": lowered.scalars.get(lk.Z_BUCKETS, 0),
        **dict.fromkeys(lk.SCRATCH, lowered.costs.widest),
    }  # fmt: skip
    return lk.STATE.lay_out(sizes, filled, mode)


def _roots(nodes: Ints, spans: Ints, states: int) -> tuple[Ints, Ints]:
    """Return the ready heaps at the start, and their sizes: the nodes that wait for nothing, ascending."""
    ready, sizes = np.zeros(states, np.int64), np.zeros((len(spans), 4), np.int64)
    for r, span in enumerate(spans):
        rows = nodes[span[lk.R_NODES] : span[lk.R_NODES] + span[lk.R_COUNT]]
        # INNER nodes are not on heaps: their collective issues them.
        free = np.flatnonzero(rows[:, lk.N_INDEGREE] == 0)
        slots = rows[free, lk.N_SLOT]
        for slot in range(4):
            here = free[slots == slot]
            at = span[lk.R_READY + slot]
            ready[at : at + len(here)] = here
            sizes[r, slot] = len(here)
    return ready, sizes.ravel()


def _burst(lowered: Lowered) -> tuple[int, int]:
    """Return the most events, and integers of working memory, that one event may add."""
    z, costs = lowered.sizes, lowered.costs
    chunks = max((plan.chunks for plan in lowered.plans), default=0)
    limit, queues, levels = (lowered.scalars[place] for place in (lk.Z_LIMIT, lk.Z_QUEUES, lk.Z_LEVELS))
    started = min(chunks, limit * queues) + levels + 2
    rows = lowered.tables["LINE_ROWS"].reshape(-1, lk.LN_COLUMNS)
    member_states = int(rows[:, lk.LN_MEMBER_STATES].max(initial=1))
    moved = bool(lowered.scalars[lk.Z_MESSAGES])
    scratch = 0 if costs.all_chains and not moved else member_states
    # One event touches a rank, or the two ends of a message; a phase is evaluated by its last member.
    per_stream = costs.bursts if moved else member_states
    events = 2 * z["deferred"] + z["ranks"] + 2 * (started + 1) * per_stream + scratch * costs.bursts + 64
    requests = 4 * events * lk.Q_COLUMNS if costs.timing.bus else 0
    if lowered.listed:
        requests += 2 * events * lk.ROW_COLUMNS
    # Nor are there more phases to move than the whole program has.
    blocks = min(2 * started + 1, z["arrived"]) if moved else 1
    return events, blocks * (scratch * costs.member_state + 1) + requests
