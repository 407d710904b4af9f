"""Several jobs on one machine: what each takes beside the others, and what it takes alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from armillary.base.errors import InputError, nearest
from armillary.base.hints import show
from armillary.engine import simulate
from armillary.engine.common.fits import memory_of
from armillary.engine.common.job_timeline import job_timeline, with_group_names
from armillary.engine.common.timeline import Timeline
from armillary.platform.files.native import platform_of
from armillary.platform.profiles import NOT_ASTRA_SIM
from armillary.trace.compose import Composed, PlacedJob, compose

if TYPE_CHECKING:
    from armillary.base.document import Source
    from armillary.platform.model import Platform


@dataclass(frozen=True, eq=False)
class JobRun:
    """One job of a `JobsResult`; ticks of the machine, but for its own timelines."""

    name: str
    npus: tuple[int, ...]
    """Of every rank."""
    arrival: int
    start: int
    """When its first node ran."""
    end: int
    """When its last node ended."""
    shares: dict[str, int]
    """Other jobs that are there between its arrival and end, and how many of its NPUs, with their ports, they use."""
    timeline: Timeline
    """Its ranks alone, in ticks since its arrival."""
    alone: Timeline
    """The same with no other job on the machine."""

    @property
    def duration(self) -> int:
        """Ticks from arrival to end."""
        return self.end - self.arrival

    @property
    def slowdown(self) -> float:
        """`duration` relative to that of the job alone on the same NPUs; 1 for a job that takes no time."""
        return self.duration / self.alone.total_ticks if self.alone.total_ticks else 1.0


@dataclass(frozen=True, eq=False)
class JobsResult:
    """What `simulate_jobs` returns."""

    timeline: Timeline
    """The whole machine, its NPUs as ranks; names of nodes begin with that of their job."""
    jobs: tuple[JobRun, ...]
    """In the order given."""

    def __getitem__(self, name: str) -> JobRun:
        """Return a job by its name.

        Raises:
            InputError: there is no such job.
        """
        for job in self.jobs:
            if job.name == name:
                return job
        known = [job.name for job in self.jobs]
        raise InputError(f"job '{name}': there is no such job; expected one of {known}{nearest(name, known)}")


def simulate_jobs(
    jobs: Sequence[PlacedJob],
    platform: Platform | Source,
    *,
    fold: bool = True,
    network_model: str | None = None,
) -> JobsResult:
    """Simulate several jobs on one machine (profile "physical"), together and each alone on the same NPUs.

    Jobs share what they both use: the ports of common NPUs, their compute units (one kernel at a time per
    stream, see `armillary.trace.compose.compose`), and a remote memory. In the analytical network ports belong to
    NPUs, so jobs on different NPUs do not meet there; where messages cross links they do.

    Args:
        jobs: Traces with the NPU of each rank and an arrival time.
        platform: The machine.
        fold: As in `simulate`.
        network_model: As in `simulate`.

    Raises:
        InputError: a job does not fit, or something in it cannot be simulated.
        StuckError: the simulation cannot finish.
    """
    platform = platform_of(platform)
    for job in jobs if isinstance(jobs, Iterable) else (jobs,):
        if not isinstance(job, PlacedJob):
            raise InputError(f"jobs: got {show(job)}, expected a list of armillary.PlacedJob")
    if platform.profile == "astra-sim":
        raise InputError(f"{platform.source or 'platform'}: several jobs: {NOT_ASTRA_SIM}")
    if platform.groups:
        raise InputError(
            f"{platform.source or 'platform'}: groups: several jobs cannot share them; expected groups in their traces"
        )

    if platform.physical.terms.step:
        raise InputError(
            f"{platform.source or 'platform'}: terms.step: several jobs do not end their steps together; expected it "
            "for one workload only"
        )

    def run(composed: Composed) -> Timeline:
        machine = replace(platform, groups=composed.groups)
        found = simulate(composed.trace, machine, fold=fold, network_model=network_model)
        return with_group_names(found, composed)

    alone: dict[object, Timeline] = {}
    own: list[Timeline] = []
    for job in jobs:
        # Random durations are drawn by the place of a node, so there it matters whether one waits for the arrival.
        arrival = job.arrival_ns if platform.physical.jitter else 0
        key = (id(job.trace), tuple(job.npus), arrival)
        if key not in alone:
            lone = compose([replace(job, arrival_ns=arrival)], platform.npus)
            alone[key] = job_timeline(run(lone), lone, 0)
            alone[key].info.update(memory_of(job.trace, platform))
        own.append(alone[key])
    users = Counter(npu for job in jobs for npu in job.npus)
    starts = {
        (j, rank): own[j].spans(int(own[j].rank_class[rank]))[0] + job.arrival_ns
        for j, job in enumerate(jobs)
        for rank, npu in enumerate(job.npus)
        if users[npu] > 1
    }
    composed = compose(jobs, platform.npus, starts)
    whole = run(composed)
    whole.info["warnings"] += composed.warnings
    parts = [job_timeline(whole, composed, j) for j in range(len(jobs))]
    for job, part in zip(jobs, parts, strict=True):
        part.info.update(memory_of(job.trace, platform))
    ends = [job.arrival_ns + part.total_ticks for job, part in zip(jobs, parts, strict=True)]
    runs = []
    for j, (job, part) in enumerate(zip(jobs, parts, strict=True)):
        start = int(np.min(part.node_start[part.node_start >= 0], initial=part.total_ticks)) + job.arrival_ns
        shares = _shares(jobs, ends, j)
        runs.append(JobRun(job.name, tuple(job.npus), job.arrival_ns, start, ends[j], shares, part, own[j]))
    return JobsResult(whole, tuple(runs))


def _shares(jobs: Sequence[PlacedJob], ends: Sequence[int], j: int) -> dict[str, int]:
    """Return with whom job `j` shares NPUs while it is there, and how many."""
    mine, found = set(jobs[j].npus), {}
    for other, job in enumerate(jobs):
        meets = job.arrival_ns < ends[j] and jobs[j].arrival_ns < ends[other]
        if other != j and meets and (common := len(mine.intersection(job.npus))):
            found[job.name] = common
    return found
