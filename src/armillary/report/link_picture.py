"""A picture of the links of a network: their places, and their use over time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, one_of
from armillary.base.pictures import SUFFIXES, check_picture, new_figure, save_figure
from armillary.base.units import format_bytes
from armillary.engine.common.timeline import Timeline
from armillary.engine.transport.layout import PS
from armillary.engine.transport.use import NetworkUse
from armillary.platform.topology.layout import draw
from armillary.platform.topology.picture import draw_marks
from armillary.platform.topology.sketch import Line, Panel
from armillary.report.links import busiest, hot_spot_line, link_name, network_of, write_links_csv
from armillary.report.picture import time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

LINKS_SHOWN = 40
MOST_NODES = 260
WIDEST = 144
_WIDTH, _SQUARE = 13.0, 6.8
_IDLE = "#D9D9D9"
_LANE = 0.018
"""Inches from the middle of a link to its line of one direction."""
_STEPS = np.linspace(0.0, 1.0, 13)[:, None]


def links_picture(network: NetworkUse, path: str | os.PathLike[str]) -> None:
    """Draw the topology coloured by utilisation, and the busiest links over time.

    Above, each link is two lines, one for each direction, on the right-hand side as seen in that direction;
    colour and width are the share of its bandwidth that it used over the run. A line that stands for several
    links shows the busiest. Below are the busiest `LINKS_SHOWN` links, by the same share, and the bytes that
    waited for them.

    Args:
        network: The recorded use of links.
        path: A .png, .svg or .pdf file, written complete or not at all.

    Raises:
        InputError: matplotlib is not installed, the suffix is another, or the file cannot be written.
    """
    check_picture(path)
    panels, shown = busiest_panels(network), busiest(network, LINKS_SHOWN)
    # A panel of rows is wide and low, others are square.
    wide = any(mark.sort == "row" for panel in panels for mark in panel.marks)
    beside = not wide and len(panels) == 1
    columns = 1 if wide else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    lower = 0.9 + 0.155 * max(len(shown), 6)
    if beside:
        side = (_SQUARE, _SQUARE)
        figure = new_figure(_SQUARE + 9.4, _SQUARE + 0.6)
        upper, below = figure.subfigures(1, 2, squeeze=False, width_ratios=[_SQUARE + 0.4, 9.0]).ravel()
    else:
        height = 3.9 if wide else _WIDTH / columns - 0.6
        side = (0.9 * _WIDTH / columns, height)
        figure = new_figure(_WIDTH, height * rows + lower + 0.8)
        upper, below = figure.subfigures(
            2, 1, squeeze=False, height_ratios=[height * rows + 0.2, lower]
        ).ravel()
    title = f"{network.topology.name}: {hot_spot_line(network)}"
    figure.suptitle(title, fontsize=10.5, fontweight="bold", x=0.008, ha="left")
    axes = upper.subplots(rows, columns, squeeze=False).ravel()
    _draw_panels(upper, axes[: len(panels)], panels, network, side, wide)
    for unused in axes[len(panels) :]:
        unused.axis("off")
    if shown:
        _draw_series(below, network, shown)
    save_figure(figure, path, 130)


def busiest_panels(network: NetworkUse) -> list[Panel]:
    """Return panels in which the detail is the part with the busiest link."""
    top, part = network.topology, 0
    found = busiest(network, 1)
    if found and len(top.block):
        part = max(0, *(int(top.block[node]) for node in (top.tail[found[0]], top.head[found[0]])))
    return draw(top, part=part, most=MOST_NODES, widest=WIDEST)


def _draw_panels(
    figure: Any, axes: Any, panels: list[Panel], network: NetworkUse, inches: tuple[float, float], wide: bool
) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    most = _round_up(float(network.mean.max(initial=0.0)))
    colours, norm = _colours(), Normalize(0, 100 * most)
    for one, panel in zip(axes, panels, strict=True):
        one.set(xlim=(-1.05, 1.05), ylim=(-0.95, 0.95 if wide else 1.05), aspect="auto" if wide else "equal")
        one.axis("off")
        one.set_title(panel.title, fontsize=10)
        side = min(inches)
        drawn = _draw_lines(one, panel, network, most, inches if wide else (side, side))
        size = max(3.0, min(16.0, (900 if wide else 620) / max(len(panel.marks), 1)))
        draw_marks(one, panel, size, size * 0.42 if size > 9 else 0.0)
        one.text(
            0, -0.94, f"{drawn:,} of {network.topology.links:,} links", ha="center", va="top", fontsize=8
        )
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=list(axes), shrink=0.8, aspect=30, pad=0.01)
    bar.set_label("utilisation over the run (%)", fontsize=9)
    words = "each way is drawn on its right-hand side; grey: not used"
    if any(panel.ends is not None and len(panels) > 1 for panel in panels):
        words += "; a line that stands for several links shows the busiest"
    figure.supxlabel(words, fontsize=8, color="#555555")


def _draw_lines(
    axes: Axes, panel: Panel, network: NetworkUse, most: float, inches: tuple[float, float]
) -> int:
    """Draw each line of a panel twice, once per direction; return the number of links that they stand for."""
    from matplotlib.collections import LineCollection

    lines = [line for line in panel.lines if -1 not in line.members]
    ways = [way for line in lines for way in (line.members, (line.members[1], line.members[0]))]
    share, count = link_shares(panel, network, ways)
    paths = [path for line in lines for path in _both_ways(line, inches)]
    # The most used lines last, on top of the others.
    order = np.argsort(share, kind="stable").tolist()
    order = [i for i in order if count[i]]
    # Thinner lines where there are many, or they would merge into one area.
    thin = 1.0 if len(ways) < 200 else 0.75 if len(ways) < 500 else 0.5
    colours = _colours()
    axes.add_collection(
        LineCollection(
            [paths[i] for i in order],
            colors=[colours(share[i] / most) if share[i] > 0 else _IDLE for i in order],
            linewidths=[thin * (0.8 + 2.4 * share[i] / most) for i in order],
            zorder=1,
        )
    )
    return int(count.sum())


def link_shares(
    panel: Panel, network: NetworkUse, ways: list[tuple[int, int]]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return for each way the share used by its busiest link, and its number of links."""
    share, count = np.zeros(len(ways)), np.zeros(len(ways), np.int64)
    if panel.ends is None or not ways:
        return share, count
    size = max(int(panel.ends.max(initial=0)), *(max(way) for way in ways)) + 1
    # (tail, head) as one integer, so that all links find their line by one search.
    keys = np.array([a * size + b for a, b in ways])
    order = np.argsort(keys, kind="stable")
    tail, head = panel.ends
    links = np.flatnonzero((tail >= 0) & (head >= 0) & (tail != head))
    wanted = tail[links] * size + head[links]
    # The first of equal keys takes the links: a line may be drawn more than once.
    at = np.minimum(np.searchsorted(keys[order], wanted), len(ways) - 1)
    hit = keys[order[at]] == wanted
    np.maximum.at(share, order[at[hit]], network.mean[links[hit]])
    np.add.at(count, order[at[hit]], 1)
    return share, count


