"""Cutting a part out of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base import jit
from armillary.trace import columns as c
from armillary.trace.columns import I64, NodeType
from armillary.trace.graph import Graph, locate
from armillary.trace.structure import COMPILED_FROM, csr, owners, topological, validate
from armillary.trace.trace import Trace

KERNEL = "armillary.trace.bridge_kernel"

MOST = 32
"""Most dependencies that a left-out node may pass on to each node behind it."""

_KEPT, _JOIN = 1, 2


@dataclass(frozen=True)
class Slice:
    """A part of a trace."""

    trace: Trace
    joins: int
    """Nodes not selected that stay as empty METADATA nodes because too many dependencies meet in them."""


def slice_trace(trace: Trace, masks: Sequence[NDArray[np.bool_]]) -> Slice:
    """Return the part of a trace that `masks` choose, one for each distinct graph; see `slice_graph`.

    Raises:
        InputError: a graph has a cycle, or ids occur twice.
    """
    parts = [slice_graph(graph, mask) for graph, mask in zip(trace.graphs, masks, strict=True)]
    metadata = [
        sum(int((graph.types == NodeType.METADATA_NODE).sum()) for graph in graphs)
        for graphs in (parts, trace.graphs)
    ]
    return Slice(replace(trace, graphs=tuple(parts)), metadata[0] - metadata[1])


def slice_graph(graph: Graph, chosen: NDArray[np.bool_]) -> Graph:
    """Return the graph of the chosen nodes and all METADATA nodes, in the same order and with the same ids.

    A node that waited for a left-out one gets control dependencies on the nearest kept nodes before it, so two kept
    nodes are ordered exactly if they were before. A left-out node in which more than `MOST` nodes meet stays as an
    empty METADATA node, which keeps the graph small.

    Raises:
        InputError: the graph has a cycle, or ids occur twice.
    """
    validate(graph)
    keep = (chosen | (graph.types == NodeType.METADATA_NODE)).astype(np.int64)
    joined = _bridge(graph, keep)
    return _rebuild(graph, keep, *joined)


def _bridge(graph: Graph, keep: I64) -> tuple[I64, I64]:
    """Return (node, nearest kept ancestor) for all kept nodes, direct ones too; mark joins in `keep`."""
    ptr, parent = graph.parents()
    n = graph.n_nodes
    order = topological(ptr, parent)
    columns = [np.zeros(n, dtype=np.int64) for _ in range(6)]
    first, size, chain, place, tail, best = columns
    stamp, state = np.full(n, -1, dtype=np.int64), np.zeros(2, dtype=np.int64)
    # Enough for one entry per node and edge; the loop below doubles it where chains fan out.
    items = np.zeros(n + len(parent), dtype=np.int64)
    compiled = n >= COMPILED_FROM
    kernel = jit.load(KERNEL, "compiled" if compiled else "interpreted")
    table: list[Any] = [ptr, parent, order, keep, state, first, size, items, chain, place, tail, best, stamp]
    if not compiled:  # lists are quicker than arrays there
        table = [array.tolist() for array in table]
    while need := kernel.bridge(*table[:4], MOST, *table[4:]):
        more = np.zeros(2 * need - len(table[7]), dtype=np.int64)
        table[7] = np.concatenate([table[7], more]) if compiled else table[7] + more.tolist()
    keep[:], first, size, items = (np.array(table[at], dtype=np.int64) for at in (3, 5, 6, 7))
    kept = np.flatnonzero(keep)
    node = np.repeat(kept, size[kept])
    ends = np.cumsum(size[kept])
    # Flattens the ranges first[k] to first[k] + size[k].
    at = np.arange(len(node)) + np.repeat(first[kept] - ends + size[kept], size[kept])
    return node, items[at]


def _rebuild(graph: Graph, keep: I64, node: I64, near: I64) -> Graph:
    n, columns, low = graph.n_nodes, graph.columns, graph.first - 1
    ptr, parent = graph.parents()
    direct = owners(ptr) * n + parent
    # Direct dependencies stay as they were written; only the new ones become control ones.
    bridged = np.flatnonzero(locate(direct.view(np.uint64), (node * n + near).view(np.uint64)) < 0)
    node, near = node[bridged], near[bridged]
    kept = np.flatnonzero(keep)
    frames = np.concatenate([[0], kept + 1])
    rows = columns.rows[:, low : low + n + 2][:, np.append(frames, 0)].copy()
    place = np.zeros(n, dtype=np.int64)
    place[kept] = np.arange(len(kept))

    def dependencies(kind: str, more: tuple[I64, I64]) -> tuple[I64, I64]:
        deps, of = getattr(graph, f"{kind}_deps"), owners(getattr(graph, f"{kind}_ptr"))
        at = locate(graph.ids, deps)
        there = (keep[of] > 0) & (at >= 0)
        # Dangling dependencies have no node and are dropped here.
        there[there] = keep[at[there]] > 0
        owner = np.concatenate([place[of[there]], place[more[0]]]) + 1
        wanted = np.concatenate([deps[there].view(np.int64), graph.ids[more[1]].view(np.int64)])
        return csr(owner, wanted, len(frames))

    none = np.zeros(0, dtype=np.int64)
    rows[c.CTRL_AT], ctrl = dependencies("ctrl", (node, near))
    rows[c.DATA_AT], data = dependencies("data", (none, none))
    joins = np.flatnonzero(keep[kept] == _JOIN) + 1
    # A join keeps id and name but takes no time and has no attributes.
    rows[c.TYPE, joins], rows[c.DURATION, joins] = NodeType.METADATA_NODE, 0
    parts = _contents(graph, keep, frames, rows)
    new = replace(columns, frame_ptr=np.array([0, len(frames)]), rows=rows, ctrl=ctrl, data=data, **parts)
    return Graph(replace(new, unknown=columns.unknown[graph.index : graph.index + 1]), 0, graph.source)


def _contents(graph: Graph, keep: I64, frames: I64, rows: I64) -> dict[str, Any]:
    """Return the attributes, doc strings and IOInfo of the kept nodes, and write offsets of attributes to `rows`."""
    columns, low = graph.columns, graph.first - 1
    full = np.append(True, keep == _KEPT)  # by frame, the first is the GlobalMetadata
    ends = columns.rows[c.ATTR_AT, low : low + graph.n_nodes + 2]
    first = int(ends[0])
    attributes = np.flatnonzero(np.repeat(full, np.diff(ends))) + first
    rows[c.ATTR_AT, 0] = 0
    np.cumsum(np.where(full, np.diff(ends), 0)[frames], out=rows[c.ATTR_AT, 1:])
    # Sparse tables are renumbered by position among what is kept.
    docs = columns.docs[:, np.isin(columns.docs[0], attributes)].copy()
    docs[0] = np.searchsorted(attributes, docs[0])
    io = columns.io[:, (columns.io[0] >= low) & (columns.io[0] <= low + graph.n_nodes)]
    io = io[:, full[io[0] - low]].copy()
    io[0] = np.searchsorted(frames, io[0] - low)
    return {
        "attr_name": columns.attr_name[attributes],
        "attr_kind": columns.attr_kind[attributes],
        "attr_value": columns.attr_value[attributes],
        "docs": docs,
        "io": io,
    }
