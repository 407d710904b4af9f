"""Case study 2 of ASTRA-sim 2.0 (ISPASS 2023): chunks that choose their way through the dimensions, after Themis.

The machines and workloads of case study 1; does a good schedule make machines of equal bandwidth per NPU equal?
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from armillary.study.reproduce.judge import by_count, joined, percent, share
from armillary.study.reproduce.outcome import Claim, Grid, Outcome
from armillary.study.reproduce.sources import CASE_2
from armillary.units import format_bandwidth, format_time

if TYPE_CHECKING:
    from armillary.platform.model import ChunkOrderName, InterDimension, IntraDimension, WithinDimensionName
    from armillary.trace import Trace

Times = dict[str, dict[str, dict[str, Time]]]
"""Workload -> machine -> schedule -> its time."""
SCHEDULES = ("baseline", "greedy", "optimiser")
ASTRA_SIM: dict[str, tuple[InterDimension, IntraDimension]] = {
    "baseline": ("ascending", "FIFO"),
    "Themis, FIFO": ("offlineGreedy", "FIFO"),
    "Themis, SCF": ("offlineGreedy", "smallestFirst"),
}
ONE = [name for name in MACHINES if name.startswith("W-1D")]
HUGE = 1.2
"""A gain from this factor on is called huge."""
SOME = 1.1
"""Exposed communication that shrinks by this factor is called a gain."""
UNCHANGED = 0.001
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
        physical = replace(
            platform.physical,
            chunk_order=cast("ChunkOrderName", order),
            within_dimension=cast("WithinDimensionName", chosen.within),
        )
        result[schedule] = measure(trace, replace(platform, physical=physical), "physical")
    return result


def _astra_sim(trace: Trace, name: str, chosen: Assumptions) -> dict[str, Time]:
    platform = machine(name, chosen, "astra-sim")
    return {
        schedule: measure(
            trace,
            replace(
                platform, system=replace(platform.system, inter_dimension=across, intra_dimension=within)
            ),
            "astra-sim",
        )
        for schedule, (across, within) in ASTRA_SIM.items()
    }


def _grid(workload: str, row: dict[str, dict[str, Time]]) -> Grid:
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
    changes = [
        abs(row[name][schedule].total / row[name]["baseline"].total - 1)
        for row in times.values()
        for name in ONE
        for schedule in SCHEDULES[1:]
    ]
    return Claim(
        "Scheduling makes no difference in W-1D",
        CASE_2,
        f"the time changes by at most {share(max(changes), 2)}",
        by_count(sum(change <= UNCHANGED for change in changes), len(changes)),
    )


def _gain(times: Times) -> Claim:
    row = times[ALL_REDUCE]
    gains = {name: row[name]["baseline"].total / row[name]["greedy"].total for name in EQUALS}
    found = joined([f"{name} {gain:.2f}x" for name, gain in gains.items()])
    return Claim(
        f"Huge gains (here: from {HUGE:g}x on) in W-2D, Conv-3D and Conv-4D",
        CASE_2,
        f"{ALL_REDUCE}, greedy: {found}",
        by_count(sum(gain >= HUGE for gain in gains.values()), len(gains)),
    )


def _gain_of_steps(times: Times, chosen: Assumptions) -> Claim:
    gains = {
        (workload, name): row[name]["baseline"].exposed / max(row[name]["greedy"].exposed, 1)
        for workload, row in times.items()
        if workload != ALL_REDUCE
        for name in EQUALS
    }
    good = [key for key, gain in gains.items() if gain >= SOME]
    text = f"exposed communication shrinks by {SOME:g}x or more in {len(good)} of {len(gains)} cases"
    if good:
        text += f", by {min(gains[key] for key in good):.2f}x to {max(gains[key] for key in good):.2f}x"
    bad = [f"{w} on {name}{_why(w, name, chosen)}" for w, name in gains if (w, name) not in good]
    if bad:
        text += f"; not for {joined(bad)}"
    return Claim("Training steps gain there, too", CASE_2, text, by_count(len(good), len(gains)))


def _near(times: Times, schedule: str, chosen: Assumptions) -> Claim:
    limit = NEAR[schedule]
    off = {(w, many): _ratio(row, many, schedule) for w, row in times.items() for many in EQUALS}
    far = {key: ratio for key, ratio in off.items() if abs(ratio - 1) > limit}
    worst = max(off, key=lambda key: abs(off[key] - 1))
    text = f"within {share(limit, 0)} in {len(off) - len(far)} of {len(off)} cases; "
    text += f"{_pair(*worst)} {percent(off[worst])} at most"
    if far:
        text += "; beyond: " + joined(
            [f"{w} on {many} {percent(ratio)}{_why(w, many, chosen)}" for (w, many), ratio in far.items()]
        )
    return Claim(
        f"At equal bandwidth per NPU times are near-identical, whatever the dimensions ({schedule}, {share(limit, 0)})",
        CASE_2,
        text,
        by_count(len(off) - len(far), len(off)),
    )


def _pair(workload: str, many: str) -> str:
    return f"{workload}, {many} to {EQUALS[many]}"


def _why(workload: str, name: str, chosen: Assumptions) -> str:
    """Return what no schedule can change, in brackets, or nothing."""
    if workload == "DLRM":
        return " (an all-to-all moves as much through the slowest dimension in any order)"
    tp = {"GPT-3": chosen.gpt_3_tp, "Transformer-1T": chosen.transformer_tp}.get(workload)
    if tp is None:
        return ""
    reached = total = 0.0
    inside = 1
    for block in MACHINES[name]:
        total += block.bandwidth
        reached += block.bandwidth if inside < tp else 0
        inside *= block.size
    if reached == total:
        return ""
    return f" (its {tp} tensor parallel ranks reach {format_bandwidth(reached)} of {format_bandwidth(total)})"


def _gain_in_astra_sim(astra: dict[str, dict[str, Time]]) -> Claim:
    gains = {
        name: times["baseline"].total / min(time.total for time in times.values())
        for name, times in astra.items()
    }
    found = joined([f"{name} {gain:.2f}x" for name, gain in gains.items()])
    good = [abs(gains[name] - 1) <= UNCHANGED for name in ONE] + [gains[name] >= HUGE for name in EQUALS]
    return Claim(
        "The same in the conventions of ASTRA-sim 2: no change in W-1D, huge gains in the others",
        CASE_2,
        f"{ALL_REDUCE}, the better Themis or the baseline: {found}",
        by_count(sum(good), len(good)),
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
