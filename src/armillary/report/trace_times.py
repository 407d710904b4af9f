"""Recorded durations, starts and lanes of the nodes of a trace."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.trace import Graph, NodeType

I64 = NDArray[np.int64]
LONGEST_NS = 2**58
"""Nine years; a longer time means a damaged trace."""

KINDS = ("compute", "cpu", "collective", "message", "memory", "metadata", "other")
"""Kinds of nodes in drawings and timelines."""

_KIND_OF = {
    NodeType.COMP_NODE: "compute",
    NodeType.COMM_COLL_NODE: "collective",
    NodeType.COMM_SEND_NODE: "message",
    NodeType.COMM_RECV_NODE: "message",
    NodeType.MEM_LOAD_NODE: "memory",
    NodeType.MEM_STORE_NODE: "memory",
    NodeType.METADATA_NODE: "metadata",
}


def kinds(graph: Graph) -> NDArray[np.int8]:
    """Return the index into `KINDS` of every node, int8 (n_nodes,)."""
    found = np.full(graph.n_nodes, KINDS.index("other"), dtype=np.int8)
    for number, kind in _KIND_OF.items():
        found[graph.types == number] = KINDS.index(kind)
    found[(graph.types == NodeType.COMP_NODE) & (graph.ints("is_cpu_op") != 0)] = KINDS.index("cpu")
    return found


def durations(graph: Graph) -> I64:
    """Return the recorded duration of every node in ns, int64 (n_nodes,).

    Raises:
        InputError: one is negative or above `LONGEST_NS`.
    """
    return _ns(graph, "duration_ns", "duration_micros", graph.duration_micros)


def starts(graph: Graph) -> I64 | None:
    """Return the recorded start of every node in ns, int64 (n_nodes,); None where the trace has none.

    Raises:
        InputError: see `durations`.
    """
    found = _ns(graph, "start_ns", "start_micros", graph.start_micros)
    # 0 everywhere is what writers leave where they have no starts.
    return found if found.any() else None


def _ns(graph: Graph, attribute: str, field: str, micros: NDArray[np.uint64]) -> I64:
    has, exact = graph.has(attribute), graph.ints(attribute)
    # Checked in µs before the multiplication, which would wrap.
    wrong = np.where(has, (exact < 0) | (exact > LONGEST_NS), micros > LONGEST_NS // 1000)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        name, value = (attribute, exact[at]) if has[at] else (field, micros[at])
        raise InputError(f"{graph.node(at)}: {name} is {value}, expected a time from 0 to {LONGEST_NS} ns")
    return np.where(has, exact, micros.astype(np.int64) * 1000)


def lanes(graph: Graph) -> tuple[I64, list[str]]:
    """Return for every node the lane it runs in, int64 (n_nodes,), and the names of the lanes.

    A lane is a CPU thread, a device stream, a communicator where collectives name no stream, or else all
    nodes of a kind. CPU threads come first, then in the order of `KINDS`.
    """
    kind = kinds(graph).astype(np.int64)
    cpu, compute, collective = (kind == KINDS.index(name) for name in ("cpu", "compute", "collective"))
    groups, group_names = graph.strings("pg_name")
    number = np.full(graph.n_nodes, -1, dtype=np.int64)
    source = np.zeros(graph.n_nodes, dtype=np.int64)
    # Later ways win: a stream of its own is more precise than a communicator.
    ways: tuple[tuple[NDArray[np.bool_], NDArray[Any]], ...] = (
        (collective & (groups >= 0), groups),
        (cpu & graph.has("tid"), graph.ints("tid")),
        ((compute | collective) & graph.has("stream"), graph.ints("stream")),
    )
    for way, (chosen, values) in enumerate(ways):
        number[chosen], source[chosen] = values[chosen], way
    place = np.where(cpu, -1, kind)
    keys, lane = np.unique(np.stack([place, source, number]), axis=1, return_inverse=True)
    names = [_lane_name(a, b, c, group_names) for a, b, c in keys.T.tolist()]
    return lane.reshape(-1), names


def _lane_name(place: int, source: int, number: int, groups: list[str]) -> str:
    kind = KINDS[place] if place >= 0 else "cpu"
    if number < 0:
        plural = {"cpu": "CPU", "message": "messages", "collective": "collectives"}
        return plural.get(kind, kind)
    if kind == "cpu":
        return f"CPU thread {number}"
    return f"collectives of group {groups[number]}" if source == 0 else f"{kind} stream {number}"
