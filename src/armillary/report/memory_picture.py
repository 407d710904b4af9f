"""A picture of the memory that one rank holds over a step."""

from __future__ import annotations

import os
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.base.pictures import check_picture, new_figure, save_figure
from armillary.base.units import format_bytes
from armillary.report.memory_tables import TITLES
from armillary.workload.memory.footprint import Footprint

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 1500
_LABELS = 40
# The palette of Okabe and Ito: states in cool colours, what comes and goes in warm ones.
_COLOURS = {
    "weights": "#0072B2",
    "gradients": "#56B4E9",
    "optimizer": "#009E73",
    "buffers": "#999999",
    "activations": "#E69F00",
    "cache": "#E69F00",
    "logits": "#F0E442",
    "working": "#D55E00",
    "communication": "#CC79A7",
}
_GREY = "#555555"


def memory_picture(
    footprint: Footprint, path: str | os.PathLike[str], capacity: int | None = None, title: str = ""
) -> None:
    """Draw bytes by category while each layer of each task runs, the peak, and the capacity of the NPU.

    Args:
        footprint: What to draw.
        path: A .png, .svg or .pdf file, written complete or not at all.
        capacity: Bytes of an NPU; None draws no line.
        title: Of the picture, e.g. model and plan.

    Raises:
        InputError: matplotlib is not installed, the suffix is another, or the file cannot be written.
    """
    check_picture(path)
    figure = new_figure(9.6, 4.6)
    head = f"Peak {format_bytes(footprint.peak)} on pipeline rank {footprint.stage}, {footprint.where}"
    figure.suptitle(f"{title}\n{head}" if title else head, fontsize=12, fontweight="bold", x=0.012, ha="left")
    axes = figure.subplots()
    kept = reduced(footprint)
    edges = np.arange(len(kept) + 1)
    most = max(footprint.peak, capacity or 0, footprint.needed)
    scale, unit = _unit(most)
    shown = {name: line[kept] * scale for name, line in footprint.timeline.items() if line.any()}
    below = np.zeros(len(kept))
    for name, line in shown.items():
        axes.stairs(
            below + line, edges, baseline=below, fill=True, color=_COLOURS[name], label=TITLES[name],
            linewidth=0,
        )  # fmt: skip
        below = below + line
    # The peak is among the kept points, since each stretch keeps its fullest.
    at = int(np.searchsorted(kept, footprint.at))
    axes.plot(
        at + 0.5, (footprint.peak + 0.012 * most) * scale, "v", color="black", markersize=6, clip_on=False
    )
    allowances = footprint.needed - footprint.peak
    if allowances:
        axes.axhline(footprint.needed * scale, color=_GREY, linewidth=1, linestyle=":")
        _note(axes, footprint.needed * scale, f"with allowances {format_bytes(footprint.needed)}", _GREY)
    if capacity is not None:
        axes.axhline(capacity * scale, color="black", linewidth=1.4, linestyle="--")
        _note(axes, capacity * scale, f"capacity {format_bytes(capacity)}", "black")
    _label_tasks(axes, footprint, kept)
    axes.set_ylabel(f"bytes held ({unit})")
    axes.set_xlim(0, len(kept))
    axes.set_ylim(0, most * scale * 1.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles[::-1], labels[::-1], loc="outside right upper", frameon=False, fontsize=9,
        handlelength=1.0, handleheight=1.0,
    )  # fmt: skip
    save_figure(figure, path)


def reduced(footprint: Footprint) -> NDArray[np.int64]:
    """Return the points to draw: all of them, or of each of `_POINTS` stretches the one that holds most."""
    total = footprint.total
    if len(total) <= _POINTS:
        return np.arange(len(total))
    ends = np.linspace(0, len(total), _POINTS + 1).astype(np.int64)
    return np.array([a + total[a:b].argmax() for a, b in pairwise(ends)], np.int64)


def _label_tasks(axes: Axes, footprint: Footprint, kept: NDArray[np.int64]) -> None:
    """Name tasks below the axis, F3 for the forward pass of microbatch 3; of many every n-th."""
    spans = []
    for index, points in groupby(range(len(kept)), key=lambda point: int(footprint.task[kept[point]])):
        inside = list(points)
        spans.append((index, inside[0], inside[-1] + 1))
    every = -(-len(spans) // _LABELS)
    ticks, names = [], []
    for number, (index, start, end) in enumerate(spans):
        # The number after the last task is the optimizer step, which has no label.
        if index < len(footprint.tasks) and number % every == 0:
            task = footprint.tasks[index]
            chunk = f".{task.chunk}" if any(each.chunk for each in footprint.tasks) else ""
            ticks.append((start + end) / 2)
            names.append(f"{task.kind}{task.microbatch}{chunk}")
        if every == 1 and start:
            # Lines between tasks only where every task has a label.
            axes.axvline(start, color="white", linewidth=0.5, zorder=1.5)
    axes.set_xticks(
        ticks, names, fontsize=8 if len(names) <= 24 else 6, rotation=0 if len(names) <= 24 else 90
    )
    axes.tick_params(axis="x", length=0)
    kinds = "F forward, B backward" + (
        ", W weight gradients" if any(task.kind == "W" for task in footprint.tasks) else ""
    )
    axes.set_xlabel(f"tasks in order, layer by layer ({kinds}); not to scale in time")


def _note(axes: Axes, height: float, text: str, colour: str) -> None:
    axes.annotate(
        text, (1, height), xycoords=("axes fraction", "data"), xytext=(-3, 2), textcoords="offset points",
        ha="right", va="bottom", fontsize=8, color=colour,
    )  # fmt: skip


def _unit(size: int) -> tuple[float, str]:
    """Return (factor from bytes, name) of the unit that `format_bytes` takes."""
    unit = format_bytes(size).split()[1]
    power = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB").index(unit)
    return float(2.0 ** (-10 * power)), unit
