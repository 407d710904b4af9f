"""The plans of a program: the rows of the chunks and phases of each collective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import ceil

from armillary.engine.common.jobs import Job
from armillary.engine.common.quotient import QuotientComm
from armillary.engine.physical import layout as lk
from armillary.engine.physical.courses import last_latency
from armillary.engine.physical.jobs import PhysicalPhase, latency_ticks, reduction_ns
from armillary.engine.physical.lines import Lines
from armillary.engine.physical.program import Plan
from armillary.engine.physical.scale import Scale
from armillary.engine.physical.workload import PhysicalWorkload
from armillary.trace.process_groups import WORLD


class Plans:
    """Plans while they grow."""

    def __init__(self, workload: PhysicalWorkload, lines: Lines, scale: Scale) -> None:
        self.workload, self.lines, self.scale = workload, lines, scale
        self.all: list[Plan] = []
        self.of_comm: dict[int, list[Plan]] = defaultdict(list)
        self.rows: list[int] = []
        self.chunk_rows: list[int] = []
        self.phase_rows: list[int] = []
        self._known: dict[tuple[int, Job], Plan] = {}

    def plan(self, comm: QuotientComm, job: Job) -> Plan:
        """Return the plan of a job in a quotient communicator, made on first use."""
        key = (comm.number, replace(job, comm=WORLD))
        if key not in self._known:
            self._known[key] = self._add(comm, job)
        return self._known[key]

    def _add(self, comm: QuotientComm, job: Job) -> Plan:
        course = self.workload.course(job)
        plan = Plan(len(self.all), comm, job, course)
        first: dict[tuple[int, int], int] = {}
        for size, way in dict.fromkeys(course.chunks):
            first[size, way] = len(self.phase_rows) // lk.PH_COLUMNS
            for phases in course.ways if course.choices else [course.ways[way]]:
                self._add_way(plan, phases, size)
        plan.train = self._is_train(plan)
        bigger = sum(chunk == course.chunks[0] for chunk in course.chunks) % len(course.chunks)
        self.rows += [len(plan.phases), len(self.chunk_rows), plan.lines, course.choices, plan.train, bigger]
        self.chunk_rows += [first[chunk] for chunk in course.chunks]
        self.all.append(plan)
        self.of_comm[comm.number].append(plan)
        return plan

    def _is_train(self, plan: Plan) -> bool:
        """Tell whether the chunks of a plan follow one another through one phase, the bigger ones first."""
        course, physical = plan.course, self.workload.platform.physical
        sizes = [size for size, _ in course.chunks]
        return (
            self.workload.fluid
            and len(plan.phases) == 1
            and sizes == sorted(sizes, reverse=True)
            and len(set(sizes)) <= 2
            and self.scale.volume(plan.phases[0].volume * sizes[-1]) > 0
            and (physical.within_dimension != "smallest-first" or sizes[0] == sizes[-1])
        )

    def _add_way(self, plan: Plan, phases: Sequence[PhysicalPhase], size: int) -> None:
        """Add the rows of the phases of a chunk of `size` bytes."""
        lines, memory = 0, self.workload.platform.system.local_mem_bandwidth
        last = last_latency(plan.course, lambda p, s: self.lines.ticks(p, self.scale.volume(p.volume * s)))
        for phase in phases:
            ring = self.lines.ring(plan.comm, phase)
            volume = self.scale.volume(phase.volume * size)
            latency = latency_ticks(phase, size, memory)
            if last is not None:
                latency = last + ceil(reduction_ns(phase, size, memory))
            plan.placed.append((phase, size))
            self.phase_rows += [
                ring.entry, lines - ring.first, ring.lane - ring.first, latency, volume, ring.first, ring.lines,
                self.lines.ticks(phase, volume),
            ]  # fmt: skip
            lines += ring.lines
        plan.lines = max(plan.lines, lines)
