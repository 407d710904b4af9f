"""A summary of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.trace.columns import CollectiveType, NodeType, type_name
from armillary.trace.graph import Graph, exact_sum


def info(graph: Graph) -> dict[str, Any]:
    """Return counts and sums for ``armillary trace info``, as plain JSON values.

    Keys: source, version, metadata, nodes, types (nodes by type name), collectives (by name: nodes and
    bytes), messages (bytes by type name), duration_micros (sum), dependencies (ctrl, data, dangling),
    attributes (nodes by name and kind), unknown_fields.
    """
    types = graph.types
    numbers, counts = np.unique(types, return_counts=True)
    collectives: dict[str, dict[str, int]] = {}
    messages: dict[str, int] = {}
    try:
        size, operation = graph.ints("comm_size"), graph.ints("comm_type", -1)
    except InputError:  # `check` says what is wrong with them
        size = operation = np.full(graph.n_nodes, -1, dtype=np.int64)
    for number in np.unique(operation[types == NodeType.COMM_COLL_NODE]).tolist():
        mine = (types == NodeType.COMM_COLL_NODE) & (operation == number)
        # A newer schema may have operations that this one has no name for.
        known = number in CollectiveType.__members__.values()
        name = CollectiveType(number).name if known else f"comm_type {number}"
        collectives[name] = {"nodes": int(mine.sum()), "bytes": exact_sum(size[mine])}
    for kind in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE):
        if (types == kind).any():
            messages[kind.name] = exact_sum(size[types == kind])
    return {
        "source": graph.source,
        "version": graph.version,
        "metadata": [[name, kind, _plain(value)] for name, kind, value in graph.metadata],
        "nodes": graph.n_nodes,
        "types": {
            type_name(number): count for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
        },
        "collectives": collectives,
        "messages": messages,
        "duration_micros": exact_sum(graph.duration_micros),
        "dependencies": {
            "ctrl": len(graph.ctrl_deps),
            "data": len(graph.data_deps),
            "dangling": len(graph.dangling),
        },
        "attributes": graph.attribute_kinds(),
        "unknown_fields": graph.unknown_fields,
    }


def _plain(value: Any) -> Any:
    from armillary.trace.json_layout import plain

    return plain(value)
