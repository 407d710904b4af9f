"""Several jobs on one machine: a table to read, and the same for programs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from armillary.base.files import write_text
from armillary.base.text import json_text
from armillary.base.units import format_time
from armillary.engine.common.timeline import Timeline
from armillary.report.json_report import to_json
from armillary.report.link_tables import print_links
from armillary.report.memory_fit import does_not_fit, fit_line, memory_fit
from armillary.report.plain import nanoseconds, plain_name, plain_table, slowest
from armillary.report.summary import about, assumed_of_input, on_console
from armillary.report.time_breakdown import breakdown

if TYPE_CHECKING:
    from rich.console import Console

    from armillary.engine.multi_job import JobRun, JobsResult

OTHERS_SHOWN = 1


def exposed(timeline: Timeline) -> int:
    """Return the exposed communication and the waiting for others of the slowest rank, in ticks."""
    cls = slowest(timeline)
    found = None if cls is None else breakdown(timeline, cls)
    return found.communication + found.waiting if found else 0


def headline(result: JobsResult) -> str:
    """Return "3 jobs end after 10.37 ms (10,366,400 ticks) on 64 NPUs"."""
    ticks, count = result.timeline.total_ticks, len(result.jobs)
    jobs = "1 job ends" if count == 1 else f"{count:,} jobs end"
    npus = result.timeline.n_ranks
    time = format_time(nanoseconds(result.timeline, ticks))
    return f"{jobs} after {time} ({ticks:,} ticks) on {npus:,} NPU{'' if npus == 1 else 's'}"


def print_jobs(result: JobsResult, console: Console | None = None) -> None:
    """Print the arrival, start and end of each job, and its time beside the others and alone."""
    on_console(lambda target, _: _print(result, target), console)


def _print(result: JobsResult, console: Console) -> None:
    from rich.text import Text

    machine = result.timeline
    for job in result.jobs:
        if does_not_fit(job.timeline):
            console.print(Text(f"job {job.name}: {fit_line(job.timeline)}", "bold red"))
    console.print(Text(headline(result), "bold"))
    for line in assumed_of_input(machine):
        console.print(Text(line))
    console.print(Text(about(machine).splitlines()[0]))
    console.print(Text("\nJobs with their time from arrival to end, here and alone on the same NPUs", "bold"))
    titles = ("NPUs", "arrival", "start", "end", "time", "alone", "slow-down", "exposed")
    table = plain_table("job", *titles, "shares with", widest=16)
    for job in result.jobs:
        ticks = (job.arrival, job.start, job.end, job.duration, job.alone.total_ticks)
        times = [format_time(nanoseconds(machine, value)) for value in ticks]
        shown = format_time(nanoseconds(machine, exposed(job.timeline)))
        row = (f"{len(job.npus):,}", *times, f"{job.slowdown:.2f} x", shown)
        table.add_row(plain_name(job.name), *row, plain_name(_others(job)))
    console.print(table)
    # The worst job that shares NPUs with others stands for all.
    slow = [job for job in result.jobs if job.slowdown > 1 and job.shares]
    if slow:
        worst = max(slow, key=lambda job: job.slowdown)
        console.print(Text(f"\n{_reason(worst, machine)}"))
    if machine.network:
        print_links(machine.network, console)
    for warning in machine.info.get("warnings", []):
        console.print(Text(f"warning: {warning}", "yellow"))


def _others(job: JobRun) -> str:
    names = list(job.shares)
    more = f" +{len(names) - OTHERS_SHOWN}" if len(names) > OTHERS_SHOWN else ""
    return ", ".join(names[:OTHERS_SHOWN]) + more or "-"


def _reason(job: JobRun, machine: Timeline) -> str:
    """Return in words the time that a job lost beside others."""
    lost = job.duration - job.alone.total_ticks
    # The loss splits into longer communication and the rest: its NPUs ran another job.
    network = exposed(job.timeline) - exposed(job.alone)
    parts = [
        f"{format_time(nanoseconds(machine, ticks))} {what}"
        for ticks, what in ((network, "more in exposed communication"), (lost - network, "without its NPUs"))
        if ticks > 0
    ]
    text = f"{job.name} loses {format_time(nanoseconds(machine, lost))} beside others"
    return f"{text}: {', '.join(parts)}" if parts else text


def jobs_json(result: JobsResult) -> dict[str, Any]:
    """Return the report on the machine, see `to_json`, with the key ``jobs``."""
    return {**to_json(result.timeline), "jobs": [_job(job, result.timeline) for job in result.jobs]}


def write_jobs_json(result: JobsResult, path: str | os.PathLike[str]) -> None:
    """Write `jobs_json` to `path`, complete or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    write_text(path, json_text(jobs_json(result), indent=1, allow_nan=False) + "\n")


def _job(job: JobRun, machine: Timeline) -> dict[str, Any]:
    times = {
        "arrival": job.arrival, "start": job.start, "end": job.end, "duration": job.duration,
        "alone": job.alone.total_ticks, "exposed_communication": exposed(job.timeline),
        "exposed_communication_alone": exposed(job.alone),
    }  # fmt: skip
    row: dict[str, Any] = {"name": job.name, "ranks_count": len(job.npus), "npus": list(job.npus)}
    for name, ticks in times.items():
        row |= {f"{name}_ticks": ticks, f"{name}_ns": nanoseconds(machine, ticks)}
    row["memory"] = memory_fit(job.timeline)
    row["slowdown_ratio"] = job.slowdown
    row["shares_npus"] = [{"job": name, "npus_count": count} for name, count in job.shares.items()]
    return row
