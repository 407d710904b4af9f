"""Case study 1 of ASTRA-sim 2.0 (ISPASS 2023): wafers of one or two dimensions against conventional platforms.

All-Reduce, DLRM, GPT-3 and Transformer-1T on six machines of 512 NPUs; compute and exposed communication. Its second
half, larger wafers against more of them, is `wafer_scaling`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from armillary.base.units import format_time
from armillary.evidence.reproduce.assumptions import choice
from armillary.evidence.reproduce.case_machines import EQUALS, MACHINES, machine
from armillary.evidence.reproduce.case_workloads import Time, WorkloadAssumptions, measure, workloads
from armillary.evidence.reproduce.judge import Case, above, joined, percent
from armillary.evidence.reproduce.outcome import Claim, Grid, Outcome
from armillary.evidence.reproduce.sources import TALK
from armillary.report import figures

if TYPE_CHECKING:
    from armillary.platform.model import ProfileName

Times = dict[str, dict[str, Time]]
"""Workload -> machine -> its time."""


@dataclass(frozen=True)
class Assumptions(WorkloadAssumptions):
    """What the source does not say, and which of our profiles."""

    profile: str = choice(
        "physical",
        ("physical", "astra-sim"),
        "Profile physical shares link bandwidth; astra-sim has the conventions of ASTRA-sim 2, in which each group of "
        "GPT-3 and Transformer-1T forms one ring. It takes minutes, so the sweep omits it.",
        # No alternatives: astra-sim would take minutes in a sweep.
        others=(),
    )


def run(chosen: Assumptions) -> Outcome:
    """Simulate every workload on every machine, and judge what the slides say."""
    profile = cast("ProfileName", chosen.profile)
    # Machines are made once and serve all workloads.
    machines = {name: machine(name, chosen, profile) for name in MACHINES}
    times: Times = {
        workload: {name: measure(trace, platform, profile) for name, platform in machines.items()}
        for workload, trace in workloads(chosen).items()
    }
    return Outcome(
        f"Case study 1: wafers and conventional platforms of 512 NPUs, profile {profile}",
        tuple(_grid(workload, row) for workload, row in times.items()),
        (_best(times), _overhead(times), _strong(times)),
        lambda figure: _draw(figure, times),
    )


def _grid(workload: str, row: dict[str, Time]) -> Grid:
    # The largest wafer of one dimension is the yardstick of the slides.
    base = row["W-1D-600"].total
    return Grid(
        workload,
        ("machine", "time", "compute", "exposed comm.", "hidden comm.", "to W-1D-600"),
        tuple((name, *map(format_time, time), f"{time.total / base:.2f}") for name, time in row.items()),
    )


def _best(times: Times) -> Claim:
    cases = []
    for workload, row in times.items():
        ones = {name: time.total for name, time in row.items() if name.startswith("W-1D")}
        others = {name: time.total for name, time in row.items() if name not in ones}
        # The fastest of the others decides the claim.
        rival = min(others, key=lambda name: others[name])
        cases.append(Case(f"{workload} ({rival})", others[rival] / min(ones.values()), above(1)))
    return Claim(
        "W-1D is faster than all other machines", TALK, "against the fastest of the others", tuple(cases)
    )


def _overhead(times: Times) -> Claim:
    cases = [
        Case(f"{many}, {workload}", row[many].total / row[one].total, above(1))
        for workload, row in times.items()
        for many, one in EQUALS.items()
        # Pairs of equal bandwidth per NPU: what differs is the number of dimensions.
    ]
    least, most = (end(cases, key=lambda case: case.interval) for end in (min, max))
    return Claim(
        "Collectives over several dimensions have an overhead: with as much bandwidth per NPU, one is faster",
        TALK,
        f"least {least.name}, most {most.name}",
        tuple(cases),
    )


def _strong(times: Times) -> Claim:
    others = ("W-2D", "Conv-3D")
    cases = [
        Case(f"{workload}, {other}", row[other].total / row["Conv-4D"].total, above(1))
        for workload, row in times.items()
        for other in others
    ]
    # Worst over workloads, for the text; verdicts are from cases.
    behind = max(row["Conv-4D"].total / row["W-1D-600"].total for row in times.values())
    lost = joined([case.name for case in cases if not case.agrees])
    return Claim(
        "Conv-4D is still strong, by its bandwidth per NPU: faster than W-2D and Conv-3D",
        TALK,
        f"its time is {percent(behind)} to that of W-1D-600 at worst" + (f"; not {lost}" if lost else ""),
        tuple(cases),
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
