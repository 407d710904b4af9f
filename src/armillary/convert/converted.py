"""The result of a front end, and its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from armillary.trace import CollectiveType, Graph, NodeType, Trace

_SEND, _RECV = -2, -3
_NAMED = {"SEND": _SEND, "RECV": _RECV} | {kind.name: int(kind) for kind in CollectiveType}


@dataclass(frozen=True)
class Converted:
    """A converted workload."""

    trace: Trace
    groups: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Ranks of every communicator group by its number, which a node holds in ``pg_name``."""
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Entries that the front end adds to the report, as plain JSON values."""
    statements: tuple[str, ...] = ()
    """Lines that the command prints in any case."""


def report(converted: Converted) -> dict[str, Any]:
    """Return what was converted as plain JSON values, counts summed over the ranks.

    Keys: ranks, nodes, comm (by type: count and bytes), groups (ranks by number), warnings, and what the
    front end adds, such as linked, link_rate and gap_fraction.
    """
    trace = converted.trace
    # Ranks share the graph object when their graphs are equal, so a graph counts once for each of its ranks.
    times = np.bincount(trace.rank_graph, minlength=len(trace.graphs)).tolist()
    comm: dict[str, dict[str, int]] = {}
    for graph, ranks in zip(trace.graphs, times, strict=True):
        for name, total in communication(graph).items():
            entry = comm.setdefault(name, {"count": 0, "bytes": 0})
            for key, value in total.items():
                entry[key] += value * ranks
    return {
        "ranks": trace.n_ranks,
        "nodes": sum(graph.n_nodes * ranks for graph, ranks in zip(trace.graphs, times, strict=True)),
        "comm": comm,
        "groups": {str(number): list(ranks) for number, ranks in converted.groups.items()},
        **converted.facts,
        "warnings": list(converted.warnings),
    }


def communication(graph: Graph) -> dict[str, dict[str, int]]:
    """Return count and bytes of the communication nodes of `graph`, by ``ALL_REDUCE``, …, ``SEND``, ``RECV``."""
    # ALL_REDUCE is 0: a node without comm_type must not read as one.
    size, operation = graph.ints("comm_size"), graph.ints("comm_type", -1)
    code = np.where(graph.types == NodeType.COMM_COLL_NODE, operation, -1)
    code[graph.types == NodeType.COMM_SEND_NODE] = _SEND
    code[graph.types == NodeType.COMM_RECV_NODE] = _RECV
    there = np.unique(code).tolist()
    masks = {name: code == number for name, number in _NAMED.items() if number in there}
    return {name: {"count": int(mine.sum()), "bytes": int(size[mine].sum())} for name, mine in masks.items()}
