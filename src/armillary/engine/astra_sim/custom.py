"""Custom collectives: an execution trace per member replaces the algorithm.

The nodes of the trace become inner nodes of the rank that runs the collective: they take no slot, start
when the collective does, and the last one ends it. Sizes are those of the trace (spec: 1(c), Custom). An MSCCL
XML file in place of the prefix of trace files is turned into such traces, for the size of the collective.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine.astra_sim import layout as lk
from armillary.engine.common.items import TAGS, View
from armillary.engine.common.network import Communicators
from armillary.engine.common.nodes import Nodes
from armillary.trace import Graph, NodeType, read_graph
from armillary.trace.graph import LIMIT
from armillary.trace.structure import validate

Ints = NDArray[np.int64]


def uses_custom(views: list[View]) -> bool:
    """Tell whether any collective is replaced by a trace."""
    return any(call.custom for view in views for call in view.calls)


def expand(view: View, rank: int, comms: Communicators) -> View:
    """Return the view of `rank` with the nodes of its custom collectives appended.

    Raises:
        InputError: a trace is missing, or has a node that a collective cannot run.
    """
    nodes = view.nodes
    kind, slot, ticks = [nodes.kind], [nodes.slot], [nodes.ticks]
    indegree, children, counts = [nodes.indegree], [nodes.children], [np.diff(nodes.child_ptr)]
    item, items = [nodes.item], [nodes.items]
    peer, tag, size = [view.peer], [view.tag], [view.size]
    count, n_items = len(nodes.kind), len(nodes.items)
    parts = np.zeros((len(nodes.items), 2), np.int64)
    # Only collectives that name a trace grow; others keep their nodes.
    for i in np.flatnonzero(view.call >= 0).tolist():
        call = view.calls[int(view.call[i])]
        if not call.custom:
            continue
        members = comms.get(call.comm).members
        position = int(np.flatnonzero(members == rank)[0])
        graph = _graph(call.custom, position, call.size)
        part = _Part(graph, position, members)
        # Messages get items of their own; a computation points to the collective that it belongs to.
        own = np.where(part.message, n_items + np.cumsum(part.message) - 1, i)
        parts[i] = count, graph.n_nodes
        kind.append(part.kind)
        slot.append(np.full(graph.n_nodes, lk.INNER))
        # A message has no ticks: the column names its collective instead (see `step_kernel.complete_part`).
        ticks.append(np.where(part.message, i, part.ticks))
        indegree.append(part.indegree)
        children.append(part.children + count)
        counts.append(part.counts)
        item.append(own)
        items.append(count + np.flatnonzero(part.message))
        peer.append(part.peer[part.message])
        tag.append(part.tag[part.message])
        size.append(part.size[part.message])
        count += graph.n_nodes
        n_items += int(part.message.sum())
    join = np.concatenate
    grown = Nodes(
        graph=nodes.graph, order=nodes.order, kind=join(kind), slot=join(slot), ticks=join(ticks),
        indegree=join(indegree), child_ptr=join([[0], np.cumsum(join(counts))]).astype(np.int64),
        children=join(children), item=join(item), items=join(items), warnings=nodes.warnings, free=nodes.free,
    )  # fmt: skip
    none = np.full(n_items - len(view.call), -1)
    return replace(
        view,
        nodes=grown,
        call=join([view.call, none]),
        peer=join(peer),
        tag=join(tag),
        size=join(size),
        parts=parts,
    )


@lru_cache(maxsize=4096)
def _graph(prefix: str, position: int, size: int) -> Graph:
    if prefix.endswith(".xml"):
        graphs = _algorithm(prefix, size)
        if position >= len(graphs):
            raise InputError(f"{prefix} is for {len(graphs)} ranks; expected at least {position + 1}")
        return graphs[position]
    path = f"{prefix}.{position}.et"
    if not Path(path).exists():
        raise InputError(f"{path}: no such file; expected the trace of one member of a custom collective")
    graph = read_graph(path)
    validate(graph)
    if graph.n_nodes == 0:
        raise InputError(f"{path} has no nodes; expected the messages of one member of a custom collective")
    return graph


@lru_cache(maxsize=16)
def _algorithm(path: str, size: int) -> list[Graph]:
    """Return the graphs of an MSCCL algorithm for a collective of `size` bytes."""
    from armillary.collective.msccl import read_msccl, to_graphs

    return to_graphs(read_msccl(path), size)


class _Part:
    """Columns of the nodes of one custom trace, in file order."""

    def __init__(self, graph: Graph, position: int, members: Ints) -> None:
        types = graph.types
        send, recv = types == NodeType.COMM_SEND_NODE, types == NodeType.COMM_RECV_NODE
        bad = np.flatnonzero(~(send | recv | (types == NodeType.COMP_NODE)))
        if bad.size:
            raise InputError(
                f"{graph.node(int(bad[0]))} has type {types[bad[0]]}; expected a COMP, COMM_SEND or COMM_RECV node "
                "in a custom collective"
            )
        self.message = send | recv
        self.kind = np.where(send, lk.PART_SEND, np.where(recv, lk.PART_RECV, lk.PART))
        # ASTRA-sim takes the duration in whole µs; a tick at least, so that parts take time.
        self.ticks = np.maximum(graph.duration_micros.astype(np.int64) * 1000, 1)
        end = np.where(send, graph.ints("comm_dst", -1), graph.ints("comm_src", -1))
        self.tag, self.size = graph.ints("comm_tag", 0) % TAGS, graph.ints("comm_size", 0)
        wrong = self.message & ((end < 0) | (end >= len(members)) | (end == position))
        wrong |= self.message & ((self.size <= 0) | (self.size >= LIMIT))
        for at in np.flatnonzero(wrong).tolist():
            raise InputError(
                f"{graph.node(at)} moves {self.size[at]} bytes between member {position} and {end[at]}; expected more "
                f"than 0 bytes and another member below {len(members)}"
            )
        self.peer = np.where(self.message, members[np.where(self.message, end, 0)], -1)
        ptr, parent = graph.parents()
        self.indegree = np.diff(ptr).astype(np.int64)
        # Edges are listed by child; sorting them by parent, stably, gives each parent its children in file
        # order.
        order = np.argsort(parent, kind="stable")
        self.children = np.repeat(np.arange(graph.n_nodes), np.diff(ptr))[order].astype(np.int64)
        self.counts = np.bincount(parent, minlength=graph.n_nodes).astype(np.int64)
