"""A lowered program of profile `physical`, how to run it, and how to read its result.

A collective of one phase is cut into chunks that pass the same ports one after the other, and nothing
else can come between them, because a chunk flow belongs to one collective. So the chunks are one batch, with
one event for all of them. A chunk ends at a whole tick, so the end of the batch is a sum of rounded times and
not a rounded sum. When the rate changes, the kernel walks the batch up to that tick, chunk by chunk, and
computes its end anew; the result is that of single chunks to the tick. Of a batch whose rate never changed
only start and rate are kept, and its rows are made here when a report asks. A step of Llama 405B on 16,384
NPUs has 36,000 collectives of 64 chunks: 5.3 million events became a few hundred thousand.

Collectives of several phases, `smallest-first` with unequal chunks, and networks that move messages have no
batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import factorial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.allowed import Pace
from armillary.base.jit import Mode, load
from armillary.base.patience import Patience, as_arrays
from armillary.base.tables import Guards, Layout, at_least, room
from armillary.engine.common.demands import Demands
from armillary.engine.common.items import FROM_MEMORY, View, channel_at
from armillary.engine.common.lowered import BUDGET, FIRST_WORDS, NO_NETWORK, Run, Simulated
from armillary.engine.common.network import CollectiveCall, Communicator, QuotientComm
from armillary.engine.common.timeline import OPERATIONS
from armillary.engine.physical import layout as lk
from armillary.engine.physical.chunk_routes import ChunkRoutes
from armillary.engine.physical.phases import FITTED, PhysicalPhase
from armillary.trace.columns import distinct_columns

Ints = NDArray[np.int64]


def least_ticks(
    tables: dict[str, Ints], views: list[View], plans: Ints | None = None, sends: Sequence[Ints] | None = None
) -> Ints:
    """Return the least ticks of every node, in graph order, concatenated by class.

    A computation takes its own time, a receive counts nothing.

    Args:
        tables: Of a program.
        views: Of its classes.
        plans: Least ticks of each plan; None: one chunk through all phases of its algorithm, one after the other, and
            all its chunks through any one dimension.
        sends: Least ticks of the items of each class that send; None: latency and bytes as the program has them.
    """
    if plans is None:
        plans = plan_ticks(tables)
    channels = np.array(
        [_rate(tables, int(row[lk.CN_LINE])) for row in _rows(tables, "CHANNELS", lk.CN_COLUMNS)]
    )
    items = tables["ITEMS"].reshape(-1, lk.I_COLUMNS)
    found, at = [], 0
    for cls, view in enumerate(views):
        nodes = view.nodes
        least = np.where((nodes.kind == lk.FIXED) | (nodes.kind == lk.STORE), nodes.ticks, 0)
        kind = nodes.kind[nodes.items]
        own = items[at : at + len(kind)]
        at += len(kind)
        for code in (lk.COLLECTIVE, lk.SEND, lk.TRANSFER, lk.MEMORY):
            which = kind == code
            if not which.any():
                continue
            if code == lk.COLLECTIVE:
                value = plans[own[which, lk.I_PLAN]]
            elif code == lk.SEND and sends is not None:
                value = sends[cls][which]
            elif code in (lk.SEND, lk.TRANSFER):
                # Floor division: a lower bound may be too low, never too high.
                value = (
                    own[which, lk.I_LATENCY] + own[which, lk.I_VOLUME] // channels[own[which, lk.I_CHANNEL]]
                )
            else:
                value = own[which, lk.I_SERVICE]
            least[nodes.items[which]] = value
        ordered = np.empty_like(least)
        ordered[nodes.order] = least
        found.append(ordered)
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def plan_ticks(tables: dict[str, Ints]) -> Ints:
    """Return the least ticks of each plan by its own algorithm."""
    rows = _rows(tables, "PLANS", lk.PL_COLUMNS)
    parts = np.split(tables["CHUNKS"], rows[1:, lk.PL_CHUNKS])
    return np.array([_plan(tables, *each) for each in zip(rows, parts, strict=False)], np.int64)


def _rows(tables: dict[str, Ints], name: str, columns: int) -> Ints:
    return tables[name].reshape(-1, columns)


def _rate(tables: dict[str, Ints], line: int) -> int:
    """Return the rate of a line that has its ports for itself, in units per tick."""
    row = _rows(tables, "LINE_ROWS", lk.LN_COLUMNS)[line]
    used = _rows(tables, "LINE_PORTS", lk.LP_COLUMNS)[
        row[lk.LN_PORTS] : row[lk.LN_PORTS] + row[lk.LN_PORT_COUNT]
    ]
    return int((tables["PORTS"][used[:, lk.LP_PORT]] // used[:, lk.LP_FACTOR]).min())


def _plan(tables: dict[str, Ints], plan: Ints, chunks: Ints) -> int:
    """Return the least ticks of a plan, whose chunks begin at these rows.

    That is one chunk through all its phases, or all chunks through any one dimension, whichever is more. Where routes
    are chosen while running, the cheapest route counts.
    """
    width, choices = int(plan[lk.PL_PHASES]), int(plan[lk.PL_CHOICES])
    table, entries = _rows(tables, "PHASES", lk.PH_COLUMNS), tables["RING_ENTRY"].reshape(-1, 2)
    once, through = 0, dict[int, int]()
    firsts, times = np.unique(chunks, return_counts=True)
    for first, count in zip(firsts.tolist(), times.tolist(), strict=True):
        routes = []
        # factorial(0) is 1: without choices there is one route.
        for route in range(factorial(choices)):
            phases = table[first + route * width : first + (route + 1) * width]
            lines = entries[phases[:, lk.PH_RING], 0]
            # both phases of an all-reduce in a dimension are on one chunk flow
            chunk_flows = (phases[:, lk.PH_CHUNK_FLOW] + lines).tolist()
            ticks = [
                volume // _rate(tables, line)
                for volume, line in zip(phases[:, lk.PH_VOLUME].tolist(), lines.tolist(), strict=True)
            ]
            moved = dict.fromkeys(chunk_flows, 0)
            for chunk_flow, each in zip(chunk_flows, ticks, strict=True):
                moved[chunk_flow] += each
            routes.append((int(phases[:, lk.PH_LATENCY].sum()) + sum(ticks), moved))
        # Any chunk may be the slowest, on the best of its routes.
        once = max(once, min(total for total, _ in routes))
        for chunk_flow in routes[0][1]:
            # Chunks may divide over routes, so each counts with what it must leave on this chunk flow at
            # least.
            least = min(moved[chunk_flow] for _, moved in routes)
            through[chunk_flow] = through.get(chunk_flow, 0) + count * least
    return max([once, *through.values()])


@dataclass(eq=False)
class Plan:
    """A call lowered for one quotient communicator."""

    number: int
    comm: QuotientComm
    call: CollectiveCall
    chunk_routes: ChunkRoutes
    lines: int = 0
    """Lines of all phases of one chunk."""
    chunk_batch: bool = False
    """Whether the chunks are a chunk batch, see `share_kernel`."""
    placed: list[tuple[PhysicalPhase, int]] = field(default_factory=list)
    """The phases of each route and size of a chunk, with that size."""

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.chunk_routes.chunks)

    @property
    def phases(self) -> tuple[PhysicalPhase, ...]:
        """The phases of one route."""
        return self.chunk_routes.routes[0]

    def _dim(self, phase: PhysicalPhase) -> int:
        if self.call.operation in FROM_MEMORY.values():
            return NO_NETWORK
        return phase.ports[0][0] if phase.algorithm == FITTED else phase.dim

    def rows(self) -> list[tuple[int, int, int, int]]:
        """Return (dimension, operation, bytes sent per NPU, bytes through its port) of `placed`."""
        return [
            (
                self._dim(phase),
                OPERATIONS.index(phase.operation),
                int(phase.sent * size),
                int(phase.busiest * size),
            )
            for phase, size in self.placed
        ]


def _sends(view: View, rank: int, needs: Demands) -> Ints:
    """Return the least ticks of the items of a class of ranks that send, 0 for others."""
    items, kinds, examples = view.messages()
    found = np.zeros(len(view.call), np.int64)
    if items.size:
        each = [
            needs.message(*channel_at(view, item, rank)[1:]) if view.sends(item) else 0
            for item in examples.tolist()
        ]
        found[items] = np.array(each, np.int64)[kinds]
    return found


@dataclass(kw_only=True)
class PhysicalProgram(Simulated):
    """A lowered program of profile `physical`."""

    plans: list[Plan]
    slot_ready: Ints
    """Offset of the ready heap of every slot."""

    @property
    def rows_follow_from_plans(self) -> bool:
        """See `Simulated`; False where a chunk chooses its route while it runs."""
        return not self.tables["PLANS"].reshape(-1, lk.PL_COLUMNS)[:, lk.PL_CHOICES].any()

    def rows_of_phases(self, run: Any, item: Ints, chunk: Ints, place: Ints, step: Ints) -> Ints:
        """See `Simulated`; a route that was chosen while running stands in the state."""
        plans, plan = self.tables["PLANS"].reshape(-1, lk.PL_COLUMNS), self._plan
        first: Ints = self.tables["CHUNKS"][plans[plan, lk.PL_CHUNKS][item] + chunk]
        if plans[:, lk.PL_CHOICES].any():
            comm = self.tables["COMMS"].reshape(-1, lk.CO_COLUMNS)[self.items[item, lk.I_COMM]]
            row = comm[:, lk.CO_CHOSEN] + run.table("ITEM_INSTANCE")[item] * comm[:, lk.CO_CHUNKS] + chunk
            chosen = plans[plan, lk.PL_CHOICES][item] > 0
            route = run.table("CHOSEN")[np.where(chosen, row, 0) * lk.CH_COLUMNS + lk.CH_ROUTE]
            first = first + np.where(chosen, route * plans[plan, lk.PL_PHASES][item], 0)
        return first + step

    def ticks_of_phases(self, run: Any, item: Ints, chunk: Ints, place: Ints, row: Ints) -> tuple[Ints, Ints]:
        """See `Simulated`; those of a whole chunk batch follow from its start and its rate."""
        leader, first = self.leaders(run, item, row), self.items[:, lk.I_ROW]
        spans = super().ticks_of_phases(run, item, chunk, place + first[leader] - first[item], row)
        chunk_batch = np.stack([run.table("CHUNK_BATCH_START"), run.table("CHUNK_BATCH_RATE")])
        fill_spans(self.tables, chunk_batch, self._plan, item, chunk, spans)
        return spans

    def leaders(self, run: Any, item: Ints, row: Ints) -> Ints:
        """Return the items whose rows hold the times of other items in a phase: of the first members of their lines.

        Args:
            run: Of the program.
            item: Collectives that have joined an instance.
            row: Their phase, as a row of PHASES.
        """
        phases, comms = (self.tables[name] for name in ("PHASES", "COMMS"))
        entry = phases[row * lk.PH_COLUMNS + lk.PH_RING] + self.items[item, lk.I_LOCAL]
        line = self.tables["RING_ENTRY"][2 * entry]
        local = self.tables["LINES"][self.tables["LINE_ROWS"][line * lk.LN_COLUMNS + lk.LN_LOCAL]]
        comm = self.items[item, lk.I_COMM] * lk.CO_COLUMNS
        instance = run.table("ITEM_INSTANCE")[item] * comms[comm + lk.CO_REPS]
        found: Ints = run.table("INSTANCE_ITEM")[comms[comm + lk.CO_ITEMS] + instance + local]
        return found

    @cached_property
    def _plan(self) -> Ints:
        """Plan of every item, 0 for those that are no collectives."""
        return np.where(self.is_collective, self.items[:, lk.I_PLAN], 0)

    @property
    def layout(self) -> ModuleType:
        """The module that names the tables and their columns."""
        return lk

    def least(self, needs: Demands, nodes: int) -> Ints:
        """See `Simulated.least`."""
        least = np.array([needs.least(plan.call, plan.comm.real) for plan in self.plans], np.int64)
        of_memory = [plan.number for plan in self.plans if plan.call.operation in FROM_MEMORY.values()]
        # No algorithm moves data in these; the stages of the memory time them.
        if of_memory:
            least[of_memory] = plan_ticks(self.tables)[of_memory]
        ranks = self.representatives.tolist()
        sends = [_sends(view, rank, needs) for view, rank in zip(self.views, ranks, strict=True)]
        return least_ticks(self.tables, self.views, least, sends)

    def calls(self) -> list[tuple[int, CollectiveCall, Communicator]]:
        """See `Simulated.calls`."""
        return [(plan.comm.number, plan.call, plan.comm.real) for plan in self.plans]


KERNEL = "armillary.engine.physical.fluid_kernel"
PER_EVENT = 6e-6
"""Seconds of an interpreted event, see `_estimate`."""


def execute(program: PhysicalProgram, mode: Mode | None = None) -> Run:
    """Run the program to the end of its events.

    Args:
        program: The program.
        mode: Which kernel; by default whichever is sooner done.
    """
    z = program.sizes
    # Roughly the number of events, from the numbers of nodes and of phases of chunks.
    events = 2 * z["states"] + 3 * z["rows"]
    patience = Patience(KERNEL, "", mode, events * PER_EVENT)
    pace = Pace("network model analytical", events, "events", "fewer ranks, nodes or chunks")
    mode = patience.mode
    kernel = load(KERNEL, mode)
    prog, _ = lk.PROGRAM.program(program.tables, mode, program.scalars)
    state, place = first_state(program, mode)
    heap = room((z["ranks"] + z["slots"]) * lk.HEAP_COLUMNS + FIRST_WORDS, mode)
    mem = room(z["ports"] * lk.EN_COLUMNS + FIRST_WORDS, mode)
    fire(program, state, heap)
    guards, more = Guards(prog, state), True
    # OK: the budget of events is used up. GROW: it needs more room. Any other status ends the run.
    while more and state[lk.V_STATUS] in (lk.OK, lk.GROW):
        events, entries = (state[lk.V_A], state[lk.V_B]) if state[lk.V_STATUS] == lk.GROW else (0, 0)
        heap = at_least(heap, (state[lk.V_HEAP] + events) * lk.HEAP_COLUMNS, mode)
        mem = at_least(mem, state[lk.V_ENTRIES] + entries, mode)
        more = kernel.run(prog, state, mem, heap, guards.budget(patience.events(pace.slice(BUDGET))))
        pace.at(int(state[lk.V_EVENTS]))
        if patience.is_over():
            mode = patience.mode
            kernel = load(KERNEL, mode)
            prog, state, mem, heap = as_arrays(prog, state, mem, heap)
    patience.end()
    return Run(state, place)


def fire(program: PhysicalProgram, state: Any, heap: Any) -> None:
    """Let every rank begin at its start delay."""
    delays = program.tables["RANKS"].reshape(-1, lk.R_COLUMNS)[:, lk.R_DELAY]
    for i, r in enumerate(np.argsort(delays, kind="stable").tolist()):  # ascending: a heap
        at = i * lk.HEAP_COLUMNS
        heap[at], heap[at + 2] = int(delays[r]), (r << lk.CODE_BITS) + lk.EV_START
    state[lk.V_HEAP] = len(delays)


def first_state(
    program: PhysicalProgram, mode: Mode, layout: Layout = lk.STATE, sizes: Mapping[str, int] | None = None
) -> tuple[Any, dict[str, slice]]:
    """Return the state before the first event, and where its tables are; `sizes` are those of further tables."""
    z = program.sizes
    nodes = program.tables["NODES"].reshape(-1, lk.N_COLUMNS)
    spans = program.tables["RANKS"].reshape(-1, lk.R_COLUMNS)

    def fill(tables: Mapping[str, Ints]) -> None:
        start, ready = tables["NODE_START"], tables["READY"]
        slots = tables["SLOTS"].reshape(-1, lk.SLOT_COLUMNS)
        slots[:, lk.SLOT_HEAP] = program.slot_ready
        for row in spans.tolist():
            mine = nodes[row[lk.R_NODES] : row[lk.R_NODES] + row[lk.R_COUNT]]
            degree = mine[:, lk.N_INDEGREE]
            np.subtract(-1, degree, out=start[row[lk.R_STATE] : row[lk.R_STATE] + row[lk.R_COUNT]])
            free = np.flatnonzero(degree == 0)
            # Ascending nodes are a valid heap, so none has to be built.
            for slot in range(row[lk.R_SLOTS]):
                here = free[mine[free, lk.N_SLOT] == slot]
                number = row[lk.R_SLOT] + slot
                first = slots[number, lk.SLOT_HEAP]
                ready[first : first + len(here)] = here
                slots[number, lk.SLOT_WAITING] = len(here)

    filled = {"LEFT": spans[:, lk.R_COUNT].copy()}
    return layout.state({"dirty": z["chunk_flows"], **z, **(sizes or {})}, filled, mode, fill)


def fill_spans(
    tables: Mapping[str, Ints],
    chunk_batch: Ints,
    plan: Ints,
    item: Ints,
    chunk: Ints,
    spans: tuple[Ints, Ints],
) -> None:
    """Fill in start and end of the chunks of whole chunk batches.

    Args:
        tables: Of the program.
        chunk_batch: Start and rate of the chunk batch of every item, (2, items); rate 0: it has none.
        plan: Plan of every item.
        item: Of each row.
        chunk: Of each row.
        spans: Start and end of each row.
    """
    begun, rate = chunk_batch
    whole = np.flatnonzero(rate)
    if not whole.size:
        return
    plans, phases = tables["PLANS"].reshape(-1, lk.PL_COLUMNS), tables["PHASES"].reshape(-1, lk.PH_COLUMNS)
    # Batches of the same plan at the same rate have the same times since their start: computed once.
    kinds, kind = distinct_columns(np.stack([plan[whole], rate[whole]]))
    begins, ends, first = [], [], [0]
    after = [*plans[1:, lk.PL_CHUNKS].tolist(), len(tables["CHUNKS"])]
    for example in whole[kinds].tolist():
        number = int(plan[example])
        rows = phases[tables["CHUNKS"][int(plans[number, lk.PL_CHUNKS]) : after[number]]]
        # As in `share_kernel.ticks_of`: each chunk rounded up on its own.
        each = -(-rows[:, lk.PH_VOLUME] // rate[example])
        through = np.cumsum(each)
        begins.append(through - each)
        ends.append(through + rows[:, lk.PH_LATENCY])
        first.append(first[-1] + len(rows))
    base = np.zeros(len(rate), np.int64)
    base[whole] = np.array(first)[kind]
    which = slice(None) if len(whole) == len(rate) else np.flatnonzero(rate[item])
    of, at = item[which], base[item[which]] + chunk[which]
    spans[0][which] = begun[of] + np.concatenate(begins)[at]
    spans[1][which] = begun[of] + np.concatenate(ends)[at]
