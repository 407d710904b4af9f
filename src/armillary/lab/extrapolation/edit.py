"""Copies of graphs with some attributes changed or some nodes removed; everything else stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from armillary.convert.pytorch.arguments import Arguments
from armillary.trace import columns as c
from armillary.trace.columns import KINDS, Columns
from armillary.trace.expand import part_of
from armillary.trace.graph import Graph
from armillary.trace.structure import issue_order

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def with_ints(graph: Graph, values: Mapping[str, Ints]) -> Graph:
    """Return the graph with other integers, (n_nodes,) for each attribute; nodes that lack one stay without."""
    part = part_of(graph)
    node = _nodes(part)
    found = part.attr_value.copy()
    for name, each in values.items():
        at = np.flatnonzero((node >= 0) & (part.attr_name == part.name_code.get(name, -1)))
        found[at] = each[node[at]]
    return Graph(replace(part, attr_value=found), 0, graph.source)


def with_durations(graph: Graph, ns: Ints) -> Graph:
    """Return the graph with these durations in ns, in whole microseconds too, as the schema has them."""
    part = part_of(graph)
    rows = part.rows.copy()
    # The schema's field is in whole microseconds, rounded up; the exact time is in attribute `duration_ns`.
    rows[c.DURATION, 1:-1] = -(-ns // 1000)
    made = Graph(replace(part, rows=rows), 0, graph.source)
    # The attribute is added only where microseconds would round the time.
    missing = ~made.has("duration_ns") & (ns % 1000 > 0)
    return inserted(with_ints(made, {"duration_ns": ns}), "duration_ns", "int64", missing, ns)


def with_lists(graph: Graph, name: str, lists: Sequence[Sequence[int] | None]) -> Graph:
    """Return the graph with other lists of integers, one for each node; None leaves what is there."""
    part = part_of(graph)
    node = _nodes(part)
    at = np.flatnonzero((node >= 0) & (part.attr_name == part.name_code.get(name, -1)))
    at = at[[lists[i] is not None for i in node[at].tolist()]]
    index: dict[tuple[int, ...], int] = {}
    # New lists are appended to the pool and old ones stay unused: rewriting the pool would touch every list
    # of the graph.
    first = len(part.list_ptr) - 1
    code = [first + index.setdefault(tuple(lists[i] or ()), len(index)) for i in node[at].tolist()]
    values = part.attr_value.copy()
    values[at] = code
    ends = part.list_ptr[-1] + np.cumsum([len(each) for each in index], dtype=np.int64)
    items = np.array([item for each in index for item in each], np.int64)
    made = replace(
        part,
        attr_value=values,
        list_ptr=np.concatenate([part.list_ptr, ends]),
        items=np.concatenate([part.items[: part.list_ptr[-1]], items]),
    )
    return Graph(made, 0, graph.source)


def with_tensors(graph: Graph, tensors: Mapping[int, tuple[Arguments, Arguments]]) -> Graph:
    """Return the graph in which some nodes name these inputs and outputs."""
    part = part_of(graph)
    index: dict[str, int] = {}
    first = len(part.string_ptr) - 1
    io = part.io.copy()
    # Rows of `io`: frame (0 is the GlobalMetadata, so node + 1), side (0 inputs, 1 outputs), then three
    # texts.
    for row in range(io.shape[1]):
        sides = tensors.get(int(io[0, row]) - 1)
        if sides is None:
            continue
        side = sides[int(io[1, row])]
        for at, text in ((2, str(side.values)), (3, str(side.shapes)), (4, str(side.types))):
            io[at, row] = first + index.setdefault(text, len(index))
    raw = [text.encode() for text in index]
    ends = part.string_ptr[-1] + np.cumsum([len(each) for each in raw], dtype=np.int64)
    pool = np.concatenate([part.pool[: part.string_ptr[-1]], np.frombuffer(b"".join(raw), np.uint8)])
    made = replace(part, io=io, string_ptr=np.concatenate([part.string_ptr, ends]), pool=pool)
    return Graph(made, 0, graph.source)


def with_texts(graph: Graph, name: str, codes: Ints, texts: Sequence[str]) -> Graph:
    """Return the graph in which nodes have text `codes` of `texts` as an attribute; -1: they have none."""
    part = part_of(graph)
    first = len(part.string_ptr) - 1
    raw = [text.encode() for text in texts]
    ends = part.string_ptr[-1] + np.cumsum([len(each) for each in raw], dtype=np.int64)
    pool = np.concatenate([part.pool[: part.string_ptr[-1]], np.frombuffer(b"".join(raw), np.uint8)])
    part = replace(part, string_ptr=np.concatenate([part.string_ptr, ends]), pool=pool)
    made = without(Graph(part, 0, graph.source), name, np.ones(graph.n_nodes, np.bool_))
    return inserted(made, name, "string", codes >= 0, codes + first)


def with_names(graph: Graph, names: Sequence[str]) -> Graph:
    """Return the graph with other names of its nodes."""
    part = part_of(graph)
    index: dict[str, int] = {}
    first = len(part.string_ptr) - 1
    codes = [first + index.setdefault(name, len(index)) for name in names]
    raw = [name.encode() for name in index]
    ends = part.string_ptr[-1] + np.cumsum([len(each) for each in raw], dtype=np.int64)
    pool = np.concatenate([part.pool[: part.string_ptr[-1]], np.frombuffer(b"".join(raw), np.uint8)])
    rows = part.rows.copy()
    rows[c.NAME_AT, 1:-1] = codes
    made = replace(part, rows=rows, string_ptr=np.concatenate([part.string_ptr, ends]), pool=pool)
    return Graph(made, 0, graph.source)


def without(graph: Graph, name: str, nodes: Mask) -> Graph:
    """Return the graph without an attribute of some nodes."""
    part = part_of(graph)
    node = _nodes(part)
    drop = (node >= 0) & (part.attr_name == part.name_code.get(name, -1))
    drop &= nodes[np.maximum(node, 0)]
    return graph if not drop.any() else Graph(_kept(part, ~drop), 0, graph.source)


def inserted(graph: Graph, name: str, kind: str, nodes: Mask, values: Ints) -> Graph:
    """Return the graph with an attribute more on some nodes; `values`, (n_nodes,), are as `Columns.attr_value`."""
    if not nodes.any():
        return graph
    part = part_of(graph)
    names = part.names if name in part.name_code else [*part.names, name]
    # Offset of the next row: the attribute goes behind the others of its node.
    at = part.rows[c.ATTR_AT, 2:][nodes]
    rows = part.rows.copy()
    rows[c.ATTR_AT, 2:] += np.cumsum(nodes)
    docs = part.docs.copy()
    # Documentation is attached to attributes by position, which the insertion has moved.
    docs[0] += np.searchsorted(at, docs[0], side="right")
    made = replace(
        part,
        rows=rows,
        docs=docs,
        attr_name=np.insert(part.attr_name, at, names.index(name)),
        attr_kind=np.insert(part.attr_kind, at, KINDS[kind]),
        attr_value=np.insert(part.attr_value, at, values[nodes]),
        names=names,
    )
    return Graph(made, 0, graph.source)


def kept_nodes(graph: Graph, keep: Mask) -> Graph:
    """Return the graph of the nodes of a mask; dependencies on dropped nodes dangle."""
    return graph if keep.all() else taken_nodes(graph, np.flatnonzero(keep))


def taken_nodes(graph: Graph, positions: Ints) -> Graph:
    """Return the graph of the nodes at these positions, in this order; one that is there twice has its id twice."""
    part = part_of(graph)
    # Frame 0 is the GlobalMetadata and is always kept.
    frames = np.concatenate([[0], positions + 1])
    rows = part.rows[:, np.append(frames, part.rows.shape[1] - 1)].copy()
    taken = {}
    # Each is a CSR of its own over the frames: dependencies by control and by data, and attributes.
    for field in (c.CTRL_AT, c.DATA_AT, c.ATTR_AT):
        rows[field], taken[field] = _ranges(part.rows[field], frames)
    ptr, io_at = _ranges(np.searchsorted(part.io[0], np.arange(part.rows.shape[1])), frames)
    io = np.concatenate([np.repeat(np.arange(len(frames)), np.diff(ptr))[None], part.io[1:, io_at]])
    attrs = taken[c.ATTR_AT]
    documented = np.flatnonzero(np.isin(attrs, part.docs[0]))
    docs = np.stack([documented, part.docs[1][np.searchsorted(part.docs[0], attrs[documented])]])
    made = replace(
        part, frame_ptr=np.array([0, len(frames)]), rows=rows, ctrl=part.ctrl[taken[c.CTRL_AT]],
        data=part.data[taken[c.DATA_AT]], attr_name=part.attr_name[attrs], attr_kind=part.attr_kind[attrs],
        attr_value=part.attr_value[attrs], io=io, docs=docs,
    )  # fmt: skip
    return Graph(made, 0, graph.source)


def _ranges(offsets: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return offsets of these rows of a CSR one after the other, and where their values were."""
    counts = np.diff(offsets)[rows]
    ptr: Ints = np.concatenate([[0], np.cumsum(counts)])
    return ptr, np.arange(ptr[-1]) + np.repeat(offsets[rows] - ptr[:-1], counts)


