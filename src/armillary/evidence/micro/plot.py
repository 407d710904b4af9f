"""A picture of a sweep: bus bandwidth over size."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.base.errors import InputError
from armillary.base.pictures import check_picture, new_figure, save_figure
from armillary.base.units import format_bandwidth, format_bytes
from armillary.evidence.micro.measure import Result
from armillary.platform.model import ports

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from armillary.platform.model import Platform

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7A7A7A")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_STYLES = ("-", "--", ":", "-.")
_GREY = "#555555"
# Lines closer than this lie on each other on paper.
_CLOSE = 0.02
"""Relative difference up to which tests share a line."""


def bandwidth_picture(results: Iterable[Result], platform: Platform, path: Path) -> None:
    """Draw bus bandwidth over size, both logarithmic: a line per test and group size, and every port's bandwidth.

    Tests that differ by no more than 2 % share a line.

    Raises:
        InputError: no result has a bus bandwidth, matplotlib is not installed, the suffix is unknown, or the
            file cannot be written.
    """
    check_picture(path)
    lines = lines_of(results)
    if not lines:
        raise InputError(f"{path}: nothing to draw: expected a test that has a bus bandwidth")
    figure = new_figure(9.6, 5.6)
    axes = figure.subplots()
    tests = list(dict.fromkeys(line.tests[0] for line in lines))
    groups = list(dict.fromkeys(line.members for line in lines))
    for line in lines:
        # Colour and marker say the test, the style of the line says the size of the group.
        kind, style = tests.index(line.tests[0]), groups.index(line.members)
        label = f"{', '.join(line.tests)}, {line.members} ranks"
        axes.plot(
            *zip(*sorted(line.points.items()), strict=True), color=_COLOURS[kind % len(_COLOURS)],
            marker=_MARKERS[kind % len(_MARKERS)], linestyle=_STYLES[style % len(_STYLES)], markersize=3.5,
            linewidth=1.4, label=textwrap.fill(label, 32, break_on_hyphens=False),
        )  # fmt: skip
    _draw_ports(axes, platform)
    _style(axes, [size for line in lines for size in line.points])
    axes.set_title(f"Bus bandwidth on {platform.npus:,} NPUs", loc="left", fontsize=12, fontweight="bold")
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    save_figure(figure, path)


@dataclass
class _Line:
    """Bus bandwidth by size of tests that cannot be told apart."""

    tests: list[str]
    members: int
    points: dict[int, float]

    def same(self, other: _Line) -> bool:
        """Say whether the other one would lie on this one."""
        both = self.points.keys() & other.points.keys()
        close = all(
            # Only sizes that both have can be compared; without any they are not the same.
            abs(self.points[size] - other.points[size]) <= _CLOSE * self.points[size]
            for size in both
        )
        return self.members == other.members and bool(both) and close


def lines_of(results: Iterable[Result]) -> list[_Line]:
    """Return a line for each test and size of group; tests of the same bandwidth share one."""
    found: dict[tuple[str, int], _Line] = {}
    for result in results:
        if bus := result.bandwidths[1]:
            test, members = result.case.test, result.case.members
            line = found.setdefault((test, members), _Line([test], members, {}))
            line.points[result.case.size] = bus
    lines: list[_Line] = []
    for line in found.values():
        # Tests of the same bandwidth share a line, and their names its label.
        if reference := next((drawn for drawn in lines if drawn.same(line)), None):
            reference.tests += line.tests
            reference.points |= {
                size: rate for size, rate in line.points.items() if size not in reference.points
            }
        else:
            lines.append(line)
    return lines


def _draw_ports(axes: Axes, platform: Platform) -> None:
    """Draw a line where each network dimension's port ends."""
    for dimension, port in zip(platform.dimensions, ports(platform), strict=True):
        # The slower direction: a collective sends and receives.
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
    # At most ten labels, at powers of two.
    ticks = [1 << power for power in range(first, last + 1, max(1, -(-(last - first) // 9)))]
    axes.set_xticks(ticks, [format_bytes(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("size")
    axes.set_ylabel("bus bandwidth")
    axes.yaxis.set_major_formatter(lambda value, _: format_bandwidth(value))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)
