"""A picture of a sweep: bus bandwidth over size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.errors import InputError
from armillary.files import replacing
from armillary.platform.bandwidth import ports
from armillary.report.picture import check_picture
from armillary.study.micro.measure import Result
from armillary.units import format_bandwidth, format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from armillary.platform.model import Platform

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7A7A7A")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_STYLES = ("-", "--", ":", "-.")
_GREY = "#555555"


def bandwidth_picture(results: Iterable[Result], platform: Platform, path: Path) -> None:
    """Draw bus bandwidth over size, both logarithmic: a line per test and group size, and every port's bandwidth.

    Raises:
        InputError: no result has a bus bandwidth, matplotlib is not installed, the suffix is unknown, or the
            file cannot be written.
    """
    check_picture(path)
    lines: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for result in results:
        bus = result.bandwidths[1]
        if bus:
            lines.setdefault((result.case.test, result.case.members), []).append((result.case.size, bus))
    if not lines:
        raise InputError(f"{path}: nothing to draw: expected a test that has a bus bandwidth")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    tests = list(dict.fromkeys(test for test, _ in lines))
    sizes = list(dict.fromkeys(members for _, members in lines))
    for place, ((test, members), points) in enumerate(lines.items()):
        width = 1 + 0.8 * (len(lines) - 1 - place)  # so that lines upon each other all show
        kind, style = tests.index(test), sizes.index(members)
        axes.plot(
            *zip(*points, strict=True), color=_COLOURS[kind % len(_COLOURS)], marker=_MARKERS[kind % len(_MARKERS)],
            linestyle=_STYLES[style % len(_STYLES)], markersize=3 + width, linewidth=width, markerfacecolor="none",
            label=f"{test}, {members} ranks",
        )  # fmt: skip
    _draw_ports(axes, platform)
    _style(axes, [size for points in lines.values() for size, _ in points])
    axes.set_title(f"Bus bandwidth on {platform.npus:,} NPUs", loc="left", fontsize=12, fontweight="bold")
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=150)


def _draw_ports(axes: Axes, platform: Platform) -> None:
    """Draw a line where each network dimension's port ends."""
    for dimension, port in zip(platform.dimensions, ports(platform), strict=True):
        rate = min(port.out, port.into)
        axes.axhline(rate, color="#BBBBBB", linewidth=0.9, zorder=0)
        text = f"port of {dimension.name}: {format_bandwidth(rate)}"
        axes.annotate(
            text, (0, rate), xycoords=("axes fraction", "data"), xytext=(4, 3), textcoords="offset points",
            fontsize=8, color=_GREY, parse_math=False,
        )  # fmt: skip


def _style(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    first, last = min(sizes).bit_length() - 1, max(sizes).bit_length() - 1
    ticks = [1 << power for power in range(first, last + 1, max(1, -(-(last - first) // 9)))]
    axes.set_xticks(ticks, [format_bytes(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("size")
    axes.set_ylabel("bus bandwidth")
    axes.yaxis.set_major_formatter(lambda value, _: format_bandwidth(value))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)
