"""A drawn graph as SVG, PDF or PNG, with matplotlib."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.pictures import check_matplotlib, save_figure
from armillary.report.earliest import earliest, forward_edges
from armillary.report.trace_drawing import CTRL, Drawing
from armillary.report.trace_graph_html import COLOURS, about

BOX = (176.0, 34.0)
GAP = (18.0, 34.0)
"""Width and height of a box, and the room between boxes, in pixels."""
BOXES_AT_MOST = 5000
_ACROSS = 8
"""Boxes of a row; a picture of A4's proportions then has about 16 rows."""
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

    x_of, y_of = places(drawn)
    width = float(x_of.max(initial=100)) + BOX[0] / 2 + GAP[0]
    height = float(y_of.max(initial=26)) + BOX[1] / 2 + 34
    # Shrunk as a whole, text and lines included, to at most 190 inches: PDF allows 200.
    scale = min(1.0, _LARGEST * _PER_INCH / max(width, height))
    figure = Figure(figsize=(width * scale / _PER_INCH, height * scale / _PER_INCH))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height - 24, -24))
    axes.axis("off")
    for ctrl, style in ((False, "solid"), (True, "dashed")):
        chosen = np.flatnonzero((drawn.dependency == CTRL) == ctrl).tolist()
        lines = [_line(x_of, y_of, int(drawn.src[edge]), int(drawn.dst[edge])) for edge in chosen]
        axes.add_collection(
            LineCollection(lines, colors="#5b6b8088", linewidths=0.7 * scale, linestyles=style, zorder=0)
        )
    columns = (x_of.tolist(), y_of.tolist(), drawn.labels, drawn.notes, drawn.kind.tolist())
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


def places(drawn: Drawing) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the centres of boxes in pixels, y downwards: below all that they wait for, boxes of a lane side by side.

    Nothing here avoids crossings; a page does (`web/src/graph/layout.ts`), and so do Graphviz and others for ``.dot``.
    """
    n = drawn.n_boxes
    kept = forward_edges(n, drawn.src, drawn.dst)
    layer = earliest(n, drawn.src[kept], drawn.dst[kept], np.ones(n, dtype=np.int64))
    order = np.lexsort((np.arange(n), drawn.lane, layer))
    new = np.diff(layer[order], prepend=-1) > 0
    begin = np.flatnonzero(new)
    along = np.arange(n) - np.repeat(begin, np.diff(np.append(begin, n)))
    # A long layer takes several rows.
    row = np.cumsum(new | (along % _ACROSS == 0)) - 1
    size = np.bincount(row, minlength=1)
    pitch = BOX[0] + GAP[0], BOX[1] + GAP[1]
    widest = int(size.max())
    # Long and narrow is cut into columns, about as high together as they are wide.
    columns = max(1, round(math.sqrt(len(size) * pitch[1] / (max(widest, 1) * pitch[0]))))
    deep = -(-len(size) // columns)
    x, y = np.empty(n), np.empty(n)
    x[order] = (
        (along % _ACROSS + (widest - size[row]) / 2 + row // deep * widest) * pitch[0] + BOX[0] / 2 + GAP[0]
    )
    y[order] = row % deep * pitch[1] + BOX[1] / 2 + 8
    return x, y


def _line(x: NDArray[np.float64], y: NDArray[np.float64], src: int, dst: int) -> list[tuple[float, float]]:
    """Return the points of an edge; one that passes rows does so in the gap beside its upper box."""
    begin, end = (float(x[src]), float(y[src]) + BOX[1] / 2), (float(x[dst]), float(y[dst]) - BOX[1] / 2)
    points = [begin, (begin[0], begin[1] + 8), (end[0], end[1] - 8), end]
    if end[1] - begin[1] > GAP[1]:
        # Side by side, as far as the gap has room.
        gap = begin[0] + BOX[0] / 2 + 3 + dst % 5 * 3
        points[2:2] = [(gap, begin[1] + 14), (gap, end[1] - 14)]
    return points
