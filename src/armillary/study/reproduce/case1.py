"""Case study 1 of ASTRA-sim 2.0 (ISPASS 2023): wafers of one or two dimensions against conventional platforms.

All-Reduce, DLRM, GPT-3 and Transformer-1T on six machines of 512 NPUs; compute and exposed communication.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from armillary.study.reproduce import figures
from armillary.study.reproduce.assumptions import choice
from armillary.study.reproduce.case_machines import EQUALS, MACHINES, machine
from armillary.study.reproduce.case_workloads import (
    ALL_REDUCE,
    Time,
    WorkloadAssumptions,
    measure,
    workloads,
)
from armillary.study.reproduce.judge import by_count, joined, percent, verdict
from armillary.study.reproduce.outcome import Claim, Grid, Outcome
from armillary.study.reproduce.sources import PAPER_NOTES, TALK
from armillary.units import format_time

if TYPE_CHECKING:
    from armillary.platform.model import ProfileName

Times = dict[str, dict[str, Time]]
"""Workload -> machine -> its time."""
SPEEDUP = 2.51
"""Of a collective on a wafer, at most; of which pair of machines is not stated where we can read it."""
CLOSE = 0.1
"""Of a stated number that we find within this part of it, the claim holds."""


@dataclass(frozen=True)
class Assumptions(WorkloadAssumptions):
    """What the source does not say, and which of our profiles."""

    profile: str = choice(
        "physical",
        ("physical", "astra-sim"),
        "Profile physical shares the wires; astra-sim has the conventions of ASTRA-sim 2, in which the groups of GPT-3 "
        "and Transformer-1T form one ring each: it takes minutes, so the sweep leaves it out.",
        others=(),
    )


def run(chosen: Assumptions) -> Outcome:
    """Simulate every workload on every machine, and judge what the slides say."""
    profile = cast("ProfileName", chosen.profile)
    machines = {name: machine(name, chosen, profile) for name in MACHINES}
    times: Times = {
        workload: {name: measure(trace, platform, profile) for name, platform in machines.items()}
        for workload, trace in workloads(chosen).items()
    }
    return Outcome(
        f"Case study 1: wafers and conventional platforms of 512 NPUs, profile {profile}",
        tuple(_grid(workload, row) for workload, row in times.items()),
        (_best(times), _overhead(times), _strong(times), _speedup(times)),
        lambda figure: _draw(figure, times),
    )


def _grid(workload: str, row: dict[str, Time]) -> Grid:
    base = row["W-1D-600"].total
    return Grid(
        workload,
        ("machine", "time", "compute", "exposed comm.", "hidden comm.", "to W-1D-600"),
        tuple((name, *map(format_time, time), f"{time.total / base:.2f}") for name, time in row.items()),
    )


def _best(times: Times) -> Claim:
    fastest = {workload: min(row, key=lambda name: row[name].total) for workload, row in times.items()}
    good = sum(name.startswith("W-1D") for name in fastest.values())
    found = joined([f"{workload}: {name}" for workload, name in fastest.items()])
    return Claim("W-1D is the best machine", TALK, f"fastest for {found}", by_count(good, len(times)))


def _overhead(times: Times) -> Claim:
    ratios = {
        (workload, many, one): row[many].total / row[one].total
        for workload, row in times.items()
        for many, one in EQUALS.items()
    }
    ordered = sorted(ratios, key=lambda key: ratios[key])
    least, most = (
        f"{percent(ratios[key])} ({key[1]} and {key[2]}, {key[0]})" for key in (ordered[0], ordered[-1])
    )
    good = sum(ratio > 1 for ratio in ratios.values())
    return Claim(
        "Collectives over several dimensions have an overhead: with as much bandwidth per NPU, one is faster",
        TALK,
        f"true for {good} of {len(ratios)} pairs; the time differs by {least} to {most}",
        by_count(good, len(ratios)),
    )


def _strong(times: Times) -> Claim:
    others = ("W-2D", "Conv-3D")
    cases = [(workload, other) for workload in times for other in others]
    good = [times[w]["Conv-4D"].total < times[w][other].total for w, other in cases]
    behind = max(row["Conv-4D"].total / row["W-1D-600"].total for row in times.values())
    return Claim(
        "Conv-4D is still strong, by its bandwidth per NPU",
        TALK,
        f"faster than W-2D and Conv-3D in {sum(good)} of {len(good)} cases; its time is {percent(behind)} to that of "
        "W-1D-600 at worst",
        by_count(sum(good), len(good)),
    )


def _speedup(times: Times) -> Claim:
    row = times[ALL_REDUCE]
    wafers = [name for name in row if name.startswith("W-")]
    conventional = [name for name in row if name not in wafers]
    ratios = {(slow, fast): row[slow].total / row[fast].total for slow in conventional for fast in wafers}
    best = max(ratios, key=lambda pair: ratios[pair])
    near = min(ratios, key=lambda pair: abs(ratios[pair] - SPEEDUP))
    return Claim(
        f"A wafer speeds collectives up by up to {SPEEDUP}x",
        PAPER_NOTES,
        f"by up to {ratios[best]:.2f}x ({best[1]} against {best[0]}); nearest {ratios[near]:.2f}x ({near[1]} against "
        f"{near[0]}); which machines the paper means is not public",
        verdict(abs(ratios[best] / SPEEDUP - 1) <= CLOSE, ratios[best] > 1),
    )


def _draw(figure: Any, times: Times) -> None:
    panels = figures.panels(figure, list(times))
    for axes, row in zip(panels, times.values(), strict=True):
        parts = {
            "compute": [time.compute for time in row.values()],
            "exposed communication": [time.exposed for time in row.values()],
        }
        figures.stacked(axes, range(len(row)), parts, figures.STEP)
        axes.set_xticks(range(len(row)), list(row), rotation=90)
        figures.written(axes.yaxis, lambda value: format_time(value) if value else "0")
    panels[0].set_ylabel("time")
    figures.legend(figure)
