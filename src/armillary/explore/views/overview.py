"""A picture of a sweep: all charts, or one of them."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.pictures import check_picture, new_figure, save_figure
from armillary.explore.sweep.point import Row
from armillary.explore.views import charts
from armillary.explore.views.assumed import assumed_line
from armillary.explore.views.columns import Columns, columns_of, measure_text
from armillary.explore.views.reasons import LETTERS, reason_classes, status_line
from armillary.explore.views.slices import telling_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHARTS = ("all", "heat", "front", "parallel", "tornado", "axes")
_WIDTH = 12.0
_ACROSS = 4


def picture(
    rows: Sequence[Row],
    sweep: Any,
    path: str | os.PathLike[str],
    chart: str = "all",
    over: Sequence[str] | None = None,
) -> None:
    """Draw the results of a sweep.

    Args:
        rows: In any order.
        sweep: See `columns_of`.
        path: A .png, .svg or .pdf file, written complete or not at all.
        chart: One of `CHARTS`.
        over: The two axes of the heat map, across and up; by default those that change the first objective most.

    Raises:
        InputError: no row is ok, the chart needs more axes or objectives than there are, an axis or chart is not
            known, matplotlib is not installed, or the file cannot be written.
    """
    check_picture(path)
    if chart not in CHARTS:
        raise InputError(f"chart '{chart}': expected {one_of(CHARTS)}{nearest(chart, CHARTS)}")
    columns = columns_of(rows, sweep)
    pair = _pair(columns, over)
    _check(columns, path, chart, pair)
    from matplotlib import rc_context

    bands = _bands(columns, chart, pair)
    # The width of hatch lines is a global setting of matplotlib.
    with rc_context({"hatch.linewidth": 0.5}):
        figure = new_figure(_WIDTH, 0.7 + sum(height for height, _ in bands))
        head = f"{Path(columns.title).name}: {_answer(columns)}" if columns.title else _answer(columns)
        status = ". ".join(filter(None, (status_line(rows), assumed_line(rows))))
        head = "\n".join((*textwrap.wrap(head, 118, break_on_hyphens=False), status))
        figure.suptitle(head, fontsize=11, x=0.012, ha="left", fontweight="bold", parse_math=False)
        # A band per kind of chart; each lays out its own axes, so charts need not align.
        parts = figure.subfigures(
            len(bands), 1, height_ratios=[height for height, _ in bands], squeeze=False
        )[:, 0]
        for part, (_, draw) in zip(parts, bands, strict=True):
            draw(part)
        save_figure(figure, path, 110)


def _answer(columns: Columns) -> str:
    assert columns.best is not None
    goals = [
        f"{each.title} {measure_text(each.name, float(columns.measures[each.name][columns.best]))}"
        for each in columns.objectives
    ]
    return f"{', '.join(goals)} at {columns.described(columns.best)}"


def _pair(columns: Columns, over: Sequence[str] | None) -> tuple[int, int] | None:
    if over is None:
        return telling_axes(columns)
    if len(over) != 2 or over[0] == over[1]:
        raise InputError(f"heat map over {', '.join(over)}: expected two different axes")
    return columns.axis(over[0]), columns.axis(over[1])


def _check(columns: Columns, path: str | os.PathLike[str], chart: str, pair: object) -> None:
    missing = ""
    if columns.best is None:
        missing = "a point that is ok"
    elif chart == "front" and len(columns.objectives) < 2:
        missing = "two objectives for a Pareto front"
    elif chart == "heat" and pair is None:
        missing = "two axes that are varied for a heat map"
    if missing:
        raise InputError(f"{path}: nothing to draw, expected {missing}")


def _bands(columns: Columns, chart: str, pair: tuple[int, int] | None) -> list[tuple[float, Any]]:
    """Return (height in inches, function that draws into a part of the figure) from top to bottom."""
    several = len(columns.objectives) > 1
    made: list[tuple[float, Any]] = []
    tall = 1.2 + 0.42 * len(columns.varied)
    if chart in ("all", "heat", "front") and (pair or several):
        left = chart != "front" and pair is not None
        right = chart != "heat" and several
        high = (
            4.4
            if not left
            else max(3.4, 1.6 + 0.4 * min(len(columns.axes[pair[1]].values), 12) if pair else 0)
        )
        made.append((high, lambda part: _maps(part, columns, pair if left else None, right)))
    if chart in ("all", "parallel") and columns.varied:
        made.append((3.8, lambda part: charts.draw_parallel(part.subplots(), columns)))
    if chart in ("all", "tornado") and columns.varied:
        made.append((tall, lambda part: _tornados(part, columns)))
    if chart in ("all", "axes") and columns.varied:
        lines = -(-len(columns.varied) // _ACROSS)
        made.append((2.5 * lines, lambda part: _scatters(part, columns, lines)))
    return made


def _maps(part: Any, columns: Columns, pair: tuple[int, int] | None, front: bool) -> None:
    places: list[Axes] = list(part.subplots(1, (pair is not None) + front, squeeze=False)[0])
    if front:
        charts.draw_front(places[-1], columns)
    if pair is not None:
        reasons = reason_classes(columns.rows)
        used = charts.draw_heat(places[0], columns, *pair, reasons)
        lines = [f"{LETTERS[i]}  {_cut(reasons[number].title)}" for i, number in enumerate(used[:4])]
        if lines:
            places[0].set_xlabel(
                f"{places[0].get_xlabel()}\n" + "\n".join(lines), fontsize=9, parse_math=False
            )


def _cut(text: str, length: int = 76) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _tornados(part: Any, columns: Columns) -> None:
    assert columns.best is not None and columns.median is not None
    best, median = part.subplots(1, 2)
    charts.draw_tornado(best, columns, columns.best, "best point")
    charts.draw_tornado(median, columns, columns.median, "median point")


def _scatters(part: Figure, columns: Columns, lines: int) -> None:
    across = min(len(columns.varied), _ACROSS)
    # One vertical scale: the best of different axes can be compared.
    grid = part.subplots(lines, across, sharey=True, squeeze=False)
    places = grid.reshape(-1)
    objective = columns.objectives[0]
    for axes, axis in zip(places, columns.varied, strict=False):
        charts.draw_scatter(axes, columns, axis)
    charts.scale(places[0].yaxis, objective.name, columns.measures[objective.name][columns.ok])
    for axes in places[len(columns.varied) :]:
        axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel(objective.title, fontsize=9)
    part.suptitle(
        f"{objective.title.capitalize()} by axis: orange best, black median of a value",
        fontsize=10,
        x=0.012,
        ha="left",
    )
