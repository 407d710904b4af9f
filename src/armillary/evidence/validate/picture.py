"""Predicted against measured, a panel for each table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.base.errors import InputError
from armillary.base.pictures import check_picture, new_figure, save_figure
from armillary.evidence.validate.accuracy import NEAR, accuracy, is_refused, verdict
from armillary.evidence.validate.show import percent
from armillary.evidence.validate.table import Row, Table
from armillary.report.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)
_MARKS = "os^Dv<"
_INK = "#555555"
_FEW = 2_000
"""More points than this are drawn as pixels into .svg and .pdf."""


def picture(tables: Sequence[Table], path: Path) -> None:
    """Draw predicted over measured into a .png, .svg or .pdf file, both logarithmic, and errors; grey is within 10 %.

    Raises:
        InputError: no table, no matplotlib, an unknown suffix, or the file cannot be written.
    """
    check_picture(path)
    if not tables:
        raise InputError(f"{path}: nothing to draw, since no validation ran")
    # About square, three panels at least.
    across = min(len(tables), max(3, math.ceil(math.sqrt(len(tables)))))
    down = math.ceil(len(tables) / across)
    figure = new_figure(3.6 * across + 0.4, 4.6 * down)
    # Each panel has two parts: values above, errors below.
    grid = figure.subplots(2 * down, across, squeeze=False, height_ratios=[3, 1] * down)
    pairs = [
        (grid[2 * row][column], grid[2 * row + 1][column]) for row in range(down) for column in range(across)
    ]
    # A panel may be left over: it is removed.
    for (above, below), table in zip(pairs, tables, strict=False):
        _draw(above, below, table)
    for pair in pairs[len(tables) :]:
        for axes in pair:
            axes.remove()
    save_figure(figure, path)


def _draw(above: Axes, below: Axes, table: Table) -> None:
    """Draw predicted over measured, and below the error over measured."""
    known = [row for row in table.rows if not is_refused(row)]
    found = accuracy(table.rows)
    above.set_title(f"{table.name}\n", loc="left", fontsize=9, fontweight="bold")
    what = f"{table.relation}, {len(known):,} rows, mean {percent(found.mean)}, {verdict(table)}"
    above.annotate(
        what, (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points", fontsize=8, color=_INK
    )
    above.set_ylabel(f"predicted, {table.unit}", fontsize=8)
    below.set_ylabel("error", fontsize=8)
    below.set_xlabel(f"measured, {table.unit}", fontsize=8)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    if not known:
        above.annotate("all rows refused", (0.5, 0.5), xycoords="axes fraction", ha="center", color=_INK)
        for axes in (above, below):
            axes.set(xticks=[], yticks=[])
        # Refused rows are left out of both scales.
        return
    values = [value for row in known for value in (row.measured, row.predicted)]
    low, high = min(values) / 1.15, max(values) * 1.15
    # Intervals may reach further than predictions.
    ends_of = ((row, value) for row in known for value in (row.predicted, row.low, row.high))
    far = 1.15 * max(NEAR, *(abs(value / row.measured - 1) for row, value in ends_of if math.isfinite(value)))
    above.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    below.set(xscale="log", xlim=(low, high), ylim=(-far, far))
    _ticks(above, below, low, high)
    ends = [low, high]
    # The same band of ±10 % in both parts.
    for axes, one, less in ((above, ends, 0.0), (below, [1.0, 1.0], 1.0)):
        under, middle, over = ([near * each - less for each in one] for near in (1 - NEAR, 1.0, 1 + NEAR))
        axes.fill_between(ends, under, over, color="#DDDDDD", linewidth=0, zorder=0)
        axes.plot(ends, middle, color=GREY, linewidth=0.8, zorder=1)
    groups: dict[str, list[Row]] = {}
    for row in known:
        groups.setdefault(row.group, []).append(row)
    # Too many groups for the palette: one colour.
    if not 1 < len(groups) <= len(_COLOURS):
        groups = {"": known}
    for (name, rows), colour, mark in zip(groups.items(), _COLOURS, _MARKS, strict=False):
        style = {"color": colour, "marker": mark, "label": name}
        _points(above, rows, [1.0] * len(rows), 0.0, style, len(known))
        _points(below, rows, [row.measured for row in rows], 1.0, style, len(known))
    if len(groups) > 1:
        above.legend(
            fontsize=7, markerscale=math.sqrt(18 / _size(len(known))), frameon=False, loc="upper left",
            handletextpad=0.2, borderaxespad=0.2,
        )  # fmt: skip


def _size(count: int) -> int:
    # Marks shrink with their number.
    return 18 if count <= 100 else 8 if count <= _FEW else 2


def _points(
    axes: Axes, rows: Sequence[Row], unit: Sequence[float], less: float, style: dict[str, Any], of: int
) -> None:
    """Draw ``predicted / unit - less``, with its interval."""
    low, at, high = (
        [value / one - less for value, one in zip(values, unit, strict=True)]
        for values in zip(*((row.low, row.predicted, row.high) for row in rows), strict=True)
    )
    x = [row.measured for row in rows]
    # Many points as pixels: a vector file of them would be slow.
    pixels = of > _FEW
    axes.vlines(x, low, high, color=style["color"], alpha=0.4, linewidth=1, rasterized=pixels)
    alpha = 0.8 if of <= 100 else 0.4
    axes.scatter(x, at, s=_size(of), alpha=alpha, linewidths=0, rasterized=pixels, zorder=2, **style)


def _ticks(above: Axes, below: Axes, low: float, high: float) -> None:
    """Write plain numbers: powers of ten, or 1, 2 and 5 of each where the range is short."""
    # Ten labels or fewer: powers of ten, or parts of them where the range is short.
    steps = (1,) if high > 50 * low else (1, 2, 5) if high > 3 * low else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    at = [step * 10.0**power for power in powers for step in steps]
    at = [value for value in at if low <= value <= high]
    texts = [f"{value:,.10g}" for value in at]
    above.set_yticks(at, texts)
    above.set_xticks(at, [""] * len(at))
    below.set_xticks(at, texts, rotation=30)
    above.minorticks_off()
    below.minorticks_off()
    below.yaxis.set_major_formatter(lambda value, _: f"{100 * value:+.0f} %" if value else "0 %")
