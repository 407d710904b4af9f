"""Several jobs on one machine: what each takes beside the others, and what it takes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from armillary.engine import simulate
from armillary.engine.job_timeline import job_timeline, with_group_names
from armillary.engine.timeline import Timeline
from armillary.errors import InputError, nearest
from armillary.trace.compose import Composed, PlacedJob, compose

if TYPE_CHECKING:
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
    """Other jobs that use NPUs of it, and so their ports: how many."""
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
    jobs: Sequence[PlacedJob], platform: Platform, *, fold: bool = True, network_model: str = "analytical"
) -> JobsResult:
    """Simulate several jobs on one machine (profile "physical"), together and each alone on the same NPUs.

    Jobs share what they both use: the ports of common NPUs, their compute units (one kernel at a time per
    stream, see `armillary.trace.compose.compose`), and a remote memory. In the analytical network ports belong to
    NPUs, so jobs on different NPUs do not meet there.

    Args:
        jobs: Traces with the NPU of each rank and an arrival time.
        platform: The machine.
        fold: As in `simulate`.
        network_model: As in `simulate`.

    Raises:
        InputError: a job does not fit, or something in it cannot be simulated.
        StuckError: the simulation cannot finish.
    """
    if platform.groups:
        raise InputError(
            f"{platform.source or 'platform'}: groups: several jobs cannot share them; expected groups in their traces"
        )

    def run(composed: Composed) -> Timeline:
        machine = replace(platform, groups=composed.groups)
        found = simulate(composed.trace, machine, fold=fold, network_model=network_model)
        return with_group_names(found, composed)

    alone: dict[object, Timeline] = {}
    own: list[Timeline] = []
    # Where ranks start late or durations are random, a job that comes later is not the same job shifted.
    shifts = not platform.physical.delay and not platform.physical.jitter
    for job in jobs:
        arrival = 0 if shifts else job.arrival_ns
        key = (id(job.trace), tuple(job.npus), arrival)
        if key not in alone:
            lone = compose([replace(job, arrival_ns=arrival)], platform.npus)
            alone[key] = job_timeline(run(lone), lone, 0)
        own.append(alone[key])
    npus = [set(job.npus) for job in jobs]
    shares = [
        {jobs[b].name: len(npus[a] & npus[b]) for b in range(len(jobs)) if a != b and npus[a] & npus[b]}
        for a in range(len(jobs))
    ]
    starts = {
        (j, rank): own[j].spans(int(own[j].rank_class[rank]))[0] + job.arrival_ns
        for j, job in enumerate(jobs)
        if shares[j]
        for rank in range(job.trace.n_ranks)
    }
    composed = compose(jobs, platform.npus, starts)
    whole = run(composed)
    whole.info["warnings"] += composed.warnings
    return JobsResult(whole, tuple(_job(whole, composed, j, own[j], shares[j]) for j in range(len(jobs))))


def _job(whole: Timeline, composed: Composed, j: int, alone: Timeline, shares: dict[str, int]) -> JobRun:
    job, found = composed.jobs[j], job_timeline(whole, composed, j)
    begun = found.node_start[found.node_start >= 0]
    start = int(np.min(begun, initial=found.total_ticks)) + job.arrival_ns
    end = found.total_ticks + job.arrival_ns
    return JobRun(job.name, tuple(job.npus), job.arrival_ns, start, end, shares, found, alone)