def _both_ways(line: Line, inches: tuple[float, float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points of the lines in both directions, each right of the middle as seen in its direction."""
    start, control, end = (np.array(place) for place in (line.start, line.control, line.end))
    # A quadratic Bézier curve at 13 points, moved to the right of its direction.
    middle = (1 - _STEPS) ** 2 * start + 2 * _STEPS * (1 - _STEPS) * control + _STEPS**2 * end
    scale = np.array(inches) / 2.1
    along = (end - start) * scale
    # The normal in inches, so that lines keep their distance whatever the aspect of the panel.
    right = np.array([along[1], -along[0]]) / max(float(np.hypot(*along)), 1e-9) * _LANE / scale
    return middle + right, (middle - right)[::-1]


def _draw_series(figure: Any, network: NetworkUse, shown: list[int]) -> None:
    use = network.use
    depths = use.depths[shown]
    scale, unit = time_unit(network.end / PS)
    width = use.bin / PS * scale
    panels: list[tuple[str, NDArray[Any], float, Any, str]] = [
        (
            "utilisation",
            # Masked where nothing was sent: the background shows idle, not 0 %.
            np.ma.masked_equal(100 * network.series[shown], 0),
            100.0,
            _colours(),
            "utilisation (%)",
        )
    ]
    if depths.any():
        deepest = int(depths.max())
        step, name = _bytes_unit(deepest)
        panels.append(
            (
                "bytes waiting",
                np.ma.masked_equal(depths / step, 0),
                deepest / step,
                "Blues",
                f"waiting ({name})",
            )
        )
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for one, (title, values, most, colours, label) in zip(axes, panels, strict=True):
        image = one.imshow(
            values, aspect="auto", interpolation="nearest", cmap=colours, vmin=0, vmax=most,
            extent=(0, values.shape[1] * width, len(shown) - 0.5, -0.5),
        )  # fmt: skip
        one.set_facecolor("#F1F1F1")
        one.set_xlim(0, network.end / PS * scale)
        one.set_xlabel(f"time ({unit})", fontsize=8)
        one.tick_params(labelsize=7)
        one.set_title(f"{title} of the {len(shown)} busiest links", fontsize=10, loc="left")
        figure.colorbar(image, ax=one, pad=0.01, aspect=30).set_label(label, fontsize=9)
    names = [link_name(network.topology, link) for link in shown]
    axes[0].set_yticks(
        range(len(shown)), [name if len(name) <= 34 else f"{name[:33]}…" for name in names], fontsize=7
    )


def _colours() -> Colormap:
    """Return light yellow to dark red without the palest end, which white paper swallows."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    return ListedColormap(matplotlib.colormaps["YlOrRd"](np.linspace(0.16, 1.0, 256)))


def _round_up(share: float) -> float:
    """Return the end of a scale that `share` fits on."""
    return next((end for end in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if share <= end), 1.0)


def _bytes_unit(size: int) -> tuple[float, str]:
    name = format_bytes(size).split()[1]
    return float(1 << (10 * ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].index(name))), name


def check_links_file(path: str | os.PathLike[str]) -> None:
    """Raise early the errors that `write_links` would raise.

    Raises:
        InputError: The suffix is another, or matplotlib is needed and not installed.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", *SUFFIXES):
        raise InputError(f"--links {path}: suffix {suffix!r}, expected {one_of(('.csv', *SUFFIXES))}")
    if suffix != ".csv":
        check_picture(path)


def write_links(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write the links of a run as a table (.csv) or a picture (.png, .svg, .pdf).

    Raises:
        InputError: The timeline has no record of links; also what `check_links_file` raises.
    """
    network = network_of(timeline)
    check_links_file(path)
    if Path(path).suffix.lower() == ".csv":
        write_links_csv(network, path)
    else:
        links_picture(network, path)