def with_dependencies(graph: Graph, data: Sequence[Sequence[int]]) -> Graph:
    """Return the graph whose nodes wait for the ones at these positions, and no others; ids are numbered anew."""
    part = part_of(graph)
    rows = part.rows.copy()
    rows[c.ID, 1:-1] = np.arange(graph.n_nodes)
    rows[c.CTRL_AT] = 0
    rows[c.DATA_AT, 2:] = np.cumsum([len(each) for each in data])
    rows[c.DATA_AT, :2] = 0
    ids = np.array([each for own in data for each in own], np.int64)
    made = replace(part, rows=rows, ctrl=part.ctrl[:0], data=ids)
    return Graph(made, 0, graph.source)


def bypassed(graph: Graph, drop: Mask) -> Graph:
    """Return the graph without some nodes; nodes that waited for a dropped one wait for its predecessors."""
    if not drop.any():
        return graph
    ptr, parents = graph.parents()
    at = np.cumsum(~drop) - 1
    instead: dict[int, list[int]] = {}
    # In issue order, so that what a dropped parent is replaced by is known; dropped chains resolve to their
    # nearest kept nodes.
    for node in issue_order(graph).tolist():
        before: dict[int, None] = {}
        for parent in parents[ptr[node] : ptr[node + 1]].tolist():
            before |= dict.fromkeys(instead[parent] if drop[parent] else [int(at[parent])])
        instead[node] = list(before)
    data = [instead[node] for node in np.flatnonzero(~drop).tolist()]
    return with_dependencies(kept_nodes(graph, ~drop), data)


def _nodes(part: Columns) -> Ints:
    """Return the node of every attribute, (attributes,); -1 for those of the GlobalMetadata."""
    found: Ints = np.repeat(np.arange(part.rows.shape[1] - 1), np.diff(part.rows[c.ATTR_AT])) - 1
    return found


def _kept(part: Columns, keep: Mask) -> Columns:
    before = np.concatenate([[0], np.cumsum(keep)])
    rows = part.rows.copy()
    rows[c.ATTR_AT] = before[rows[c.ATTR_AT]]
    docs = part.docs[:, keep[part.docs[0]]]
    docs = np.concatenate([before[docs[:1]], docs[1:]])
    return replace(
        part, rows=rows, docs=docs, attr_name=part.attr_name[keep], attr_kind=part.attr_kind[keep],
        attr_value=part.attr_value[keep],
    )  # fmt: skip
