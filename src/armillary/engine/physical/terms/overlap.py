"""Computation and communication that run at the same time on a rank and slow each other.

This is by definition a fixed point that is approached from below: simulate, measure how much of its time each kernel
spends beside a collective of its rank that moves data, and each collective beside a kernel of any of its ranks; let
both take longer by that; simulate again, `ROUNDS` times or until nothing changes. What takes a share s longer while
something else goes on, and does so for a part f of its time, takes ``1 / (1 - f s / (1 + s))`` times as long as alone.
What collectives take of the device (`resources`) adds to ``f s / (1 + s)``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.lowered import Run
from armillary.engine.common.result import timeline_of
from armillary.engine.common.timeline import KINDS, Timeline
from armillary.engine.physical import layout as lk
from armillary.engine.physical.program import PhysicalProgram, execute
from armillary.engine.physical.terms.resources import MOST, WHOLE, taken
from armillary.platform.model import Platform

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
ROUNDS = 3
CHANGED = (
    "platform.terms.overlap: collectives of a group change their order when they are slowed; their times are those of "
    "round {} of {}"
)


def settle(program: PhysicalProgram, run: Run, platform: Platform) -> tuple[PhysicalProgram, Run]:
    """Return a program in which what overlaps takes longer, and its run.

    Args:
        program: Without that.
        run: Of it; what is not finished stays as it is.
        platform: The machine.
    """
    terms = platform.terms
    found, done = program, run
    before: tuple[bytes, bytes] | None = None
    # From below: the first round measures the overlap of kernels and collectives that do not slow each other.
    for number in range(ROUNDS):
        if not _finished(done):
            break
        timeline = timeline_of(found, done, platform, {})
        nodes, items = measure(found, timeline, done)
        lost = nodes * (terms.overlap_compute / (1 + terms.overlap_compute))
        if terms.overlap_processors or terms.overlap_traffic:
            lost = np.minimum(lost + taken(found, timeline, begun(timeline), platform), MOST / WHOLE)
        slower = 1 / (1 - lost), _factor(items, terms.overlap_communication)
        # The same factors give the same program: a fixed point.
        key = slower[0].tobytes(), slower[1].tobytes()
        if key == before:
            break
        before = key
        # Always from the original program: factors must not multiply up.
        changed = stretched(program, *slower)
        again = execute(changed)
        if not _finished(again):
            warned = [*found.warnings, CHANGED.format(number, ROUNDS)]
            return replace(found, warnings=warned), done
        found, done = changed, again
    return found, done


def _finished(run: Run) -> bool:
    return run.scalar(lk.V_STATUS) == lk.OK and not run.table("LEFT").any()


def _factor(part: Floats, share: float) -> Floats:
    return 1 / (1 - part * (share / (1 + share)))


def measure(program: PhysicalProgram, timeline: Timeline, run: Run) -> tuple[Floats, Floats]:
    """Return which part of its time each node computes beside a collective, and each item communicates beside kernels.

    Nodes are in issue order, concatenated by class. A collective counts from its first byte on; of its members that
    with the largest part counts.
    """
    first = begun(timeline)
    nodes, items = [], []
    for c, view in enumerate(program.views):
        at = slice(int(timeline.node_ptr[c]), int(timeline.node_ptr[c + 1]))
        start, end = timeline.spans(c)
        kernel = np.flatnonzero(timeline.table(c).kind == KINDS.index("compute"))
        collective = np.flatnonzero(first[at] >= 0)
        since = first[at][collective]
        part = np.zeros(len(start))
        part[kernel] = parts(start[kernel], end[kernel], since, end[collective])
        nodes.append(part[view.nodes.order])
        part = np.zeros(len(start))
        part[collective] = parts(since, end[collective], start[kernel], end[kernel])
        items.append(part[view.nodes.order[view.nodes.items]])
    return np.concatenate(nodes), _slowest_member(program, np.concatenate(items), run)


def begun(timeline: Timeline) -> Ints:
    """Return the tick at which each node begins to move data as a collective, -1 for what is none."""
    first = np.full(len(timeline.node_start), -1, np.int64)
    rows = timeline.node_ptr[timeline.phase_class] + timeline.phase_node
    first[rows] = np.iinfo(np.int64).max
    np.minimum.at(first, rows, timeline.phase_start)
    return first


def parts(start: Ints, end: Ints, other_start: Ints, other_end: Ints) -> Floats:
    """Return which part of each interval lies in any of the others."""
    order = np.argsort(other_start, kind="stable")
    other_start, other_end = other_start[order], np.maximum.accumulate(other_end[order])
    # Each of the others without what those before it cover.
    since = np.maximum(other_start, np.concatenate([other_start[:1], other_end[:-1]]))
    covered = np.concatenate([[0], np.cumsum(np.maximum(other_end - since, 0))])

    def until(tick: Ints) -> Ints:
        if not len(since):
            return np.zeros_like(tick)
        last = np.searchsorted(since, tick, side="right") - 1
        inside = np.clip(tick - since[last], 0, other_end[last] - since[last])
        found: Ints = np.where(last >= 0, covered[last] + inside, 0)
        return found

    took = end - start
    result: Floats = np.where(took > 0, (until(end) - until(start)) / np.maximum(took, 1), 0.0)
    return result


def _slowest_member(program: PhysicalProgram, part: Floats, run: Run) -> Floats:
    """Return for each collective the largest part of any member, 0 for other items."""
    which = np.flatnonzero(program.is_collective)
    keys = np.stack([program.items[which, lk.I_COMM], run.table("ITEM_INSTANCE")[which]])
    _, instance = np.unique(keys, axis=1, return_inverse=True)
    most = np.zeros(len(which))
    np.maximum.at(most, instance.ravel(), part[which])
    found = np.zeros(len(part))
    found[which] = most[instance.ravel()]
    return found


def stretched(program: PhysicalProgram, nodes: Floats, items: Floats) -> PhysicalProgram:
    """Return a program in which nodes and items take so many times as long.

    Args:
        program: The program.
        nodes: Factor of every node in issue order, concatenated by class.
        items: Factor of every item.
    """
    tables = dict(program.tables)
    paces, ranks = tables["PACES"], tables["RANKS"].reshape(-1, lk.R_COLUMNS).copy()
    own = np.concatenate([paces[row[lk.R_PACE] : row[lk.R_PACE] + row[lk.R_COUNT]] for row in ranks])
    ranks[:, lk.R_PACE] = np.cumsum(ranks[:, lk.R_COUNT]) - ranks[:, lk.R_COUNT]
    tables |= {"PACES": np.ceil(own * nodes).astype(np.int64), "RANKS": ranks.ravel()}
    return _with_plans(replace(program, tables=tables), items)


def _with_plans(program: PhysicalProgram, items: Floats) -> PhysicalProgram:
    """Return a program in which slower collectives have plans of their own."""
    tables, table = dict(program.tables), program.items.copy()
    which = np.flatnonzero(program.is_collective & (items > 1))
    plan_rows = tables["PLANS"].reshape(-1, lk.PL_COLUMNS)
    phases = tables["PHASES"].reshape(-1, lk.PH_COLUMNS)
    first = np.cumsum([0, *(len(plan.placed) for plan in program.plans)])
    plans, chunks = list(program.plans), [tables["CHUNKS"]]
    new_rows, new_phases, n_chunks, n_phases = [plan_rows], [phases], len(tables["CHUNKS"]), len(phases)
    keys, kind = np.unique(
        np.stack([table[which, lk.I_PLAN].astype(float), items[which]]), axis=1, return_inverse=True
    )
    table[which, lk.I_PLAN] = len(plans) + kind.ravel()
    for number, factor in zip(keys[0].astype(int).tolist(), keys[1].tolist(), strict=True):
        plan, row = program.plans[number], plan_rows[number].copy()
        mine = phases[first[number] : first[number + 1]].copy()
        timed = [lk.PH_LATENCY, lk.PH_VOLUME, lk.PH_TICKS]
        mine[:, timed] = np.ceil(mine[:, timed] * factor)
        at = tables["CHUNKS"][row[lk.PL_CHUNKS] : row[lk.PL_CHUNKS] + plan.chunks]
        chunks.append(at - first[number] + n_phases)
        row[lk.PL_CHUNKS] = n_chunks
        plans.append(replace(plan, number=len(plans)))
        new_rows.append(row[None])
        new_phases.append(mine)
        n_chunks, n_phases = n_chunks + len(at), n_phases + len(mine)
    tables |= {
        "PLANS": np.concatenate(new_rows).ravel(), "PHASES": np.concatenate(new_phases).ravel(),
        "CHUNKS": np.concatenate(chunks), "ITEMS": table.ravel(),
    }  # fmt: skip
    return replace(program, tables=tables, plans=plans, items=table)
