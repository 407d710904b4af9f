"""A picture of when jobs ran on a shared machine, and what sharing cost them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from armillary.base.pictures import check_picture, new_figure, save_figure
from armillary.report.job_tables import headline
from armillary.report.picture import time_unit
from armillary.report.plain import nanoseconds

if TYPE_CHECKING:
    from armillary.engine.multi_job import JobsResult

JOBS_SHOWN = 40
_ALONE, _LOST, _GREY = "#0072B2", "#D55E00", "#555555"


def jobs_picture(result: JobsResult, path: str | os.PathLike[str]) -> None:
    """Draw a bar per job over time: its time alone, then the time lost to other jobs, with the slow-down.

    Args:
        result: The jobs to draw; of many, the `JOBS_SHOWN` that arrive first.
        path: A .png, .svg or .pdf file, written complete or not at all.

    Raises:
        InputError: matplotlib is not installed, the suffix is another, or the file cannot be written.
    """
    check_picture(path)
    machine = result.timeline
    jobs = sorted(result.jobs, key=lambda job: job.arrival)[:JOBS_SHOWN]
    factor, unit = time_unit(nanoseconds(machine, machine.total_ticks))
    scale = float(nanoseconds(machine, 1)) * factor
    figure = new_figure(9.6, 1.5 + 0.42 * len(jobs))
    figure.suptitle(headline(result), fontsize=13, fontweight="bold", x=0.012, ha="left")
    axes = figure.subplots()
    for row, job in enumerate(jobs):
        # Never beyond the end: a job may take less time here than alone.
        alone = min(job.alone.total_ticks, job.duration)
        parts = (
            (job.arrival, alone, _ALONE, "as long as alone"),
            (job.arrival + alone, job.duration - alone, _LOST, "lost beside others"),
        )
        # Labels of the first row only: the legend has each once.
        for left, ticks, colour, label in parts:
            axes.barh(
                row, ticks * scale, left=left * scale, color=colour, height=0.62, label="" if row else label
            )
        axes.plot([job.arrival * scale] * 2, [row - 0.42, row + 0.42], color=_GREY, linewidth=1.2)
        axes.text(job.end * scale, row, f" {job.slowdown:.2f} x", va="center", fontsize=8, color=_GREY)
    axes.set_yticks(
        range(len(jobs)), [f"{job.name} ({len(job.npus):,})" for job in jobs], fontsize=9, parse_math=False
    )
    axes.set_ylim(len(jobs) - 0.45, -0.55)
    axes.set_xlim(0, (machine.total_ticks * scale or 1) * 1.1)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    more = f"; the first {len(jobs)} of {len(result.jobs):,}" if len(jobs) < len(result.jobs) else ""
    axes.set_title(f"Jobs (NPUs) with slow-down{more}", fontsize=10, loc="left", color=_GREY, pad=22)
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.008, 1.0), ncols=2, frameon=False, fontsize=9, borderaxespad=0.1
    )
    axes.set_xlabel(f"time ({unit}); a line marks the arrival")
    save_figure(figure, path)
