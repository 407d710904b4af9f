"""The common style of all figures: colours, panels, bars and curves.

The palette is that of Okabe and Ito, which colour-blind readers can tell apart; a part of a step has the colour that it
has in `armillary.report.picture`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, SKY, GREEN, ORANGE, VERMILION, PURPLE, GREY = (
    "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#999999",
)  # fmt: skip
STEP = {
    "compute": BLUE,
    "exposed communication": VERMILION,
    "exposed memory": PURPLE,
    "idle": GREY,
}
"""Part of a step -> its colour."""


def panels(figure: Any, titles: Sequence[str] = ("",), *, share: bool = False) -> list[Axes]:
    """Return axes side by side, one for each title; `share` gives them one vertical scale."""
    made: list[Axes] = list(figure.subplots(1, len(titles), sharey=share, squeeze=False)[0])
    for axes, title in zip(made, titles, strict=True):
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.grid(visible=True, axis="y", color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
    return made


def stacked(
    axes: Axes,
    places: Sequence[float],
    parts: Mapping[str, Sequence[float]],
    colours: Mapping[str, str],
    width: float = 0.7,
) -> list[float]:
    """Draw a stacked bar at each place, and return the heights of the bars."""
    under = [0.0] * len(places)
    for name, heights in parts.items():
        axes.bar(places, heights, width, under, color=colours[name], label=name)
        # The next part begins where this one ends.
        under = [low + more for low, more in zip(under, heights, strict=True)]
    _no_marks(axes)
    return under


def grouped(
    axes: Axes, names: Sequence[str], series: Mapping[str, Sequence[float]], colours: Mapping[str, str]
) -> None:
    """Draw a group of bars for each name, one for each series."""
    width = 0.8 / len(series)
    for number, (name, heights) in enumerate(series.items()):
        shift = (number - (len(series) - 1) / 2) * width
        axes.bar([at + shift for at in range(len(names))], heights, width, color=colours[name], label=name)
    axes.set_xticks(range(len(names)), names)
    _no_marks(axes)


def curves(
    axes: Axes,
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    colours: Mapping[str, str],
    thick: str = "",
) -> None:
    """Draw a line with markers for each series; the one named `thick` is bold and on top."""
    for (name, y), marker in zip(series.items(), "os^Dv", strict=False):
        above = name == thick
        axes.plot(x, y, color=colours[name], marker=marker, markersize=4, label=name,
                  linewidth=2.5 if above else 1.2, zorder=3 if above else 2)  # fmt: skip


def written(axis: Any, text: Callable[[float], str]) -> None:
    """Format the numbers of an axis with `text`."""
    axis.set_major_formatter(lambda value, _: text(value))


def sizes(axes: Axes, at: Sequence[float], text: Callable[[float], str]) -> None:
    """Make both scales logarithmic, with ticks on the horizontal one only at measured points."""
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(at, [text(each) for each in at], rotation=30)
    axes.minorticks_off()


def legend(figure: Any) -> None:
    """Draw one legend below the figure, with each name once."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            # Panels repeat names; one entry stands for all.
            found.setdefault(name, handle)
    figure.legend(
        found.values(),
        found.keys(),
        loc="outside lower center",
        ncols=min(len(found), 5),
        frameon=False,
        fontsize=9,
    )


def _no_marks(axes: Axes) -> None:
    axes.tick_params(axis="x", length=0)
