"""Totals of a generated trace: operations, and the bytes of each kind of communication."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.trace import CollectiveType, Graph, NodeType, Trace
from armillary.trace.grid import AXIS, FURTHER


@dataclass(frozen=True)
class Traffic:
    """Communication of one kind among groups of one axis set, in one step.

    Attributes:
        operation: E.g. "all-reduce", or "send".
        axes: Axis set of the groups, or the axis along which a message is sent; "" without a grid.
        ranks: Members of a group, 2 for a message; None without a grid.
        calls: Calls of the rank that moves the most bytes.
        size: Bytes of that rank, as Chakra's ``comm_size`` counts them.
        total: Bytes of all ranks.
    """

    operation: str
    axes: str
    ranks: int | None
    calls: float
    size: float
    total: float


@dataclass(frozen=True)
class Totals:
    """A generated trace in numbers.

    Attributes:
        ranks: Number of ranks.
        classes: (ranks, nodes of each) of every distinct graph.
        flops: Operations of the GEMMs of all ranks in one step.
        busiest: Operations of the rank with the most.
        traffic: Communication of one step, largest bytes of a rank first.
    """

    ranks: int
    classes: tuple[tuple[int, int], ...]
    flops: float
    busiest: float
    traffic: tuple[Traffic, ...]


def totals(trace: Trace, steps: int = 1) -> Totals:
    """Return the totals of one of the equal `steps` of a trace."""
    sizes = np.bincount(trace.rank_graph, minlength=len(trace.graphs)).tolist()
    flops = [_flops(graph) for graph in trace.graphs]
    moved = [_traffic(graph) for graph in trace.graphs]
    kinds = dict.fromkeys(kind for each in moved for kind in each)
    rows = []
    for operation, axes in kinds:
        each = [mine.get((operation, axes), (0, 0)) for mine in moved]
        # Calls and bytes of the same rank, the one that moves the most.
        calls, most = max(each, key=lambda pair: pair[1])
        total = sum(size * ranks for (_, size), ranks in zip(each, sizes, strict=True))
        ranks = 2 if operation == "send" else _members(trace, axes)
        rows.append(Traffic(operation, axes, ranks, calls / steps, most / steps, total / steps))
    return Totals(
        trace.n_ranks,
        tuple((ranks, graph.n_nodes) for ranks, graph in zip(sizes, trace.graphs, strict=True)),
        sum(work * ranks for work, ranks in zip(flops, sizes, strict=True)) / steps,
        max(flops) / steps,
        tuple(sorted(rows, key=lambda row: -row.size)),
    )


def _flops(graph: Graph) -> int:
    """Return the operations of a graph; kernels without any are recorded with 1."""
    work = graph.ints("num_ops", 0)
    work = work[(graph.types == NodeType.COMP_NODE) & (work > 1)]
    # Halves are summed apart: a sum of the whole could overflow int64 in large graphs.
    return (int((work >> 32).sum()) << 32) + int((work & 0xFFFFFFFF).sum())


def _traffic(graph: Graph) -> dict[tuple[str, str], tuple[int, int]]:
    """Return calls and bytes by operation and axis set or axis."""
    size, kind = graph.ints("comm_size", 0), graph.ints("comm_type", -1)
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for node_type, attribute in ((NodeType.COMM_COLL_NODE, "pg_name"), (NodeType.COMM_SEND_NODE, AXIS)):
        codes, names = graph.strings(attribute)
        here = graph.types == node_type
        # Sends have no comm_type, so theirs is -1.
        for code, number in np.unique(np.stack([codes[here], kind[here]]), axis=1).T.tolist():
            which = here & (codes == code) & (kind == number)
            operation = CollectiveType(number).name.lower().replace("_", "-") if number >= 0 else "send"
            # Communicators of the same ranks are one row.
            key = (operation, names[code].partition(FURTHER)[0] if code >= 0 else "")
            calls, moved = found.get(key, (0, 0))
            found[key] = (calls + int(which.sum()), moved + int(size[which].sum()))
    return found


def _members(trace: Trace, axis_set: str) -> int | None:
    if trace.grid is None:
        return None
    return int(trace.grid.members(axis_set).shape[1]) if axis_set else trace.n_ranks
