"""Charts of a sweep on matplotlib axes: heat map, Pareto front, parallel coordinates, tornado, scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.explore.sweep.measures import MEASURES
from armillary.explore.views.columns import Columns, measure_text
from armillary.explore.views.reasons import LETTERS, ReasonClass
from armillary.explore.views.slices import heat, swings
from armillary.report.figures import BLUE, GREY, ORANGE, VERMILION, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES_DRAWN = 1_500
_TICKS = 12
_LONG = 14
_INK = "#555555"
_WIDE = 5.0
"""Ratio of the largest to the smallest value above which colours follow logarithms."""


def titled(axes: Axes, title: str, below: str = "") -> None:
    """Write a title, and below it in grey how to read the chart."""
    axes.set_title(f"{title}\n" if below else title, loc="left", fontsize=10, fontweight="bold")
    if below:
        axes.annotate(
            below,
            (0, 1),
            (0, 4),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=8,
            color=_INK,
        )
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def draw_heat(axes: Axes, columns: Columns, x: int, y: int, reasons: Sequence[ReasonClass]) -> list[int]:
    """Draw the best value of the first objective over two axes; return the reasons that its letters stand for."""
    found = heat(columns, x, y, reasons)
    name = columns.objectives[0].name
    values = np.where(found.best >= 0, columns.measures[name][found.best], np.nan)
    known = np.isfinite(values)
    small, large = (float(values[known].min()), float(values[known].max())) if known.any() else (0.0, 1.0)
    from matplotlib.colors import LogNorm, Normalize

    # A linear scale would give all but the largest values one colour.
    norm = LogNorm(small, large) if small > 0 and large > _WIDE * small else Normalize(small, large)
    less = columns.objectives[0].better == "less"
    # Dark is best in both directions.
    colours = "viridis" if less else "viridis_r"
    # Origin below, so that values of y ascend upwards as on any axis.
    shown = axes.imshow(np.ma.masked_invalid(values), cmap=colours, norm=norm, aspect="auto", origin="lower")
    bar = axes.figure.colorbar(shown, ax=axes, pad=0.02)
    bar.ax.tick_params(labelsize=8)
    scale(bar.ax.yaxis, name, values[known], _WIDE)
    # Numbers fit into cells up to 8 × 8, letters up to 20 × 20.
    few = values.size <= 64
    used: list[int] = []
    for row, column in np.ndindex(*values.shape):
        where = (column, row)
        if known[row, column]:
            if few:
                level = norm(values[row, column])
                # Text in the colour that stands out from the cell.
                dark = level < 0.6 if less else level > 0.4
                axes.annotate(
                    _short(name, float(values[row, column])), where, ha="center", va="center",
                    fontsize=7, color="white" if dark else "black",
                )  # fmt: skip
            continue
        # No ok point here: hatched, with a letter for the commonest reason; -1 is no point at all.
        number = int(found.blocked[row, column])
        if number < 0:
            continue
        axes.add_patch(_hatched(where))
        if number not in used:
            used.append(number)
        if values.size <= 400:
            axes.annotate(
                _letter(used.index(number)), where, ha="center", va="center", fontsize=8, color=_INK,
                bbox={"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": "none"},
            )  # fmt: skip
    _mark_best(axes, columns, x, y)
    _ticks(axes.xaxis, columns.axes[x].texts)
    _ticks(axes.yaxis, columns.axes[y].texts)
    axes.set(xlabel=columns.axes[x].name, ylabel=columns.axes[y].name)
    titled(
        axes,
        f"{columns.objectives[0].title.capitalize()}",
        "dark: best, over all other axes; hatched: no point is ok",
    )
    axes.spines[:].set_visible(False)
    return used


def _letter(place: int) -> str:
    return LETTERS[place] if place < len(LETTERS) else "…"


def _hatched(where: tuple[int, int]) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(
        (where[0] - 0.5, where[1] - 0.5),
        1,
        1,
        facecolor="#F4F4F4",
        edgecolor="#C8C8C8",
        hatch="////",
        linewidth=0,
    )


def _mark_best(axes: Axes, columns: Columns, x: int, y: int) -> None:
    from matplotlib.patches import Rectangle

    if columns.best is None:
        return
    # Best by the first objective, which the map shows, not by Pareto rank.
    first = columns.order[int(np.argmin(columns.cost[columns.order, 0]))]
    column, row = columns.codes[first, x], columns.codes[first, y]
    if min(column, row) >= 0:
        axes.add_patch(
            Rectangle((column - 0.48, row - 0.48), 0.96, 0.96, fill=False, edgecolor=VERMILION, linewidth=2)
        )


def _ticks(axis: Any, texts: Sequence[str]) -> None:
    # Every n-th label, so that at most `_TICKS` remain readable.
    step = -(-len(texts) // _TICKS)
    chosen = range(0, len(texts), step)
    axis.set_ticks(list(chosen), [_cut(texts[i]) for i in chosen])
    axis.set_tick_params(length=0)


def _cut(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def draw_front(axes: Axes, columns: Columns, x: int = 0, y: int = 1) -> None:
    """Draw all ok points by two objectives, with their Pareto front."""
    names = columns.objectives[x].name, columns.objectives[y].name
    across, up = columns.measures[names[0]], columns.measures[names[1]]
    rest = columns.ok & (columns.pareto > 0)
    dot = _dot(columns)
    axes.scatter(
        across[rest],
        up[rest],
        s=dot,
        color=GREY,
        alpha=0.35 if dot < 10 else 0.7,
        linewidth=0,
        rasterized=True,
    )
    front = np.flatnonzero(columns.pareto == 0)
    front = front[np.argsort(across[front], kind="stable")]
    # A front of three objectives is no line in a plane of two of them.
    joined = len(columns.objectives) == 2
    # Steps, since nothing between two points of the front is known to be reachable.
    axes.plot(
        across[front], up[front], color=VERMILION, marker="o", markersize=4, linewidth=1.2 if joined else 0,
        drawstyle="steps-post" if columns.objectives[x].better == "less" else "steps-pre",
    )  # fmt: skip
    for axis, name, values in ((axes.xaxis, names[0], across), (axes.yaxis, names[1], up)):
        scale(axis, name, values[columns.ok])
    axes.set_xlabel(_with_way(columns, x))
    axes.set_ylabel(_with_way(columns, y))
    many = f"{len(front):,} of {int(columns.ok.sum()):,} points"
    titled(axes, "Pareto front", f"{many}" + ("" if joined else f", of {len(columns.objectives)} objectives"))
    axes.grid(color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)


def _with_way(columns: Columns, which: int) -> str:
    each = columns.objectives[which]
    return f"{each.title} ({each.better} is better)"


def scale(axis: Any, name: str, values: NDArray[np.float64], wide: float = 12.0) -> None:
    """Make a scale logarithmic if the largest value is more than `wide` times the smallest; label it with units."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    # Locators choose round numbers of the shown unit, such as 32 GiB, not of bytes.
    unit = _unit(name, float(np.abs(values).max(initial=0.0)))

    class Linear(MaxNLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            return np.asarray(super().tick_values(vmin / unit, vmax / unit)) * unit

    class Logarithmic(LogLocator):
        def tick_values(self, vmin: float, vmax: float) -> Any:
            return np.asarray(super().tick_values(vmin / unit, vmax / unit)) * unit

    if len(values) and values.min() > 0 and values.max() > wide * values.min():
        if axis.get_scale() != "log":
            getattr(axis.axes, f"set_{axis.axis_name}scale")("log")
        # Over less than 2.5 decades, ticks at 1, 2 and 5; sizes go by powers of 2.
        few = np.log10(values.max() / values.min()) < 2.5
        binary = name in MEASURES and MEASURES[name].unit == "byte"
        base, subs = (2.0, (1.0,)) if binary else (10.0, (1.0, 2.0, 5.0) if few else (1.0,))
        axis.set_major_locator(Logarithmic(base, subs, numticks=8))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(Linear(5))
    written(axis, lambda value: measure_text(name, value))


def _unit(name: str, largest: float) -> float:
    """Return the unit in which numbers of a measure are round: a power of 1024 bytes, a day, or 1."""
    base = MEASURES[name].unit if name in MEASURES else ""
    if base == "byte":
        return float(2.0 ** (10 * int(np.log2(max(largest, 1.0)) // 10)))
    return 86400.0 if base == "s" and largest >= 2 * 86400 else 1.0


def _short(name: str, value: float) -> str:
    """Return a measure in 3 digits of its unit."""
    unit = _unit(name, abs(value))
    return measure_text(name, float(f"{value / unit:.3g}") * unit)


def draw_parallel(axes: Axes, columns: Columns) -> None:
    """Draw ok points as lines over the varied axes and the objectives, coloured by rank in the first objective."""
    from matplotlib.collections import LineCollection

    # By the first objective: colour and choice of lines follow it.
    order = columns.order[np.argsort(columns.cost[columns.order, 0], kind="stable")]
    total = len(order)
    if total > LINES_DRAWN:  # all of the best ones, a tenth of those drawn, and an even sample of the rest
        first = LINES_DRAWN // 10
        rest = np.unique(np.linspace(first, total - 1, LINES_DRAWN - first).astype(np.int64))
        places = np.concatenate((np.arange(first), rest))
    else:
        places = np.arange(total)
    shown, level = order[places], places / max(total - 1, 1)
    titles, heights = [], []
    for axis in columns.varied:
        texts = columns.axes[axis].texts
        codes = columns.codes[shown, axis]
        # `varied` has axes of at least two values only.
        step = 1 / (len(texts) - 1)
        # Lines of one value spread by rank, which shows how many of them are good.
        heights.append(np.where(codes < 0, -0.12, codes * step + (level - 0.5) * min(0.6 * step, 0.08)))
        titles.append(columns.axes[axis].name)
    for each in columns.objectives:
        # Each objective on its own scale from 0 to 1.
        turn, low, high = _stretched(columns, each.name)
        heights.append((turn(columns.measures[each.name][shown]) - low) / ((high - low) or 1.0))
        titles.append(each.title)
    lines = np.stack(
        (np.broadcast_to(np.arange(len(titles)), (len(shown), len(titles))), np.stack(heights, axis=1)),
        axis=2,
    )
    # Worst first, so that the best lines are drawn on top.
    drawn: Any = LineCollection(
        list(lines[::-1]), array=level[::-1], cmap="viridis", linewidth=0.7, alpha=0.5, rasterized=True
    )
    axes.add_collection(drawn)
    axes.set(xlim=(-0.3, len(titles) - 0.55), ylim=(-0.17, 1.08))
    axes.set_xticks(range(len(titles)), titles)
    axes.set_yticks([])
    for place in range(len(titles)):
        axes.axvline(place, color="#BBBBBB", linewidth=0.8, zorder=0)
        _scale_labels(axes, columns, place)
    kept = (
        ""
        if len(shown) == total
        else f"; {len(shown):,} of {total:,} lines are drawn, the best {LINES_DRAWN // 10} among them"
    )
    titled(axes, "Points that are ok", f"dark: best {columns.objectives[0].title}{kept}")
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", length=0, labelsize=9)


def _stretched(columns: Columns, name: str) -> tuple[Callable[[Any], Any], float, float]:
    """Return the function that scales a measure for drawing (logarithm or identity), and the scaled range."""
    values = columns.measures[name][columns.ok]
    small, large = float(values.min()), float(values.max())
    turn = np.log if small > 0 and large > _WIDE * small else np.asarray
    return turn, float(turn(small)), float(turn(large))


def _scale_labels(axes: Axes, columns: Columns, place: int) -> None:
    if place < len(columns.varied):
        texts = columns.axes[columns.varied[place]].texts
        step = -(-len(texts) // 8)
        labels = [(i / (len(texts) - 1), _cut(texts[i])) for i in range(0, len(texts), step)]
        if (columns.codes[columns.ok, columns.varied[place]] < 0).any():
            labels.append((-0.12, "not varied"))
    else:
        name = columns.objectives[place - len(columns.varied)].name
        turn, low, high = _stretched(columns, name)
        levels = [(share, low + share * (high - low)) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
        labels = [
            (share, _short(name, np.exp(level) if turn is np.log else level)) for share, level in levels
        ]
    for height, text in labels:
        axes.annotate(
            text, (place, height), (3, 0), textcoords="offset points", fontsize=7, va="center", parse_math=False,
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}, zorder=4,
        )  # fmt: skip


def draw_tornado(axes: Axes, columns: Columns, base: int, what: str) -> None:
    """Draw the range of the first objective around a point when one axis at a time changes."""
    objective = columns.objectives[0]
    values = columns.measures[objective.name]
    found = swings(columns, base)
    middle = float(values[base])
    for place, swing in enumerate(found):
        good, bad = swing.extremes(columns)
        # Best and worst may both lie on one side of the base: the base need not be either.
        for row, colour in ((good, BLUE), (bad, ORANGE)):
            end = float(values[row])
            if row == base or end == middle:
                continue
            axes.barh(place, end - middle, left=middle, color=colour, height=0.6)
            right = end > middle
            text = _cut(columns.value(row, swing.axis)) + f" {_percent(end, middle)}"
            axes.annotate(
                text, (end, place), (3 if right else -3, 0), textcoords="offset points", va="center", fontsize=7,
                ha="left" if right else "right", parse_math=False,
            )  # fmt: skip
    labels = [
        f"{columns.axes[one.axis].name} = {_cut(columns.value(base, one.axis))}"
        + (f"\n{one.blocked} of {len(one.rows)} not ok" if one.blocked else "")
        for one in found
    ]
    axes.set_yticks(range(len(found)), labels, parse_math=False)
    # Downwards: the largest swing, the first, is at the top.
    axes.set_ylim(max(len(found), 1) - 0.4, -0.6)
    axes.axvline(middle, color=_INK, linewidth=0.8)
    ends = [middle, *(float(values[row]) for one in found for row in one.extremes(columns))]
    # Margins for the labels beside the bars.
    room = (max(ends) - min(ends)) or abs(middle) or 1.0
    axes.set_xlim(min(ends) - 0.42 * room, max(ends) + 0.34 * room)
    scale(axes.xaxis, objective.name, np.array(ends), np.inf)
    titled(
        axes,
        f"What each axis alone changes, from the {what}",
        f"{objective.title}; blue better, orange worse",
    )
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)


def _dot(columns: Columns) -> int:
    """Return the area of a mark: smaller where there are many."""
    return 6 if columns.ok.sum() > 500 else 16


def _percent(value: float, base: float) -> str:
    return f"{100 * (value / base - 1):+.3g} %" if base else ""


def draw_scatter(axes: Axes, columns: Columns, axis: int) -> None:
    """Draw the first objective against an axis, with the best and the median of every value."""
    values = columns.measures[columns.objectives[0].name]
    chosen = np.flatnonzero(columns.ok & (columns.codes[:, axis] >= 0))
    codes = columns.codes[chosen, axis]
    # Multiplicative hashing (Knuth) of the row number: jitter that looks random and is the same
    # in every run.
    spread = (np.argsort(np.argsort(chosen * 2654435761 % 2**32)) / max(len(chosen), 1) - 0.5) * 0.6
    axes.scatter(
        codes + spread,
        values[chosen],
        s=0.7 * _dot(columns),
        color=BLUE,
        alpha=0.25 if _dot(columns) < 10 else 0.6,
        linewidth=0,
        rasterized=True,
    )
    for code in np.unique(codes).tolist():
        mine = chosen[codes == code]
        best = float(values[mine[int(np.argmin(columns.cost[mine, 0]))]])
        axes.hlines(best, code - 0.4, code + 0.4, color=VERMILION, linewidth=1.6)
        axes.hlines(float(np.median(values[mine])), code - 0.4, code + 0.4, color="black", linewidth=1.0)
    _ticks(axes.xaxis, columns.axes[axis].texts)
    axes.set_xlim(-0.6, len(columns.axes[axis].values) - 0.4)
    if max(map(len, columns.axes[axis].texts)) * len(columns.axes[axis].texts) > 26:
        axes.tick_params(axis="x", labelrotation=30)
    titled(axes, columns.axes[axis].name)
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)
