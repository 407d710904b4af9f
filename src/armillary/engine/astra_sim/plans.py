"""The plans of collectives: rows of the ways that their chunks go, of the phases of each, and what those cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from armillary.collective.plan import next_size
from armillary.engine.astra_sim import layout as lk
from armillary.engine.astra_sim.congestion.network import Links
from armillary.engine.astra_sim.phase_costs import PhaseCosts, Timing
from armillary.engine.common import network
from armillary.engine.common.classes import JobPhases
from armillary.engine.common.jobs import Job, JobPhase
from armillary.engine.common.quotient import QuotientComm, Rings
from armillary.engine.common.tables import JobPlan
from armillary.platform.model import Platform
from armillary.trace.process_groups import WORLD

Ints = NDArray[np.int64]
FAMILY = {"all": lk.ALL, "first": lk.FIRST, "last": lk.LAST}
KIND = {"reduce-scatter": lk.SCATTERS, "all-gather": lk.GATHERS}
TREE_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


class Plans:
    """The plans of one program while they grow; jobs that are the same in a communicator share one."""

    def __init__(
        self,
        platform: Platform,
        classes: Ints,
        representatives: Ints,
        job_phases: JobPhases,
        links: Links | None,
    ) -> None:
        self.platform, self.job_phases = platform, job_phases
        self.levels = len(platform.dimensions)
        self.rings = Rings(platform, classes, representatives)
        system = platform.system
        self.costs = PhaseCosts(
            Timing(
                platform.dimensions, system.local_mem_bandwidth, platform.rendezvous, system.shared_bus,
                system.local_reduction_delay,
            ),
            links,
        )  # fmt: skip
        self.all: list[JobPlan] = []
        self.rows: list[int] = []
        self.phase_rows: list[int] = []
        self.route_rows: list[int] = []
        self.plan_of: dict[tuple[int, Job], JobPlan] = {}

    def plan(self, comm: QuotientComm, job: Job) -> JobPlan:
        """Return the plan of a job in a quotient communicator."""
        # Ranks of one class may know their groups by different numbers.
        key = (comm.number, replace(job, comm=WORLD))
        if key not in self.plan_of:
            found = self.job_phases[job]
            plan = JobPlan(len(self.all), comm, job, found, len(self.phase_rows) // lk.PH_COLUMNS)
            for route in found.routes:
                ticks, lines = 0.0, 0
                for p in range(len(route)):
                    more_ticks, more_lines = self._phase(comm, route, p, lines, job.operation)
                    ticks, lines = ticks + more_ticks, lines + more_lines
                plan.ticks, plan.lines = max(plan.ticks, ticks), max(plan.lines, lines)
            routes = self._routes(found.of_chunk) if plan.routed else -1
            row = [len(plan.phases), plan.first, plan.lines, routes, int(found.in_turn), int(found.greedy)]
            self.rows += row
            self.all.append(plan)
            self.plan_of[key] = plan
        return self.plan_of[key]

    def _routes(self, of_chunk: tuple[int, ...]) -> int:
        """Add the ways of chunks; returns where they stand."""
        self.route_rows += (len(of_chunk), *of_chunk)
        return len(self.route_rows) - len(of_chunk) - 1

    def after(self) -> Ints:
        """Return the routes of plans after others, (plans, plans), -1: not known."""
        number = {plan.source: plan.number for plan in self.all}
        table = np.full((len(self.all), len(self.all)), -1, np.int64)
        for plan in self.all:
            for other, of_chunk in plan.job.after.items():
                table[plan.number, number[other]] = self._routes(of_chunk)
        return table

    def _phase(
        self, comm: QuotientComm, route: tuple[JobPhase, ...], p: int, line: int, operation: str
    ) -> tuple[float, int]:
        """Add the row of phase `p` of a way; `line` of its lines come before. Returns its ticks and its lines."""
        phase = route[p]
        if not phase.schedules:
            row = [0] * lk.PH_COLUMNS
            row[lk.PH_COUNT], row[lk.PH_TREE] = 1, -1
            self.phase_rows += row
            return 0.0, 0
        ring = self.rings.ring(comm, phase)
        members = comm.real.members
        if phase.dim >= 0:
            stride = network.strides(self.platform.dimensions)[phase.dim]
            members = np.arange(phase.n) * stride
        add = self.costs.add
        cost = [
            add(s, phase.size, members, phase.endpoint, uniform=phase.uniform, on_bus=comm.real.world)
            for s in phase.schedules
        ]
        same = [q for q, o in enumerate(route) if (o.level, o.family) == (phase.level, phase.family)]
        trees = [q for q, o in enumerate(route) if o.tree and o.level == phase.level]
        tree = TREE_KINDS.index(operation) * self.levels + phase.level if phase.tree else -1
        row = [0] * lk.PH_COLUMNS
        row[lk.PH_LEVEL], row[lk.PH_FAMILY] = phase.level, FAMILY[phase.family]
        row[lk.PH_COUNT], row[lk.PH_INDEX] = len(same), same.index(p)
        row[lk.PH_TREE] = tree
        if phase.tree:
            row[lk.PH_TREE_COUNT], row[lk.PH_TREE_INDEX] = len(trees), trees.index(p)
        row[lk.PH_COST0], row[lk.PH_COST1] = cost
        row[lk.PH_RING], row[lk.PH_LINE] = ring.entry, line - ring.first_line
        row[lk.PH_KIND] = lk.OTHER if phase.tree else KIND.get(phase.operation, lk.OTHER)
        row[lk.PH_BYTES] = max(phase.size, next_size(phase.operation, phase.size, phase.n))
        self.phase_rows += row
        return max(self.costs.longest[c] for c in cost), ring.n_lines
