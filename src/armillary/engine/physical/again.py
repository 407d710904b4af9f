"""Lower a trace again, on a machine that differs from the last one in times only.

Which ranks meet, in which calls and over which ports, follows from the trace and from what both machines have in
common. So neighbours in a sweep have equal tables but for a few columns: rates of ports, times of phases and messages,
durations of kernels. Only these are made anew. `Build` makes all of them, and a test compares both. What was read of a
trace with a grid, and what it was lowered to, is kept as long as the trace is in use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.items import MEMORY_OPERATIONS, View
from armillary.engine.common.lowered import side_by_side
from armillary.engine.common.nodes import Nodes
from armillary.engine.physical import layout as lk
from armillary.engine.physical.chunk_routes import ChunkRoutes
from armillary.engine.physical.grid import GridWorkload
from armillary.engine.physical.plans import Carried, Lines, Plans, moved
from armillary.engine.physical.program import PhysicalProgram, Plan
from armillary.engine.physical.workload import PhysicalWorkload
from armillary.platform.kernels import Compute, Terms
from armillary.platform.model import Npu, Platform
from armillary.trace import Trace
from armillary.trace.templates import PlacedGraph, Placement, differ_in_times

Ints = NDArray[np.int64]


def workload_of(trace: Trace, platform: Platform) -> GridWorkload:
    """Return a trace with a grid on a machine: what was read of it for the last machine, if that holds.

    Raises:
        InputError: the trace does not fit the machine, or something in it cannot be simulated.
    """
    if platform.topology is not None:
        return GridWorkload(trace, platform)
    kind, known = _apart_from_times(platform), _workloads.get(trace) or _of_other_times(trace)
    workload = known[1].on(platform, trace) if known and known[0] == kind else None
    if workload is None:
        workload = GridWorkload(trace, platform)
    elif known and known[1] in _before:
        _before[workload] = _before[known[1]]
    _workloads[trace] = kind, workload
    first = trace.graphs[0]
    if isinstance(first, PlacedGraph):
        _read[first.placement] = ref(trace)
    return workload


_workloads: WeakKeyDictionary[Trace, tuple[Platform, GridWorkload]] = WeakKeyDictionary()
"""Of traces that are still in use: what was read of them last, and on which machine apart from its times."""
_before: WeakKeyDictionary[PhysicalWorkload, tuple[PhysicalProgram, Carried]] = WeakKeyDictionary()
"""What a trace was lowered to, and for a workload that is new, on the last machine that differs in times only."""
_read: WeakKeyDictionary[Placement, ref[Trace]] = WeakKeyDictionary()
"""The trace that was read last of those whose first graph is placed alike."""


def _of_other_times(trace: Trace) -> tuple[Platform, GridWorkload] | None:
    """Return what was read of a trace that differs in durations only; None: nothing."""
    first = trace.graphs[0]
    last = _read.get(first.placement) if isinstance(first, PlacedGraph) else None
    other = last() if last else None
    if other is None or not differ_in_times(trace.graphs, other.graphs):
        return None
    same = trace.grid is other.grid and trace.rank_graph is other.rank_graph
    return _workloads.get(other) if same else None


def _apart_from_times(platform: Platform) -> Platform:
    """Return a machine that is equal for machines that differ in the speed of NPUs and links, and in terms, only."""
    dimensions = tuple(
        replace(each, name="", bandwidth=1.0, latency=0.0, port=None) for each in platform.dimensions
    )
    # What a compute model makes of kernels is asked for anew each time.
    compute = Compute(replay=platform.compute.replay)
    return replace(platform, dimensions=dimensions, npu=Npu(), compute=compute, terms=Terms(), warnings=())


def keep(workload: PhysicalWorkload, program: PhysicalProgram, carried: Carried) -> None:
    """Keep what a workload was lowered to, and what its channels carry, for the next machine."""
    _before[workload] = program, carried


def again(
    workload: PhysicalWorkload, classes: Ints, view: Callable[[int], View], warnings: list[str]
) -> PhysicalProgram | None:
    """Return the program of a machine, and keep it; None: there is none before, or one that differs in more than times.

    Args:
        workload: On the new machine.
        classes: Of its ranks.
        view: Returns that of a rank, see `Paces`.
        warnings: Of the new machine.
    """
    if workload not in _before:
        return None
    old, carried = _before[workload]
    if old.classes is not classes or any(map(_has_accesses, old.views)):
        return None
    lines = Lines(workload, classes, old.representatives)
    if lines.memory.count or lines.host.count:
        return None
    views = [view(rank) for rank in old.representatives.tolist()]
    paces, plans = _paces(old, views), _plans(old, workload, lines)
    times = {sent: moved(workload.platform, lines.scale, *sent) for sent in carried.times}
    if paces is None or plans is None or any(times[sent].uses != carried.times[sent].uses for sent in times):
        return None
    tables = side_by_side(lk.PROGRAM, old.tables, {})
    for first, nodes in paces:
        own = tables["PACES"][first : first + len(nodes.ticks)]
        own[:] = nodes.ticks
        # As `Tables.share_paces`: in memory once, and the tables of the machine before need not stay.
        nodes.ticks = own
    made, rows = plans
    timed = [lk.PH_LATENCY, lk.PH_VOLUME, lk.PH_TICKS]
    tables["PHASES"].reshape(-1, lk.PH_COLUMNS)[:, timed] = np.array(rows, np.int64).reshape(-1, 3)
    tables["PORTS"][:] = lines.port_rates()
    items = tables["ITEMS"].reshape(-1, lk.I_COLUMNS)
    if carried.sent:
        sent = np.flatnonzero(~old.is_collective)
        each = np.array([times[sent][:2] for sent in carried.sent], np.int64)
        items[sent, lk.I_LATENCY : lk.I_VOLUME + 1] = each[items[sent, lk.I_CHANNEL]]
    found = dict.fromkeys(w for view in views for w in view.nodes.warnings)
    program = replace(old, tables=tables, views=views, plans=made, items=items, warnings=[*found, *warnings])
    keep(workload, program, carried)
    return program


def _has_accesses(view: View) -> bool:
    """Tell whether a class has items that are neither messages nor collectives of a network."""
    kinds = view.nodes.kind[view.nodes.items]
    others = ((kinds != lk.COLLECTIVE) & (kinds != lk.SEND) & (kinds != lk.RECV)).any()
    return bool(others) or any(call.operation in MEMORY_OPERATIONS or call.splits for call in view.calls)


def _paces(old: PhysicalProgram, views: list[View]) -> list[tuple[int, Nodes]] | None:
    """Return the nodes of each row of durations that classes share, and its place; None: they would not share it."""
    found: dict[int, Nodes] = {}
    first = old.tables["RANKS"][lk.R_PACE :: lk.R_COLUMNS].tolist()
    for place, view in zip(first, views, strict=True):
        ticks = found.setdefault(place, view.nodes).ticks
        if view.nodes.ticks is not ticks and not np.array_equal(view.nodes.ticks, ticks):
            return None
    return list(found.items())


def _plans(
    old: PhysicalProgram, workload: PhysicalWorkload, lines: Lines
) -> tuple[list[Plan], list[tuple[int, int, int]]] | None:
    """Return the plans, and the times of their phases; None: their chunks or lines differ."""
    times, made, rows = Plans(workload, lines), list[Plan](), list[tuple[int, int, int]]()
    for plan in old.plans:
        chunk_routes = workload.chunk_routes(plan.call)
        if not _alike(chunk_routes, plan.chunk_routes):
            return None
        now = replace(plan, chunk_routes=chunk_routes, placed=[])
        for (size, _), routes in chunk_routes.distinct.items():
            for route in routes:
                now.placed += [(phase, size) for phase in chunk_routes.routes[route]]
                rows += times.of(now, route, size)
        if times.is_chunk_batch(chunk_routes) != plan.chunk_batch:
            return None
        made.append(now)
    return made, rows


def _alike(one: ChunkRoutes, other: ChunkRoutes) -> bool:
    """Tell whether the chunks of a call are the same, and use the same lines in the same order."""
    return (one.chunks, one.choices) == (other.chunks, other.choices) and [
        [(phase.dim, phase.ports, phase.host) for phase in route] for route in one.routes
    ] == [[(phase.dim, phase.ports, phase.host) for phase in route] for route in other.routes]
