"""A drawn graph as SVG, PDF or PNG, with matplotlib."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.base.errors import InputError
from armillary.base.pictures import check_matplotlib, save_figure
from armillary.report.layered_layout import BOX, Layout, layered
from armillary.report.trace_drawing import CTRL, Drawing
from armillary.report.trace_graph_html import COLOURS, about

BOXES_AT_MOST = 5000
_LARGEST = 190.0
_PIXELS = 8000.0
_PER_INCH = 72.0
_CHARACTERS = 26


def plot_graph(drawn: Drawing, path: Path) -> None:
    """Draw to a ``.svg``, ``.pdf`` or ``.png`` file.

    Raises:
        InputError: matplotlib is not installed, there are too many boxes, or the file cannot be written.
    """
    if drawn.n_boxes > BOXES_AT_MOST:
        raise InputError(
            f"{path}: {drawn.n_boxes:,} boxes, expected at most {BOXES_AT_MOST:,} in a picture; collapse the graph, "
            "or write .html, .dot or .graphml"
        )
    check_matplotlib()
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    placed = layered(drawn.n_boxes, drawn.src, drawn.dst, drawn.lane)
    width, height = float(placed.width.max(initial=200)), float(placed.height.max(initial=50)) + 24
    # Shrunk as a whole, text and lines included, to at most 190 inches: PDF allows 200.
    scale = min(1.0, _LARGEST * _PER_INCH / max(width, height))
    figure = Figure(figsize=(width * scale / _PER_INCH, height * scale / _PER_INCH))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height - 24, -24))
    axes.axis("off")
    for ctrl, style in ((False, "solid"), (True, "dashed")):
        chosen = np.flatnonzero((drawn.dependency == CTRL) == ctrl).tolist()
        lines = [_line(drawn, placed, edge) for edge in chosen]
        axes.add_collection(
            LineCollection(lines, colors="#5b6b8088", linewidths=0.7 * scale, linestyles=style)
        )
    columns = (placed.x.tolist(), placed.y.tolist(), drawn.labels, drawn.notes, drawn.kind.tolist())
    for x, y, label, note, kind in zip(*columns, strict=True):
        left, top = x - BOX[0] / 2, y - BOX[1] / 2
        axes.add_patch(
            Rectangle((left, top), *BOX, facecolor="white", edgecolor=COLOURS[kind], linewidth=scale)
        )
        axes.add_patch(Rectangle((left, top), 5, BOX[1], facecolor=COLOURS[kind], linewidth=0))
        text = label if len(label) <= _CHARACTERS else f"{label[: _CHARACTERS - 1]}…"
        text += f"\n{note}" if note else ""
        axes.text(left + 10, y, text, va="center", fontsize=9 * scale, parse_math=False, linespacing=1.1)
    axes.text(
        8, -10, f"{drawn.graph.source}: {about(drawn)}", fontsize=10 * scale, va="center", parse_math=False
    )
    # At most 8,000 pixels on the longer side.
    dpi = min(2 * _PER_INCH, _PIXELS / max(figure.get_size_inches()))
    save_figure(figure, path, dpi)


def _line(drawn: Drawing, placed: Layout, edge: int) -> list[tuple[float, float]]:
    """Return the points of an edge: by its bends, or through the gap before another column."""
    src, dst = int(drawn.src[edge]), int(drawn.dst[edge])
    begin = placed.x[src], placed.y[src] + BOX[1] / 2
    end = placed.x[dst], placed.y[dst] - BOX[1] / 2
    between = placed.bends[:, placed.bend_ptr[edge] : placed.bend_ptr[edge + 1]].T
    if placed.left[src] != placed.left[dst]:
        # Edges through one gap are spread over eight tracks of 3 pixels.
        gap = placed.left[dst] + 6 + edge % 8 * 3
        between = np.array(
            [(begin[0], begin[1] + 8), (gap, begin[1] + 8), (gap, end[1] - 8), (end[0], end[1] - 8)]
        )
    return [(float(x), float(y)) for x, y in (begin, *between, end)]
