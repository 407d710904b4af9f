"""Lower a trace again, on a machine that differs from the last one in times only.

Which ranks meet, in which calls and over which ports, follows from the trace and from what both machines have in
common. So neighbours in a sweep have equal tables but for a few columns: rates of ports, times of phases and messages,
durations of kernels. Only these are made anew. `Build` makes all of them, and a test compares both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.items import MEMORY_OPERATIONS, View
from armillary.engine.physical import layout as lk
from armillary.engine.physical.channels import Carried, moved
from armillary.engine.physical.chunk_routes import ChunkRoutes
from armillary.engine.physical.plans import Lines, Plans
from armillary.engine.physical.program import PhysicalProgram, Plan

if TYPE_CHECKING:
    from armillary.engine.physical.workload import PhysicalWorkload

Ints = NDArray[np.int64]


def again(
    old: PhysicalProgram,
    carried: Carried,
    workload: PhysicalWorkload,
    classes: Ints,
    views: list[View],
    warnings: list[str],
) -> PhysicalProgram | None:
    """Return the program of a machine; None: it differs in more than times.

    Args:
        old: Of a machine on which the same was read of the trace, but for durations of kernels.
        carried: By its channels.
        workload: On the new machine.
        classes: Of its ranks.
        views: Of its classes, see `Paces`.
        warnings: Of the new machine.
    """
    if old.classes is not classes or any(map(_has_accesses, old.views)):
        return None
    lines = Lines(workload, classes, old.representatives)
    if lines.memory.count or lines.host.count:
        return None
    paces, plans = _paces(old, views), _plans(old, workload, lines)
    times = {sent: moved(workload.platform, lines.scale, *sent) for sent in carried.times}
    if paces is None or plans is None or any(times[sent].uses != carried.times[sent].uses for sent in times):
        return None
    tables = lk.PROGRAM.reserve({name: len(table) for name, table in old.tables.items()})
    for name, table in old.tables.items():
        tables[name][:] = table
    for first, view in paces:
        own = tables["PACES"][first : first + len(view.nodes.ticks)]
        own[:] = view.nodes.ticks
        # As `Tables.share_paces`: in memory once, and the tables of the machine before need not stay.
        view.nodes.ticks = own
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
    return replace(old, tables=tables, views=views, plans=made, items=items, warnings=[*found, *warnings])


def _has_accesses(view: View) -> bool:
    """Tell whether a class has items that are neither messages nor collectives of a network."""
    kinds = view.nodes.kind[view.nodes.items]
    others = ((kinds != lk.COLLECTIVE) & (kinds != lk.SEND) & (kinds != lk.RECV)).any()
    return bool(others) or any(call.operation in MEMORY_OPERATIONS or call.splits for call in view.calls)


def _paces(old: PhysicalProgram, views: list[View]) -> list[tuple[int, View]] | None:
    """Return a view for each row of durations that classes share, and its place; None: they would not share it."""
    found: dict[int, View] = {}
    first = old.tables["RANKS"][lk.R_PACE :: lk.R_COLUMNS].tolist()
    for place, view in zip(first, views, strict=True):
        ticks = found.setdefault(place, view).nodes.ticks
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
