"""Lower graphs that differ in durations only once: recorded ranks mostly do the same, each at its own pace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.nodes import Nodes
from armillary.engine.physical.nodes import PhysicalNodes, exact_durations, lower_nodes
from armillary.platform.model import Platform
from armillary.trace import Graph
from armillary.trace import columns as c
from armillary.trace.columns import BYTES, RAW, STRING, Columns
from armillary.trace.trace import IGNORED

if TYPE_CHECKING:
    from armillary.compute import KernelTimes

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
EXACT = "duration_ns"
"""The attribute that is a duration."""
_TEXTS = (STRING, BYTES, RAW)


class Alike:
    """Lowers graphs one after the other; `lower_nodes` of a graph that is like an earlier one takes its columns.

    What `lower_nodes` makes of durations is the ticks of nodes that take their recorded time, and, where nodes name
    work, whether there is a time at all. So graphs that agree in all but positive durations have equal nodes but for
    ticks, which are read anew.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], list[PhysicalNodes]] = {}

    def __call__(self, graph: Graph, platform: Platform, times: KernelTimes | None) -> Nodes:
        """Return `lower_nodes` of a graph.

        Raises:
            InputError: see `lower_nodes`.
        """
        candidates = self._known.setdefault(_sums(graph), [])
        for nodes in candidates:
            found = compare(nodes.graph, graph)
            if found is not None:
                return self._again(nodes, graph, found)
        nodes = lower_nodes(graph, platform, times)
        # Warnings name their graph.
        if nodes.recorded is not None and not nodes.warnings:
            candidates.append(nodes)
        return nodes

    def _again(self, nodes: PhysicalNodes, graph: Graph, whole: bool) -> PhysicalNodes:
        ticks, recorded, group = exact_durations(graph, nodes.order), nodes.recorded, nodes.group
        assert recorded is not None
        if not recorded.all():
            ticks = np.where(recorded, ticks, nodes.ticks)
        if not whole:
            group = graph.strings("pg_name")[0][nodes.order].astype(np.int64)
        return replace(nodes, graph=graph, ticks=ticks, group=group, like=nodes if whole else None)


def _sums(graph: Graph) -> tuple[int, ...]:
    """Return sums that are equal where `compare` finds two graphs alike, and mostly differ elsewhere."""
    rows = graph.columns.rows[:, graph.first : graph.first + graph.n_nodes + 1]
    attributes = slice(int(rows[c.ATTR_AT, 0]), int(rows[c.ATTR_AT, -1]))
    kinds = graph.columns.attr_kind[attributes]
    values = graph.columns.attr_value[attributes]
    # Numbers of texts and lists, and what ranks differ in, are not comparable; the others add up to the same.
    alike = (
        ~np.isin(kinds, _TEXTS)
        & (kinds & 1 == 1)
        & ~_free(graph.columns)[graph.columns.attr_name[attributes]]
    )
    numbers = np.where(alike, values, 0)
    return (
        graph.n_nodes, len(values), int(rows[c.TYPE, :-1].sum()), int(rows[c.ID, :-1].sum()), int(numbers.sum()),
        int((numbers * np.arange(len(numbers))).sum()),
    )  # fmt: skip


def _free(columns: Columns) -> Mask:
    """Return which names of attributes ranks that do the same may differ in, (names + 1)."""
    return np.array([name in IGNORED or name == EXACT for name in columns.names] + [False])


def compare(one: Graph, other: Graph) -> bool | None:
    """Tell whether two graphs differ in positive durations only: True; in `IGNORED` attributes, too: False; else None.

    Names of nodes, start times and GlobalMetadata do not count.
    """
    a, b = one.columns, other.columns
    if a.names != b.names:
        return None
    rows = [graph.columns.rows[:, graph.first : graph.first + graph.n_nodes + 1] for graph in (one, other)]
    if rows[0].shape != rows[1].shape:
        return None
    for field in (c.ID, c.TYPE):
        if not np.array_equal(rows[0][field, :-1], rows[1][field, :-1]):
            return None
    if not np.array_equal(rows[0][c.DURATION, :-1] != 0, rows[1][c.DURATION, :-1] != 0):
        return None
    for field in (c.CTRL_AT, c.DATA_AT, c.ATTR_AT):
        if not np.array_equal(rows[0][field] - rows[0][field, 0], rows[1][field] - rows[1][field, 0]):
            return None
    if not np.array_equal(one.ctrl_deps, other.ctrl_deps) or not np.array_equal(
        one.data_deps, other.data_deps
    ):
        return None
    if not np.array_equal(one.attr_name, other.attr_name) or not np.array_equal(
        one.attr_kind, other.attr_kind
    ):
        return None
    return _same_values(one, other)


def _same_values(one: Graph, other: Graph) -> bool | None:
    """Return the result of `compare` for graphs whose attributes have equal names and kinds."""
    a, b = one.attr_value, other.attr_value
    same, kinds, names = a == b, one.attr_kind, one.attr_name
    apart = one.columns is not other.columns
    for kind in np.flatnonzero(np.bincount(kinds)).tolist():
        # Equal texts and lists may have different numbers, and in two batches different ones the same.
        which = np.flatnonzero((kinds == kind) & (apart | ~same))
        if kind in _TEXTS:
            same[which] = _same_parts(_texts(one.columns), a[which], _texts(other.columns), b[which])
        elif kind & 1 == 0 and kind:
            # Items of lists of texts are numbers of texts: not compared, hence not the same.
            found = _same_parts(_lists(one.columns), a[which], _lists(other.columns), b[which])
            same[which] = found & (kind - 1 not in _TEXTS)
    differ = np.flatnonzero(~same)
    if not len(differ):
        return True
    if not bool(_free(one.columns)[names[differ]].all()):
        return None
    exact = differ[names[differ] == one.columns.name_code.get(EXACT, -1)]
    if not np.array_equal(a[exact] > 0, b[exact] > 0) or bool((a[exact] < 0).any() or (b[exact] < 0).any()):
        return None
    return len(exact) == len(differ)


def _texts(columns: Columns) -> tuple[Ints, NDArray[Any]]:
    return columns.string_ptr, columns.pool


def _lists(columns: Columns) -> tuple[Ints, NDArray[Any]]:
    return columns.list_ptr, columns.items


def _same_parts(left: tuple[Ints, NDArray[Any]], a: Ints, right: tuple[Ints, NDArray[Any]], b: Ints) -> Mask:
    """Return which parts `a` of one table have the same contents as parts `b` of another, (len(a),)."""
    first = left[0][a], right[0][b]
    size = left[0][a + 1] - first[0]
    same: Mask = size == right[0][b + 1] - first[1]
    size = np.where(same, size, 0)
    # All contents side by side: part, and place in it.
    begin = np.cumsum(size) - size
    of = np.repeat(np.arange(len(a)), size)
    within = np.arange(len(of)) - begin[of]
    wrong = left[1][first[0][of] + within] != right[1][first[1][of] + within]
    same[of[wrong]] = False
    return same
