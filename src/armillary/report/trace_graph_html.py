"""A graph as one self-contained HTML page: boxes to move, zoom, search and open."""

from __future__ import annotations

import math
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.page import html_page
from armillary.base.text import json_text
from armillary.report.layered_layout import BOX, Layout, layered
from armillary.report.trace_drawing import Drawing, edges_of, short_name
from armillary.report.trace_times import KINDS, durations, kinds, lanes, starts
from armillary.trace.json_layout import plain

BOXES_AT_MOST = 50_000
MEMBERS_EMBEDDED = 100_000
_LONGEST_TEXT = 160
_EXACT = 2**53

COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#CC79A7", "#999999", "#555555")
"""Colour of each of `trace_times.KINDS`, from the palette of Okabe and Ito as in other pictures."""


def graph_page(drawn: Drawing) -> str:
    """Return the page; nodes inside boxes are left out where there are more than `MEMBERS_EMBEDDED`.

    Raises:
        InputError: there are more than `BOXES_AT_MOST` boxes.
    """
    if drawn.n_boxes > BOXES_AT_MOST:
        raise InputError(
            f"{drawn.graph.source}: {drawn.n_boxes:,} boxes by {drawn.how}, expected at most {BOXES_AT_MOST:,} in a "
            "page; collapse the graph, or write .dot or .graphml"
        )
    viewer = files("armillary.report") / "viewer"

    def part(name: str) -> str:
        return (viewer / name).read_text(encoding="utf-8")

    return "".join(
        html_page(
            drawn.graph.source,
            part("trace_graph.css"),
            [part("trace_graph.html")],
            data=page_data(drawn),
            scripts=[part("trace_graph.js")],
        )
    )


def page_data(drawn: Drawing) -> dict[str, Any]:
    """Return what the page shows as JSON values: boxes, and the nodes inside them."""
    graph = drawn.graph
    strings = _Strings()
    everything = drawn.how == "none"
    placed = layered(drawn.n_boxes, drawn.src, drawn.dst, drawn.lane)
    boxes = _columns(placed, drawn.src, drawn.dst, drawn.dependency) | {
        "label": [strings.number(label) for label in drawn.labels],
        "kind": drawn.kind.tolist(),
        "ns": drawn.duration.tolist(),
        "bytes": drawn.size.tolist(),
    }
    data = {
        "title": graph.source,
        "about": about(drawn),
        "box": BOX,
        "kinds": KINDS,
        "colours": COLOURS,
        "legend": [[kind, int(n)] for kind, n in enumerate(np.bincount(kinds(graph))) if n],
        "boxes": boxes,
        "members": None,
        "strings": strings.texts,
    }
    if everything:
        boxes |= _details(drawn, np.arange(graph.n_nodes), strings)
        return data
    boxes |= {"count": drawn.count.tolist(), "weight": drawn.weight.tolist()}
    inside = np.argsort(drawn.box, kind="stable")
    ends = np.concatenate([[0], np.cumsum(drawn.count)])
    embedded = graph.n_nodes <= MEMBERS_EMBEDDED
    boxes["only"] = np.where((drawn.count == 1) & embedded, ends[:-1], -1).tolist()
    if embedded:
        data["members"] = _members(drawn, inside, strings) | {"ptr": ends.tolist()}
    return data


def about(drawn: Drawing) -> str:
    """Return the number of nodes, and of boxes if they are collapsed."""
    text = f"{drawn.graph.n_nodes:,} nodes"
    return text if drawn.how == "none" else f"{text} in {drawn.n_boxes:,} boxes by {drawn.how}"


class _Strings:
    """Numbers texts, so that each is stored once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._number: dict[str, int] = {}

    def number(self, text: str) -> int:
        found = self._number.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found


def _members(drawn: Drawing, inside: NDArray[np.int64], strings: _Strings) -> dict[str, Any]:
    graph = drawn.graph
    src, dst, dependency = edges_of(graph)
    # Inside a box only the edges between its own nodes are drawn.
    same = drawn.box[src] == drawn.box[dst]
    # Nodes sorted by box, so that those of a box are a range.
    rank = np.empty(graph.n_nodes, dtype=np.int64)
    rank[inside] = np.arange(graph.n_nodes)
    order = np.argsort(drawn.box[dst[same]], kind="stable")
    src, dst, dependency = rank[src[same]][order], rank[dst[same]][order], dependency[same][order]
    owner = drawn.box[inside]
    placed = layered(graph.n_nodes, src, dst, lanes(graph)[0][inside], owner)
    edge_ptr = np.concatenate([[0], np.cumsum(np.bincount(owner[dst], minlength=drawn.n_boxes))])
    names = graph.names()
    return (
        _columns(placed, src, dst, dependency)
        | _details(drawn, inside, strings)
        | {
            "label": [strings.number(short_name(names[at])) for at in inside.tolist()],
            "kind": kinds(graph)[inside].tolist(),
            "ns": durations(graph)[inside].tolist(),
            "bytes": np.maximum(graph.ints("comm_size"), 0)[inside].tolist(),
            "edge_ptr": edge_ptr.tolist(),
        }
    )


def _columns(placed: Layout, src: Any, dst: Any, dependency: Any) -> dict[str, Any]:
    return {
        "x": np.rint(placed.x).astype(np.int64).tolist(),
        "y": np.rint(placed.y).astype(np.int64).tolist(),
        "left": np.rint(placed.left).astype(np.int64).tolist(),
        "size": np.rint(np.stack([placed.width, placed.height], axis=1)).astype(np.int64).tolist()
        or [[0, 0]],
        "src": src.tolist(),
        "dst": dst.tolist(),
        # Bits: 1 data, 2 control, 4 leads upwards.
        "flag": (dependency + 4 * placed.back).tolist(),
        "bends": np.rint(placed.bends.T.reshape(-1)).astype(np.int64).tolist(),
        "bend_ptr": placed.bend_ptr.tolist(),
    }


def _details(drawn: Drawing, order: NDArray[np.int64], strings: _Strings) -> dict[str, Any]:
    """Return id, name, start and attributes of the nodes in `order`."""
    graph = drawn.graph
    ids, names = graph.ids.tolist(), graph.names()
    begun = starts(graph)
    return {
        "id": [ids[at] if ids[at] <= _EXACT else str(ids[at]) for at in order.tolist()],
        "name": [strings.number(names[at] or "(no name)") for at in order.tolist()],
        "start": None if begun is None else (begun - begun.min())[order].tolist(),
        "attrs": [_attributes(drawn, at, strings) for at in order.tolist()],
    }


def _attributes(drawn: Drawing, at: int, strings: _Strings) -> list[Any]:
    """Return name, value, name, value, …; a text is [its number]."""
    found: list[Any] = []
    graph = drawn.graph
    for name, _, value in graph.attrs(at):
        found += [strings.number(name), _value(value, strings)]
    for side, (_, shapes, types) in graph.io(at).items():
        if shapes not in ("", "[]"):
            found += [strings.number(side), _value(f"{shapes} {types}", strings)]
    return found


def _value(value: Any, strings: _Strings) -> Any:
    value = plain(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _EXACT:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = value if isinstance(value, str) else json_text(value)
    # A list with one number stands for a text; plain numbers stand for themselves.
    return [strings.number(text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…")]
