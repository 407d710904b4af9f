"""A picture of a run: the breakdown of each class, and the activity of one rank over time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.pictures import check_picture, new_figure, save_figure
from armillary.base.units import format_time
from armillary.engine.common.timeline import KINDS, Timeline
from armillary.report.communication import DimensionRow, dimensions
from armillary.report.critical import Late
from armillary.report.plain import class_name, class_sizes, nanoseconds
from armillary.report.summary import headline, roofline_alone
from armillary.report.time_breakdown import KINDS_OF, PARTS, TITLES, breakdown, union

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES_SHOWN = 12
_BINS = 600
# The palette of Okabe and Ito, which colour-blind readers can tell apart.
_COLOURS = {
    "compute": "#0072B2",
    "cpu": "#56B4E9",
    "communication": "#D55E00",
    "waiting": "#E69F00",
    "memory": "#CC79A7",
    "idle": "#E3E3E3",
}
_NETWORK = "#009E73"
_GREY = "#555555"


def breakdown_picture(timeline: Timeline, path: str | os.PathLike[str] | None = None) -> Figure | None:
    """Draw the breakdown of the slowest classes, and what the slowest one does over time.

    The upper part has a bar per class. The lower part has a row for each kind of work and for each
    network dimension, where the height is the share of its bandwidth in use.

    Args:
        timeline: What to draw.
        path: A .png, .svg or .pdf file, written complete or not at all; None: no file.

    Returns:
        Without a path matplotlib's figure.

    Raises:
        InputError: matplotlib is not installed, the suffix is another, or the file cannot be written.
    """
    if path is not None:
        check_picture(path)
    order = np.argsort(-timeline.finish, kind="stable")[:CLASSES_SHOWN].tolist()
    rows = _activity(timeline, order[0]) if order else []
    bars_height, rows_height = 0.45 + 0.36 * max(len(order), 1), 0.55 + 0.42 * len(rows)
    figure = new_figure(9.6, 1.25 + bars_height + (rows_height + 0.45 if rows else 0.0))
    figure.suptitle(headline(timeline), fontsize=13, fontweight="bold", x=0.012, ha="left")
    ratios = [bars_height, rows_height] if rows else [bars_height]
    axes = figure.subplots(len(ratios), 1, squeeze=False, height_ratios=ratios)[:, 0]
    scale, unit = time_unit(nanoseconds(timeline, timeline.total_ticks))
    _draw_bars(axes[0], timeline, order, scale)
    if rows:
        _draw_activity(axes[1], timeline, rows, scale)
        sizes = class_sizes(timeline)
        name = class_name(timeline, order[0], int(sizes[order[0]]))
        title = f"What {name} does over time"
        if any(colour == _NETWORK for _, colour, _ in rows):
            title += "; network dimensions: share of bandwidth in use"
        axes[1].set_title(title, fontsize=10, loc="left", color=_GREY)
    axes[-1].set_xlabel(f"time ({unit})")
    if path is None:
        return figure
    save_figure(figure, path)
    return None


def _draw_bars(axes: Axes, timeline: Timeline, order: list[int], scale: float) -> None:
    sizes = class_sizes(timeline)
    left = np.zeros(len(order))
    late = Late(timeline)
    found = [breakdown(timeline, cls, late) for cls in order]
    parts = {part: np.array([getattr(one, part) for one in found], dtype=float) for part in PARTS}
    total = nanoseconds(timeline, timeline.total_ticks) * scale
    for part, ticks in parts.items():
        if not ticks.any():
            continue
        width = ticks * float(nanoseconds(timeline, 1)) * scale
        axes.barh(range(len(order)), width, left=left, color=_COLOURS[part], label=TITLES[part], height=0.72)
        for row, one in enumerate(found):
            if width[row] > 0.06 * total > 0:
                # Text in the colour that contrasts with the part.
                ink = "black" if part in ("idle", "cpu", "memory", "waiting") else "white"
                share = f"{100 * ticks[row] / one.finish:.0f} %"
                axes.text(
                    left[row] + width[row] / 2, row, share, ha="center", va="center", color=ink, fontsize=8
                )
        left += width
    for row, one in enumerate(found):
        text = f" {format_time(nanoseconds(timeline, one.finish))}"
        axes.text(left[row], row, text, ha="left", va="center", fontsize=8, color=_GREY)
    axes.set_yticks(
        range(len(order)), [class_name(timeline, cls, int(sizes[cls])) for cls in order], fontsize=9
    )
    axes.set_ylim(max(len(order), 1) - 0.45, -0.55)
    _style(axes, total)
    many = len(timeline.finish)
    title = "Where the time goes"
    if many > len(order):
        title += f" ({len(order)} slowest of {many:,} classes of ranks)"
    title = ". ".join((title, *roofline_alone(timeline)))
    axes.set_title(title, fontsize=10, loc="left", color=_GREY, pad=24 if total else 6)
    if total:
        axes.legend(
            loc="lower left", bbox_to_anchor=(-0.008, 1.0), ncols=5, frameon=False, fontsize=9,
            borderaxespad=0.1, handlelength=1.0, handleheight=1.0, columnspacing=1.4,
        )  # fmt: skip


def _draw_activity(axes: Axes, timeline: Timeline, rows: list[tuple[str, str, Any]], scale: float) -> None:
    ns = float(nanoseconds(timeline, 1)) * scale
    for y, (_, colour, (edges, level)) in enumerate(rows):
        top = max(float(level.max(initial=0.0)), 1.0)
        # Steps: each inner edge twice, each level twice.
        x = np.repeat(edges * ns, 2)[1:-1]
        axes.fill_between(x, y + 0.38, y + 0.38 - 0.76 * np.repeat(level, 2) / top, color=colour, linewidth=0)
        axes.axhline(y + 0.38, color="#BBBBBB", linewidth=0.6, zorder=0)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows], fontsize=9, parse_math=False)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    _style(axes, nanoseconds(timeline, timeline.total_ticks) * scale)


def _activity(timeline: Timeline, cls: int) -> list[tuple[str, str, tuple[NDArray[Any], NDArray[Any]]]]:
    """Return (name, colour, (bin edges in ticks, level per bin)) of the rows of the lower part."""
    table, (start, end), finish = timeline.table(cls), timeline.spans(cls), int(timeline.finish[cls])
    if not finish:
        return []
    rows = []
    for part, kinds in KINDS_OF.items():
        chosen = np.isin(table.kind, [KINDS.index(kind) for kind in kinds])
        busy = union(start[chosen], end[chosen])
        if len(busy[0]):
            # One unit per tick while busy makes the rate the share of a bin that was busy.
            rows.append((part.replace("cpu", "CPU"), _COLOURS[part], _rate(*busy, busy[1] - busy[0], finish)))
    mine = timeline.phases(cls)
    for row in dimensions(timeline, cls):
        phases = mine[timeline.phase_dim[mine] == row.index]
        if len(phases):
            begins, ends = timeline.phase_start[phases], timeline.phase_end[phases]
            edges, rate = _rate(begins, ends, timeline.phase_bytes[phases], finish)
            rate = rate / float(nanoseconds(timeline, 1))
            if timeline.info.get("profile") == "physical" and row.capacity:
                # Bytes are spread over a phase including its latency, during which the next phase already transfers.
                rate = np.minimum(rate, row.capacity)
            rows.append((_dimension_name(row, rate), _NETWORK, (edges, _share(row, rate))))
    return rows


def _share(row: DimensionRow, rate: NDArray[Any]) -> NDArray[Any]:
    """Return rates as shares of the capacity, or of the highest rate where the capacity is unknown."""
    # Without a capacity the row shows only the course, scaled to its maximum.
    whole = row.capacity or float(rate.max(initial=0.0)) or 1.0
    return np.asarray(rate / whole)


def _dimension_name(row: DimensionRow, rate: NDArray[Any]) -> str:
    name = row.name if len(row.name) <= 18 else f"{row.name[:17]}…"
    if not row.capacity:
        return name
    return f"{name}\npeak {100 * float(rate.max(initial=0.0)) / row.capacity:.0f} %"


def _rate(
    start: NDArray[np.int64], end: NDArray[np.int64], amount: NDArray[np.int64], finish: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return bin edges in ticks, and the rate per tick in each bin of amounts spread over their intervals.

    Bins are exact where the rate changes at few ticks, else of equal width.
    """
    real = end > start
    start, end, amount = start[real], end[real], amount[real]
    ticks, group = np.unique(np.concatenate((start, end, [0, finish])), return_inverse=True)
    rate = amount / (end - start)
    steps = np.bincount(group, weights=np.concatenate((rate, -rate, [0.0, 0.0])))
    # Differences of floats may leave a tiny negative rest.
    slope = np.maximum(np.cumsum(steps)[:-1], 0.0)
    if len(ticks) <= _BINS:
        return ticks, slope
    edges = np.linspace(0, finish, _BINS + 1)
    # The cumulative amount at bin edges gives bins whose sums are exact.
    reached = np.concatenate(([0.0], np.cumsum(slope * np.diff(ticks))))
    return edges, np.diff(np.interp(edges, ticks, reached)) / np.diff(edges)


def _style(axes: Axes, total: float) -> None:
    axes.set_xlim(0, total * 1.1 if total else 1)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)


def time_unit(ns: float) -> tuple[float, str]:
    """Return (factor from ns, name) of the unit for the axes, the one that `format_time` takes."""
    unit = format_time(ns).split()[1]
    return {"ns": 1.0, "µs": 1e-3, "ms": 1e-6, "s": 1e-9}[unit], unit
