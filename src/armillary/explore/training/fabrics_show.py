"""A comparison of machines for people, for JSON, and as a picture."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from armillary.base.pictures import check_picture, new_figure, save_figure
from armillary.base.units import format_count
from armillary.explore.training.fabrics import Fabric, Fabrics, Verdict
from armillary.explore.training.prediction import BY_LEVELS, memory_text, plan_text, seconds_text
from armillary.report.figures import BLUE, GREY, ORANGE, legend, panels, written

if TYPE_CHECKING:
    from rich.table import Table


def headline(found: Fabrics) -> str:
    """Return which machine is the fastest, and which of the others the model cannot tell from it."""
    best = found.fastest
    alike = [
        each.name for each, verdict in zip(found.fabrics, found.verdicts, strict=True)
        if each is not best and not verdict.differs
    ]  # fmt: skip
    text = f"Fastest: {best.name}, step {seconds_text(best.prediction.step_time_s)}"
    text += (
        f"; the model cannot tell {' and '.join(alike)} from it" if alike
        else "; the others are slower by more than the model can tell"
    )  # fmt: skip
    graphs = [each.name for each in found.fabrics if each.prediction.approximate]
    said = ", ".join(graphs) if len(graphs) < len(found.fabrics) else "all"
    return f"{text}; {BY_LEVELS} ({said})" if graphs else text


def fabrics_table(found: Fabrics) -> Table:
    """Return a row for each machine."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in (
        "machine", "NPUs", "step", "90 % interval", "lower bound", "against the fastest", "cost a year", "power"
    ):  # fmt: skip
        table.add_column(name, justify="left" if name == "machine" else "right")
    for each, verdict in zip(found.fabrics, found.verdicts, strict=True):
        low, high = each.prediction.interval_s
        table.add_row(
            each.name, format_count(each.prediction.machine.npus), seconds_text(each.prediction.step_time_s),
            f"{seconds_text(low)} to {seconds_text(high)}", seconds_text(each.bound_s),
            _against(verdict, each is found.fastest),
            _cost(each),
            "not known" if each.power_w is None else f"{each.power_w / 1e3:,.4g} kW",
        )  # fmt: skip
    return table


def notes(found: Fabrics) -> list[str]:
    """Return the plan of each machine, and what its numbers do not have in them, a line each."""
    lines = [f"Plan of {each.name}: {plan_text(each.prediction.plan)}" for each in found.fabrics]
    lines += [
        f"Memory of {each.name}: {memory_text(each.prediction)}"
        for each in found.fabrics if not each.prediction.memory.fits
    ]  # fmt: skip
    said: dict[str, list[str]] = {}
    for each in found.fabrics:
        for text in each.prediction.assumptions:
            said.setdefault(text, []).append(each.name)
    lines += [f"Assumed of {', '.join(names)}: {text}" for text, names in said.items()]
    devices = dict.fromkeys(each.prediction.machine.device or each.name for each in found.fabrics)
    if found.same_costs and len(devices) > 1:
        lines.append(
            f"Costs: {', '.join(devices)} are taken to cost the same: one file of costs for all machines"
        )
    lines += [f"Network of {each.name}: {'; '.join(each.bill)}" for each in found.fabrics if each.bill]
    missing: dict[str, list[str]] = {}
    for each in found.fabrics:
        for text in each.unknown:
            missing.setdefault(text, []).append(each.name)
    lines += [f"Not in the cost of {', '.join(names)}: {text}" for text, names in missing.items()]
    return lines


def fabrics_json(found: Fabrics) -> dict[str, Any]:
    """Return the comparison as plain values, in s, USD and W."""
    return {
        "fastest": found.fastest.name,
        "machines": [
            {
                "machine": each.name,
                "npus": each.prediction.machine.npus,
                "step_time_s": each.prediction.step_time_s,
                "interval_s": list(each.prediction.interval_s),
                "bound_s": each.bound_s,
                "slower_ratio": verdict.slower,
                "slower_interval_ratio": list(verdict.interval),
                "differs": verdict.differs,
                "errors_cancel": verdict.shared,
                "approximate": each.prediction.approximate,
                "cost_per_year_usd": each.cost_per_year,
                "cost_per_year_high_usd": each.cost_high,
                "switches_and_cables": list(each.bill),
                "power_w": each.power_w,
                "not_in_the_cost": list(each.unknown),
                "software": each.prediction.software.name,
                "plan": plan_text(each.prediction.plan),
                "fits": each.prediction.memory.fits,
                "assumptions": list(each.prediction.assumptions),
            }
            for each, verdict in zip(found.fabrics, found.verdicts, strict=True)
        ],
    }


def picture(found: Fabrics, path: str | os.PathLike[str]) -> None:
    """Draw the steps with their intervals and bounds, and the costs per year as far as they are known.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    check_picture(path)
    costs = any(each.cost_per_year is not None for each in found.fabrics)
    figure = new_figure(9.6, 1.6 + 0.45 * len(found.fabrics))
    figure.suptitle(headline(found), fontsize=11, fontweight="bold", x=0.012, ha="left")
    left, *right = panels(figure, ("Step", "Cost per year")[: 1 + costs])
    rows = range(len(found.fabrics))
    times = [each.prediction.step_time_s for each in found.fabrics]
    ends = [each.prediction.interval_s for each in found.fabrics]
    left.barh(rows, times, 0.6, color=BLUE, label="step")
    left.barh(rows, [each.bound_s for each in found.fabrics], 0.6, color=GREY, label="lower bound")
    spans = [[time - low for time, (low, _) in zip(times, ends, strict=True)],
             [high - time for time, (_, high) in zip(times, ends, strict=True)]]  # fmt: skip
    left.errorbar(times, rows, xerr=spans, fmt="none", ecolor="black", capsize=3, label="90 % interval")
    written(left.xaxis, seconds_text)
    for axes in right:
        axes.barh(rows, [(each.cost_per_year or 0) / 1e6 for each in found.fabrics], 0.6, color=ORANGE)
        written(axes.xaxis, lambda value: f"${value:g} M")
    for axes in (left, *right):
        axes.set_yticks(rows, [each.name for each in found.fabrics] if axes is left else [])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
    legend(figure)
    save_figure(figure, path)


def _cost(fabric: Fabric) -> str:
    if fabric.cost_per_year is None or fabric.cost_high is None:
        return "not known"
    low, high = (f"{cost / 1e6:,.2f}" for cost in (fabric.cost_per_year, fabric.cost_high))
    return f"${low} M" if low == high else f"${low} to {high} M"


def _against(verdict: Verdict, fastest: bool) -> str:
    if fastest:
        return "the fastest"
    low, high = (f"{100 * each:+.0f}" for each in verdict.interval)
    word = "" if verdict.differs else ", not told apart"
    return f"{100 * verdict.slower:+.1f} % ({low} to {high}){word}"
