"""A whole run as tables, as plain values, and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.base.pictures import check_picture, new_figure, save_figure
from armillary.base.units import format_time
from armillary.explore.sweep.measures import MEASURES
from armillary.explore.whole_run.failures import Failures
from armillary.explore.whole_run.goodput import best_interval, daly, young
from armillary.explore.whole_run.monte_carlo import Played, play
from armillary.explore.whole_run.run import WholeRun, Work, npu_years, whole_run

if TYPE_CHECKING:
    from rich.table import Table

BAR = 40


def duration(seconds: float) -> str:
    """Return a time for people: days above two, hours and minutes below."""
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.4g} {unit}"
    return "never" if math.isinf(seconds) else format_time(seconds * 1e9)


def run_table(run: WholeRun, failures: Failures | None, money: Mapping[str, float]) -> Table:
    """Return the run in numbers."""
    table = _plain()
    table.add_column()
    table.add_column()
    work = run.work
    if work.steps:
        table.add_row("steps", f"{work.steps:,.0f} of {duration(work.seconds / work.steps)}")
    table.add_row("without failures", _long(work.npus, work.seconds))
    if run.rate and failures:
        parts = ", ".join(
            f"{name} {duration(1 / rate)}" for name, rate in failures.rates(work.npus).items() if rate
        )
        table.add_row("mean time to failure", f"{duration(1 / run.rate)}: {parts}")
        table.add_row("restart", duration(run.recovery.restart))
        if run.recovery.spares is not None:
            text = f"{run.recovery.spares:,}, a repair takes {duration(run.recovery.repair)}"
            table.add_row("spare nodes", text)
        later = f", complete {duration(run.checkpoints.writing)} later" if run.checkpoints.writing else ""
        table.add_row("checkpoint", f"stops work for {duration(run.checkpoints.blocking)}{later}")
        known = {
            "best": best_interval(run.rate, run.checkpoints),
            "Young": young(run.rate, run.checkpoints),
            "Daly": daly(run.rate, run.checkpoints),
        }
        text = ", ".join(f"{name} {duration(value)}" for name, value in known.items())
        table.add_row("interval", f"{duration(run.interval)} ({text})")
        table.add_row("failures", f"{run.failures:,.0f} expected")
        table.add_row("with failures", _long(run.npus, run.seconds))
    for name, value in money.items():
        table.add_row(MEASURES[name].text.rstrip(".").lower(), MEASURES[name].show(value))
    return table


def bar_table(run: WholeRun, played: Played | None = None) -> Table:
    """Return the shares of time as a table with bars."""
    table = _plain(header=played is not None)
    table.add_column("where the time goes")
    table.add_column("share", justify="right")
    if played:
        table.add_column("played", justify="right")
    table.add_column("")
    for name, share in run.goodput.parts.items():
        if not share and name == "waiting for repair":
            continue
        cells = [name, f"{100 * share:.2f} %"]
        if played:
            cells.append(f"{100 * played.mean.parts[name]:.2f} ± {100 * played.error.parts[name]:.2f} %")
        table.add_row(*cells, "█" * round(BAR * share))
    return table


def describe(run: WholeRun, failures: Failures | None, money: Mapping[str, float]) -> dict[str, Any]:
    """Return the same as plain values; the last part of a key is the unit of its number."""
    forever = math.isinf(run.seconds)
    return {
        "schema": "armillary-whole-run",
        "version": 1,
        "npus_count": run.npus,
        "steps_count": run.work.steps or None,
        "without_failures_s": run.work.seconds,
        "run_s": None if forever else run.seconds,
        "npu_years": None if forever else run.npu_years,
        "mtbf_s": 1 / run.rate if run.rate else None,
        "failures_per_s": failures.rates(run.work.npus) if failures else {},
        "interval_s": None if math.isinf(run.interval) else run.interval,
        "goodput": {name.replace(" ", "_"): share for name, share in run.goodput.parts.items()},
        "measures": {name: {"value": value, "unit": MEASURES[name].unit} for name, value in money.items()},
    }


def draw(run: WholeRun, failures: Failures, path: Path) -> None:
    """Draw goodput against NPUs, each with its best interval, and against the interval, with played runs.

    Raises:
        InputError: matplotlib is missing, or the file cannot be written.
    """
    check_picture(path)
    figure = new_figure(11, 4.4)
    left, right = figure.subplots(1, 2)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_xscale("log")
        axes.set_ylabel("share of the time, %")
        axes.set_ylim(0, 100)
    _by_npus(left, run, failures)
    _by_interval(right, run)
    save_figure(figure, path, 130)


_COLOURS = ("#0072B2", "#E69F00", "#D55E00", "#999999", "#CC79A7")


def _by_npus(axes: Any, run: WholeRun, failures: Failures) -> None:
    # A range around the run, at least from 1,000 to 100,000 NPUs.
    low, high = math.log10(min(1000, run.work.npus)), math.log10(max(1e5, run.work.npus))
    sizes = [round(10 ** (low + (high - low) * i / 60)) for i in range(61)]
    found = [
        whole_run(Work(npus, 1.0), failures, run.checkpoints, run.recovery).goodput.parts for npus in sizes
    ]
    names = [name for name in found[0] if any(each[name] > 0 for each in found)]
    rows = [[100 * each[name] for each in found] for name in names]
    axes.stackplot(sizes, rows, labels=names, colors=_COLOURS)
    axes.axvline(run.work.npus, color="black", linewidth=0.8, linestyle=":")
    axes.set_xlim(sizes[0], sizes[-1])
    axes.set_xlabel("NPUs (checkpoints and restarts as long, at the best interval of each)")
    axes.set_title("Where the time goes", loc="left", fontsize=10, fontweight="bold")
    axes.legend(loc="lower left", fontsize=8)


def _by_interval(axes: Any, run: WholeRun) -> None:
    from armillary.explore.whole_run.goodput import goodput

    best = best_interval(run.rate, run.checkpoints)
    # Shorter intervals are impossible: writing takes longer than the interval.
    least = max(run.checkpoints.writing - run.checkpoints.blocking, best / 30)
    spans = [least * (best * 30 / least) ** (i / 80) for i in range(81)]
    useful = [100 * goodput(run.rate, t, run.checkpoints, run.recovery).useful for t in spans]
    axes.plot([t / 60 for t in spans], useful, color=_COLOURS[0], label="formula")
    # Nine points of the reference: enough to see agreement, and each plays 10 runs.
    for i in range(0, 81, 10):
        played = play(run.rate, spans[i], run.checkpoints, run.recovery, failures=200, runs=10)
        axes.errorbar(
            spans[i] / 60,
            100 * played.mean.useful,
            200 * played.error.useful,
            fmt="o",
            ms=4,
            capsize=3,
            color=_COLOURS[2],
            label="played, ± 2 standard errors" if i == 0 else None,
        )
    marks = {
        "best": (best, "-"),
        "Young": (young(run.rate, run.checkpoints), "--"),
        "Daly": (daly(run.rate, run.checkpoints), ":"),
    }
    for name, (value, style) in marks.items():
        axes.axvline(
            value / 60, color="black", linewidth=0.9, linestyle=style, label=f"{name} {duration(value)}"
        )
    axes.set_xlabel("interval between checkpoints, min")
    axes.set_title(f"Useful work, {run.work.npus:,} NPUs", loc="left", fontsize=10, fontweight="bold")
    axes.legend(loc="lower left", fontsize=8)


def _long(npus: int, seconds: float) -> str:
    if math.isinf(seconds):
        return "never done: failures leave no time for work"
    years = MEASURES["npu_years"].show(npu_years(npus, seconds))
    return f"{duration(seconds)}, {years} on {npus:,} NPUs"


def _plain(*, header: bool = False) -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD if header else None, show_header=header, show_edge=False, pad_edge=False)
