"""From ranks to classes: the phases of all collective calls, and the fold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from armillary.engine.astra_sim.phases import JobChunks, JobPhase, job_chunks
from armillary.engine.common import layout_kernel as lk
from armillary.engine.common.calls import Job
from armillary.engine.common.fold import Order, Ring, by_place, fold, pairs_of, world_lines
from armillary.engine.common.workload import Workload, check_members, node_of

Ints = NDArray[np.int64]
JobPhases = dict[Job, JobChunks]
Carried = frozenset[tuple[Job, Job]]
"""Pairs of jobs: work of the first may be left over when the second begins."""


def order_of(phase: JobPhase) -> frozenset[Order]:
    """Return the orders of both variants of a phase."""
    found = set()
    for schedule in phase.schedules:
        peers = () if phase.uniform else tuple(np.unique(schedule.roles[0].send_peer % schedule.n).tolist())
        found.add(Order(schedule.relative, peers, phase.uniform))
    return frozenset(found)


def find_phases(workload: Workload, carried: Carried = frozenset()) -> tuple[JobPhases, list[str]]:
    """Return the phases of every job, and warnings of what is odd about them; `carried`: see `lower`.

    Raises:
        InputError: a rank uses a group it is not in, or a collective cannot run.
    """
    found: JobPhases = {}
    warnings: list[str] = []
    check_members(workload)
    for view in workload.views:
        for j, job in enumerate(view.jobs):
            comm = workload.comms.get(job.comm)
            if job not in found:
                where = node_of(view, j)
                found[job] = job_chunks(
                    job, comm, workload.platform, where, [a for a, b in sorted(carried, key=repr) if b == job]
                )
                warnings += _oddities(job, found[job].routes[0], where)
    return found, warnings


def _oddities(job: Job, found: Sequence[JobPhase], where: str) -> list[str]:
    if not found:
        return [f"{where}: no dimension takes part; the collective takes no time"]
    odd = [f"{where} moves 0 bytes"] if job.size == 0 else []
    for phase in found:
        if phase.schedules and phase.schedules[0].relative == "pair" and phase.n & (phase.n - 1):
            odd.append(
                f"{where}: halvingDoubling all-gather over {phase.n} members runs as in ASTRA-sim, "
                "but not every member gets every block"
            )
    return odd


def classify(workload: Workload, job_phases: JobPhases, structure: NDArray[np.int32]) -> Ints:
    """Return the class of every rank; ranks that share a memory server are each their own."""
    views, view_of = workload.views, workload.view_of
    if workload.platform.memory.kind in ("pool", "per-node") and any(
        (view.nodes.kind == lk.MEMORY).any() for view in views
    ):
        return np.arange(workload.trace.n_ranks)
    patterns: dict[bytes, int] = {}
    pattern = np.array([patterns.setdefault(view.pattern(), len(patterns)) for view in views])
    colour = structure.astype(np.int64) * len(patterns) + pattern[view_of]
    pairs = pairs_of(views, view_of, workload.channels, workload.platform)
    colour = by_place(colour, workload.channels)
    return fold(colour, _rings(workload, job_phases), pairs, workload.platform.dimensions)


def _rings(workload: Workload, job_phases: JobPhases) -> list[Ring]:
    orders: dict[tuple[int, int], frozenset[Order]] = defaultdict(frozenset)
    for job, found in job_phases.items():
        for phase in {phase for route in found.routes for phase in route}:
            orders[(job.comm, phase.dim)] |= order_of(phase)
    rings = []
    for (number, dim), seen in orders.items():
        members = workload.comms.get(number).members
        lines = members[None, :] if dim < 0 else world_lines(workload.platform, dim)
        rings.append(Ring(dim, lines, seen, workload.slots_in(number, lines)))
    return rings
