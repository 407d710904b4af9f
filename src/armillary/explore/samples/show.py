"""Samples of a step as a headline, as tables, and as a picture."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from armillary.base.pictures import check_picture, new_figure, save_figure
from armillary.base.units import format_count, format_time
from armillary.explore.samples.quantiles import LEVELS
from armillary.explore.samples.result import Samples
from armillary.report.figures import BLUE, GREY, ORANGE, VERMILION, panels, written

if TYPE_CHECKING:
    from rich.table import Table

BINS = 30
_COLOURS = dict(zip(LEVELS, (BLUE, ORANGE, VERMILION), strict=True))


def headline(found: Samples) -> str:
    """Return the quantiles, and the step without variation, in one line."""
    parts = ", ".join(f"{name} {format_time(found.quantile(name))}" for name in LEVELS)
    return (
        f"Step: {parts} ({len(found.ticks):,} samples, seed {found.seed}); "
        f"{format_time(found.plain)} without variation"
    )


def notes(found: Samples) -> list[str]:
    """Return how the samples were found, and what is known of the errors, a line each."""
    lines = [
        f"Draws: {found.distinct:,} of {found.npus:,} NPUs differ in the first sample, which makes "
        f"{format_count(found.classes)} classes of ranks"
    ]
    if found.method == "simulated":
        lines.append("Method: each sample is simulated")
    else:
        lines.append(
            "Method: one step is simulated and its times are computed anew for each sample; transfers that overlap "
            f"share ports as they did there. On {found.checks} machines of fewer different NPUs, which were simulated, "
            f"this is off by at most {_percent(found.retiming_error or 0)}"
        )
    if found.levels_error is not None:
        lines.append(
            "Levels: drawn without levels the steps of the first samples differ by at most "
            f"{_percent(found.levels_error)}"
        )
    unsaid = [cause.name for cause in found.causes if not cause.source]
    if unsaid:
        lines.append(f"No source: {', '.join(unsaid)} say not where the numbers are from")
    return lines


def quantile_table(found: Samples) -> Table:
    """Return each quantile with its interval and what it is over the step without variation."""
    table = _plain()
    for name in ("quantile", "step", "90 % interval", "over the step without variation"):
        table.add_column(name, justify="left" if name == "quantile" else "right")
    for name in LEVELS:
        low, high = found.interval(name)
        ticks = found.quantile(name)
        ends = (
            f"{format_time(low)} to {format_time(high)}" if low is not None and high is not None
            else f"{format_time(low)} or more" if low is not None
            else f"{format_time(high)} or less" if high is not None else "too few samples"
        )  # fmt: skip
        table.add_row(name, format_time(ticks), ends, _signed((ticks - found.plain) / max(found.plain, 1)))
    return table


def cause_table(found: Samples) -> Table:
    """Return by how much each cause moves each quantile: with all causes, less without this one."""
    table = _plain()
    table.add_column("cause")
    table.add_column("distribution")
    for name in LEVELS:
        table.add_column(f"moves {name}", justify="right")
    table.add_column("source")
    for cause in found.causes:
        moved = [found.moved(cause, name) for name in LEVELS]
        table.add_row(cause.name, cause.says, *map(_time, moved), cause.source or "not said")
    return table


def picture(found: Samples, path: str | os.PathLike[str]) -> None:
    """Draw the samples, their quantiles, and what each cause moves.

    Raises:
        InputError: matplotlib is not installed, or the file cannot be written.
    """
    check_picture(path)
    figure = new_figure(9.6, 3.6)
    figure.suptitle(headline(found), fontsize=11, fontweight="bold", x=0.012, ha="left")
    titles = ("Samples", "What a cause moves a quantile by")[: 2 if found.causes else 1]
    left, *right = panels(figure, titles)
    left.hist(found.ticks, bins=BINS, color=GREY)
    left.axvline(found.plain, color="black", linewidth=1, linestyle=":", label="without variation")
    for name, colour in _COLOURS.items():
        left.axvline(found.quantile(name), color=colour, linewidth=1.6, label=name)
    written(left.xaxis, format_time)
    left.tick_params(axis="x", rotation=20)
    left.set_ylabel("samples", fontsize=8)
    left.legend(frameon=False, fontsize=8, loc="upper center")
    for axes in right:
        height = 0.8 / len(LEVELS)
        for place, (name, colour) in enumerate(_COLOURS.items()):
            at = [row + (place - 1) * height for row in range(len(found.causes))]
            axes.barh(
                at, [found.moved(cause, name) for cause in found.causes], height, color=colour, label=name
            )
        axes.set_yticks(range(len(found.causes)), [cause.name.replace("_", " ") for cause in found.causes])
        # One cause alone would fill the panel.
        axes.set_ylim(max(len(found.causes), 2) - 0.5, -0.6)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x", color="#DDDDDD", linewidth=0.6)
        written(axes.xaxis, _time)
        axes.tick_params(axis="x", rotation=20)
    save_figure(figure, path)


def _time(ticks: float) -> str:
    return f"-{format_time(-ticks)}" if ticks < 0 else format_time(ticks)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %"


def _plain() -> Table:
    from rich.table import Table

    return Table(box=None, header_style="bold", pad_edge=False)
