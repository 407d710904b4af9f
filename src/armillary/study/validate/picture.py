"""Predicted against measured, a panel for each table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.errors import InputError
from armillary.files import replacing
from armillary.report.picture import check_picture
from armillary.study.reproduce.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from armillary.study.validate.accuracy import NEAR, accuracy, is_refused, verdict
from armillary.study.validate.show import percent
from armillary.study.validate.table import Row, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)
_MARKS = "os^Dv<"
_INK = "#555555"
_FEW = 2_000
"""More points than this are drawn as pixels into .svg and .pdf."""
_NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def picture(tables: Sequence[Table], path: Path) -> None:
    """Draw predicted over measured into a .png, .svg or .pdf file, both logarithmic, with a band of 10 %.

    Raises:
        InputError: no table, no matplotlib, an unknown suffix, or the file cannot be written.
    """
    check_picture(path)
    if not tables:
        raise InputError(f"{path}: nothing to draw, since no validation ran")
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(len(tables), max(3, math.ceil(math.sqrt(len(tables)))))
    down = math.ceil(len(tables) / across)
    suffix = path.suffix[1:].lower()
    # A fixed salt and no date give the same bytes for the same figure.
    with rc_context({"svg.hashsalt": "armillary"}), replacing(path) as temporary:
        figure = Figure(figsize=(3.6 * across + 0.4, 4.0 * down), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(down, across, squeeze=False).flat
        for axes, table in zip(panels, tables, strict=False):
            _draw(axes, table)
        for axes in list(figure.axes)[len(tables) :]:
            axes.remove()
        figure.savefig(temporary, format=suffix, dpi=150, metadata=_NO_DATE.get(suffix, {}))


def _draw(axes: Axes, table: Table) -> None:
    known = [row for row in table.rows if not is_refused(row)]
    found = accuracy(table.rows)
    axes.set_title(f"{table.name}\n", loc="left", fontsize=9, fontweight="bold")
    below = f"{table.relation}, {len(known):,} rows, mean {percent(found.mean)}, {verdict(table)}"
    axes.annotate(
        below, (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points", fontsize=8, color=_INK
    )
    axes.set_xlabel(f"measured, {table.unit}", fontsize=8)
    axes.set_ylabel(f"predicted, {table.unit}", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    if not known:
        axes.annotate("all rows refused", (0.5, 0.5), xycoords="axes fraction", ha="center", color=_INK)
        axes.set(xticks=[], yticks=[])
        return
    values = [value for row in known for value in (row.measured, row.predicted)]
    low, high = min(values) / 1.15, max(values) * 1.15
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    _ticks(axes, low, high)
    ends = [low, high]
    axes.fill_between(
        ends, [(1 - NEAR) * end for end in ends], [(1 + NEAR) * end for end in ends],
        color="#DDDDDD", linewidth=0, zorder=0,
    )  # fmt: skip
    axes.plot(ends, ends, color=GREY, linewidth=0.8, zorder=1)
    groups: dict[str, list[Row]] = {}
    for row in known:
        groups.setdefault(row.group, []).append(row)
    if not 1 < len(groups) <= len(_COLOURS):
        groups = {"": known}
    for (name, rows), colour, mark in zip(groups.items(), _COLOURS, _MARKS, strict=False):
        _points(axes, rows, name, colour, mark, len(known))
    if len(groups) > 1:
        axes.legend(
            fontsize=7,
            markerscale=1 if len(known) <= 100 else 3,
            frameon=False,
            loc="upper left",
            handletextpad=0.2,
            borderaxespad=0.2,
        )


def _points(axes: Axes, rows: Sequence[Row], name: str, colour: str, mark: str, of: int) -> None:
    stated = [row for row in rows if row.low <= row.high]
    if stated:
        axes.vlines(
            [row.measured for row in stated], [row.low for row in stated], [row.high for row in stated],
            color=colour, alpha=0.4, linewidth=1, rasterized=of > _FEW,
        )  # fmt: skip
    axes.scatter(
        [row.measured for row in rows], [row.predicted for row in rows],
        s=18 if of <= 100 else 8 if of <= _FEW else 2, alpha=0.8 if of <= 100 else 0.4,
        color=colour, marker=mark, linewidths=0, label=name, rasterized=of > _FEW, zorder=2,
    )  # fmt: skip


def _ticks(axes: Axes, low: float, high: float) -> None:
    """Write plain numbers: powers of ten, or 1, 2 and 5 of each where the range is short."""
    steps = (1,) if high > 50 * low else (1, 2, 5) if high > 3 * low else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    at = [step * 10.0**power for power in powers for step in steps]
    at = [value for value in at if low <= value <= high]
    axes.minorticks_off()
    if at:
        axes.set_xticks(at, [f"{value:,.10g}" for value in at], rotation=30)
        axes.set_yticks(at, [f"{value:,.10g}" for value in at])
