"""Case study 2 of ASTRA-sim 2.0 (ISPASS 2023): chunks that choose their way through the dimensions, after Themis.

The machines and workloads of case study 1; does a good schedule make machines of equal bandwidth per NPU equal?
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from armillary.base.units import format_bandwidth, format_time
from armillary.evidence.reproduce.assumptions import choice
from armillary.evidence.reproduce.case_machines import EQUALS, MACHINES, machine
from armillary.evidence.reproduce.case_workloads import (
    ALL_REDUCE,
    Time,
    WorkloadAssumptions,
    measure,
    workloads,
)
from armillary.evidence.reproduce.judge import Case, Expected, at_least, at_most, joined, percent, share
from armillary.evidence.reproduce.outcome import Claim, Grid, Outcome
from armillary.evidence.reproduce.sources import CASE_2, HUGE
from armillary.report import figures

if TYPE_CHECKING:
    from armillary.platform.model import InterDimension, IntraDimension, WithinDimensionName
    from armillary.trace import Trace

Times = dict[str, dict[str, dict[str, Time]]]
"""Workload -> machine -> schedule -> its time."""
SCHEDULES = ("baseline", "greedy", "optimiser")
# The greedy of the slides, with both orders within a dimension that Themis compares.
ASTRA_SIM: dict[str, tuple[InterDimension, IntraDimension]] = {
    "baseline": ("ascending", "FIFO"),
    "Themis, FIFO": ("offlineGreedy", "FIFO"),
    "Themis, SCF": ("offlineGreedy", "smallestFirst"),
}
ONE = [name for name in MACHINES if name.startswith("W-1D")]
SOME = 1.1
"""Exposed communication that shrinks by this factor is called a gain."""
# The source gives no number; 0.1 % is as good as no change.
UNCHANGED = 0.001
# Of the claim "near-identical": the greedy schedule may miss more than the optimiser.
NEAR = {"greedy": 0.08, "optimiser": 0.05}
COLOURS = {"baseline": figures.GREY, "greedy": figures.VERMILION, "optimiser": figures.BLUE}


@dataclass(frozen=True)
class Assumptions(WorkloadAssumptions):
    """What the source does not say."""

    greedy: str = choice(
        "themis",
        ("themis", "themis-flex", "online-greedy", "auto"),
        "Themis decides before the collective starts; the slides say only that it is greedy.",
    )
    within: str = choice(
        "smallest-first",
        ("smallest-first", "fifo", "earliest-phase"),
        "Which chunk a dimension serves first: the better one of the Themis paper (ISCA'22).",
    )


def run(chosen: Assumptions) -> Outcome:
    """Run every workload on every machine by every schedule, and judge what the slides say."""
    traces = workloads(chosen)
    times: Times = {
        workload: {name: _physical(trace, name, chosen) for name in MACHINES}
        for workload, trace in traces.items()
    }
    # One chunk at a time there: only the all-reduce, as training steps take minutes.
    astra = {name: _astra_sim(traces[ALL_REDUCE], name, chosen) for name in MACHINES}
    return Outcome(
        f"Case study 2: chunk scheduling on 512 NPUs; greedy is {chosen.greedy}, {chosen.within}",
        (
            *(_grid(workload, row) for workload, row in times.items()),
            _equal_grid(times),
            _astra_grid(astra),
        ),
        (
            _no_change(times),
            _gain(times),
            _gain_of_steps(times, chosen),
            _near(times, "greedy", chosen),
            _near(times, "optimiser", chosen),
            _gain_in_astra_sim(astra),
        ),
        lambda figure: _draw(figure, times),
    )


def _physical(trace: Trace, name: str, chosen: Assumptions) -> dict[str, Time]:
    platform = machine(name, chosen, "physical")
    result = {"baseline": measure(trace, platform, "physical")}
    for schedule, order in (("greedy", chosen.greedy), ("optimiser", "optimal")):
        collectives = replace(
            platform.collectives,
            chunk_order=order,
            within_dimension=cast("WithinDimensionName", chosen.within),
        )
        result[schedule] = measure(trace, replace(platform, collectives=collectives), "physical")
    return result


def _astra_sim(trace: Trace, name: str, chosen: Assumptions) -> dict[str, Time]:
    platform = machine(name, chosen, "astra-sim")
    return {
        schedule: measure(
            trace,
            replace(
                platform,
                astra_sim=replace(platform.astra_sim, inter_dimension=across, intra_dimension=within),
            ),
            "astra-sim",
        )
        for schedule, (across, within) in ASTRA_SIM.items()
    }


def _grid(workload: str, row: dict[str, dict[str, Time]]) -> Grid:
    # A collective alone is all exposed.
    exposed = () if workload == ALL_REDUCE else ("exposed", "exposed, greedy")
    rows = []
    for name, times in row.items():
        base, greedy, best = (times[schedule] for schedule in SCHEDULES)
        cells = [format_time(base.total)]
        for other in (greedy, best):
            cells += [format_time(other.total), f"{base.total / other.total:.2f}x"]
        if exposed:
            cells += [format_time(base.exposed), format_time(greedy.exposed)]
        rows.append((name, *cells))
    header = ("machine", "baseline", "greedy", "gain", "optimiser", "gain", *exposed)
    return Grid(f"{workload}, physical", header, tuple(rows))


def _equal_grid(times: Times) -> Grid:
    rows = [
        (f"{workload}, {many} to {one}", *(percent(_ratio(row, many, schedule)) for schedule in SCHEDULES))
        for workload, row in times.items()
        for many, one in EQUALS.items()
    ]
    return Grid("Times at equal bandwidth per NPU, physical", ("", *SCHEDULES), tuple(rows))


def _astra_grid(astra: dict[str, dict[str, Time]]) -> Grid:
    rows = []
    for name, times in astra.items():
        base, *others = (time.total for time in times.values())
        gains = (cell for time in others for cell in (format_time(time), f"{base / time:.2f}x"))
        rows.append((name, format_time(base), *gains))
    first, *rest = ASTRA_SIM
    header = ("machine", first, *(cell for name in rest for cell in (name, "gain")))
    return Grid(f"{ALL_REDUCE}, astra-sim, one chunk at a time in each dimension", header, tuple(rows))


def _ratio(row: dict[str, dict[str, Time]], many: str, schedule: str) -> float:
    return row[many][schedule].total / row[EQUALS[many]][schedule].total


def _no_change(times: Times) -> Claim:
    return Claim(
        "Scheduling makes no difference in W-1D",
        CASE_2,
        "by how much the time changes",
        tuple(
            Case(
                f"{workload}, {name}, {schedule}",
                _change(row[name][schedule], row[name]["baseline"]),
                _unchanged(),
            )
            for workload, row in times.items()
            for name in ONE
            for schedule in SCHEDULES[1:]
        ),
    )


def _unchanged() -> Expected:
    return at_most(UNCHANGED, lambda part: share(part, 2))


def _change(time: Time, base: Time) -> float:
    return abs(time.total / base.total - 1)


def _gain(times: Times) -> Claim:
    row = times[ALL_REDUCE]
    return Claim(
        "Huge gains in W-2D, Conv-3D and Conv-4D",
        CASE_2,
        f"of the all-reduce by the greedy schedule; huge is from {HUGE:g}x on here, no number is given",
        tuple(
            Case(name, row[name]["baseline"].total / row[name]["greedy"].total, at_least(HUGE))
            for name in EQUALS
        ),
    )


def _gain_of_steps(times: Times, chosen: Assumptions) -> Claim:
    cases = {
        (workload, name): Case(
            f"{workload} on {name}",
            # max(…, 1): nothing may be exposed at all.
            row[name]["baseline"].exposed / max(row[name]["greedy"].exposed, 1),
            at_least(SOME),
        )
        for workload, row in times.items()
        # The all-reduce has a claim of its own.
        if workload != ALL_REDUCE
        for name in EQUALS
    }
    # For cases that fail, say what no schedule could change.
    bad = [f"{case.name}{_why(*key, chosen)}" for key, case in cases.items() if not case.agrees]
    text = f"by how much exposed communication shrinks; from {SOME:g}x on it is a gain"
    if bad:
        text += f"; not for {joined(bad)}"
    return Claim("Training steps gain there, too", CASE_2, text, tuple(cases.values()))


def _near(times: Times, schedule: str, chosen: Assumptions) -> Claim:
    off = {(w, many): _ratio(row, many, schedule) for w, row in times.items() for many in EQUALS}
    cases = {
        key: Case(_pair(*key), abs(ratio - 1), at_most(NEAR[schedule], share)) for key, ratio in off.items()
    }
    worst = max(off, key=lambda key: abs(off[key] - 1))
    text = f"{_pair(*worst)} {percent(off[worst])} at most"
    far = [key for key, case in cases.items() if not case.agrees]
    if far:
        text += "; beyond: " + joined(
            [f"{w} on {many} {percent(off[w, many])}{_why(w, many, chosen)}" for w, many in far]
        )
    return Claim(
        f"At equal bandwidth per NPU times are near-identical, whatever the dimensions ({schedule})",
        CASE_2,
        text,
        tuple(cases.values()),
    )


def _pair(workload: str, many: str) -> str:
    return f"{workload}, {many} to {EQUALS[many]}"


def _why(workload: str, name: str, chosen: Assumptions) -> str:
    """Return what no schedule can change, in brackets, or nothing."""
    if workload == "DLRM":
        # Each NPU must send its share through that dimension, in whatever order.
        return " (an all-to-all moves as much through the slowest dimension in any order)"
    tp = {"GPT-3": chosen.gpt_3_tp, "Transformer-1T": chosen.transformer_tp}.get(workload)
    if tp is None:
        return ""
    # Bandwidth that a tensor-parallel group can reach: dimensions inside it, as it is innermost.
    reached = total = 0.0
    inside = 1
    for block in MACHINES[name]:
        total += block.bandwidth
        # A dimension counts if the group extends into it.
        reached += block.bandwidth if inside < tp else 0
        inside *= block.size
    if reached == total:
        return ""
    return f" (its {tp} tensor parallel ranks reach {format_bandwidth(reached)} of {format_bandwidth(total)})"


def _gain_in_astra_sim(astra: dict[str, dict[str, Time]]) -> Claim:
    cases = []
    for name, times in astra.items():
        # The better of both orders: the claim is about scheduling, not about one of them.
        best = min(times.values(), key=lambda time: time.total)
        if name in ONE:
            cases.append(Case(name, _change(best, times["baseline"]), _unchanged()))
        else:
            cases.append(Case(name, times["baseline"].total / best.total, at_least(HUGE)))
    return Claim(
        "The same in the conventions of ASTRA-sim 2: no change in W-1D, huge gains in the others",
        CASE_2,
        f"{ALL_REDUCE}, the better Themis or the baseline",
        tuple(cases),
    )


def _draw(figure: Any, times: Times) -> None:
    panels = figures.panels(figure, list(times), share=True)
    names = [f"{many}\nto {one}" for many, one in EQUALS.items()]
    for axes, row in zip(panels, times.values(), strict=True):
        ratios = {schedule: [_ratio(row, many, schedule) for many in EQUALS] for schedule in SCHEDULES}
        figures.grouped(axes, names, ratios, COLOURS)
        axes.tick_params(axis="x", labelsize=6)
        axes.axhline(1, color="black", linewidth=0.8)
    panels[0].set_ylabel("time to that of W-1D\nwith the same bandwidth per NPU")
    figures.legend(figure)
