"""A graph as one self-contained HTML page: boxes in groups that open, which `web/src/graph` places and draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.base.page import drawn_page
from armillary.base.text import json_text
from armillary.report.trace_drawing import Drawing, drawing
from armillary.report.trace_times import KINDS, kinds, starts
from armillary.report.trace_tree import tree, tree_of_boxes
from armillary.trace import Graph
from armillary.trace.json_layout import plain

BOXES_AT_MOST = 100_000
"""Nodes of a graph whose page has each of them; those of a larger one are collapsed."""
_LONGEST_TEXT = 160
_EXACT = 2**53

COLOURS = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#CC79A7", "#999999", "#555555")
"""Colour of each of `trace_times.KINDS`, from the palette of Okabe and Ito as in other pictures."""


def graph_page(drawn: Drawing) -> str:
    """Return the page.

    Args:
        drawn: groups of nodes to open, or, of "none", the nodes, in groups by calls or modules.

    Raises:
        InputError: there are more than `BOXES_AT_MOST` boxes.
    """
    if drawn.n_boxes > BOXES_AT_MOST:
        raise InputError(
            f"{drawn.graph.source}: {drawn.n_boxes:,} boxes by {drawn.how}, expected at most {BOXES_AT_MOST:,} in a "
            "page; collapse the graph, or write .dot or .graphml"
        )
    return "".join(drawn_page("graph", drawn.graph.source, page_data(drawn), charts=False))


def drawing_for_page(graph: Graph, collapse: str, max_nodes: int) -> Drawing:
    """Return what a page has of a graph: of "auto" every node where it may, as the page groups them itself."""
    if collapse == "auto" and graph.n_nodes <= BOXES_AT_MOST:
        collapse = "none"
    return drawing(graph, collapse, max_nodes)


def page_data(drawn: Drawing) -> dict[str, Any]:
    """Return what the page shows as JSON values: groups within groups, their boxes, and edges between boxes."""
    graph = drawn.graph
    strings = _Strings()
    boxes = drawn
    if drawn.how != "none" and graph.n_nodes <= BOXES_AT_MOST:
        boxes = drawing(graph)
        groups = tree_of_boxes(boxes, drawn)
    else:
        groups = tree(drawn)
    return {
        "title": graph.source,
        "about": about(drawn),
        "kinds": KINDS,
        "legend": [[kind, int(n)] for kind, n in enumerate(np.bincount(kinds(graph))) if n],
        "calls": groups.calls,
        "groups": {"parent": groups.parent, "label": [strings.number(label) for label in groups.label]},
        "boxes": {
            "group": groups.group.tolist(),
            "label": [strings.number(label) for label in boxes.labels],
            "kind": boxes.kind.tolist(),
            "ns": boxes.duration.tolist(),
            "bytes": boxes.size.tolist(),
            **(
                {"count": None, **_details(graph, strings)}
                if boxes.how == "none"
                else {"count": boxes.count.tolist()}
            ),
        },
        "edges": {
            "src": boxes.src.tolist(),
            "dst": boxes.dst.tolist(),
            "flag": boxes.dependency.tolist(),
            "weight": boxes.weight.tolist(),
        },
        "strings": strings.texts,
    }


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


def _details(graph: Graph, strings: _Strings) -> dict[str, Any]:
    """Return id, name, start and attributes of the nodes."""
    begun = starts(graph)
    return {
        "id": [ident if ident <= _EXACT else str(ident) for ident in graph.ids.tolist()],
        "name": [strings.number(name or "(no name)") for name in graph.names()],
        "start": None if begun is None else (begun - begun.min()).tolist(),
        "attrs": [_attributes(graph, at, strings) for at in range(graph.n_nodes)],
    }


def _attributes(graph: Graph, at: int, strings: _Strings) -> list[Any]:
    """Return name, value, name, value, …; a text is [its number]."""
    found: list[Any] = []
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
