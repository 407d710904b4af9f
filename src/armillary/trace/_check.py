"""Checks of one graph: errors that keep it from being simulated, and oddities."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.trace.columns import RAW, CollectiveType, NodeType, type_name
from armillary.trace.graph import LIMIT, Graph, distinct_types
from armillary.trace.grid import AXIS
from armillary.trace.node import PACE, REPLAY_ONLY
from armillary.trace.structure import SHOWN, Diagnostic, Severity, misplaced, more

_NEEDED: dict[NodeType, dict[str, Severity]] = {
    NodeType.COMM_COLL_NODE: {"comm_type": "error", "comm_size": "warning"},
    NodeType.COMM_SEND_NODE: {"comm_size": "error", "comm_dst": "error"},
    NodeType.COMM_RECV_NODE: {"comm_size": "error", "comm_src": "error"},
    NodeType.MEM_LOAD_NODE: {"tensor_size": "warning"},
    NodeType.MEM_STORE_NODE: {"tensor_size": "warning"},
}
_INTEGERS = (
    "is_cpu_op", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "comm_root", PACE, "num_ops",
    "tensor_size", "stream", "tid",
)  # fmt: skip


def check(graph: Graph) -> list[Diagnostic]:
    """Return all findings about a graph, errors first; findings of the same kind are merged and counted."""
    # The sort is stable: within a severity findings keep their order.
    findings = [*misplaced(graph), *_contents(graph)]
    return sorted(findings, key=lambda finding: finding.severity != "error")


def _contents(graph: Graph) -> Iterator[Diagnostic]:
    if not graph.n_nodes:
        yield Diagnostic("warning", None, "the graph has no nodes")
    if graph.unknown_fields:
        yield Diagnostic("warning", None, f"{graph.unknown_fields} unknown protobuf fields are skipped")
    newer = int((graph.attr_kind == RAW).sum())
    types = graph.types
    known = int(np.isin(types, (NodeType.STORAGE_NODE, NodeType.CHECKPOINT_NODE)).sum())
    if newer > known:
        problem = f"{newer - known} fields of nodes are of a newer schema: they are kept, and simulations ignore them"
        yield Diagnostic("warning", None, problem)
    present = distinct_types(types).tolist()
    for number in present:
        if number == NodeType.INVALID_NODE:
            nothing = np.flatnonzero(types == number)
            yield _about(graph, nothing, "of type INVALID_NODE, which nothing can run")
        elif type_name(number) == str(number):
            strange = np.flatnonzero(types == number)
            yield _about(graph, strange, f"of type {number}, which nothing can run", "error")
    for kind, names in _NEEDED.items():
        for name, severity in names.items() if kind in present else ():
            absent = np.flatnonzero((types == kind) & ~graph.has(name))
            yield from _maybe(graph, absent, f"of type {kind.name} without {name}", severity)
    try:
        yield from _values(graph)
    except InputError as error:
        yield Diagnostic("error", None, str(error).removeprefix(f"{graph.source}: "))


def _values(graph: Graph) -> Iterator[Diagnostic]:
    """Check the values of attributes.

    Raises:
        InputError: an attribute is of the wrong kind.
    """
    names = set(graph.attr_names)
    # Read only to have the kinds checked; a wrong kind raises here.
    for name in _INTEGERS:
        if name in names:
            graph.integers(name)
    graph.strings("pg_name"), graph.bool_lists("involved_dim"), graph.int_lists("comm_splits")
    types = graph.types
    collective = types == NodeType.COMM_COLL_NODE
    send, receive = types == NodeType.COMM_SEND_NODE, types == NodeType.COMM_RECV_NODE
    memory = (types == NodeType.MEM_LOAD_NODE) | (types == NodeType.MEM_STORE_NODE)
    message = send | receive
    unknown = graph.ints(REPLAY_ONLY) != 0
    yield from _maybe(
        graph,
        np.flatnonzero((collective | message) & unknown),
        "of unknown bytes that takes its recorded time on every machine",
        noun="communication",
    )
    # The limit is in ns, this field in µs.
    long = np.flatnonzero(graph.duration_micros > (LIMIT - 1) // 1000)
    yield from _maybe(graph, long, "that takes 2**60 ns or more", "error")
    for name, kind in (("comm_size", collective | message), ("tensor_size", memory)):
        at = np.flatnonzero(kind)
        size = graph.ints_at(at, name)
        wrong = at[(size < 0) | (size >= LIMIT)]
        yield from _maybe(graph, wrong, f"with a {name} below 0 or from 2**60", "error")
    if len(at := np.flatnonzero(collective)):
        # -1 keeps an absent size, which has a finding already, out of the zero-byte one.
        size, operation = graph.ints_at(at, "comm_size", -1), graph.ints_at(at, "comm_type")
        # A barrier moves no bytes by nature; with `replay_only` the size is unknown.
        zero = (size == 0) & (operation != CollectiveType.BARRIER) & ~unknown[at]
        yield from _maybe(graph, at[zero], "of zero bytes", noun="collective")
        unlike = ~np.isin(operation, [int(member) for member in CollectiveType])
        yield from _maybe(graph, at[unlike], "with an unknown comm_type", "error")
    if len(at := np.flatnonzero(message)):
        size = graph.ints_at(at, "comm_size", -1)
        peer = np.where(send[at], graph.ints_at(at, "comm_dst"), graph.ints_at(at, "comm_src"))
        yield from _maybe(graph, at[(size == 0) & ~unknown[at]], "of zero bytes", "error", "message")
        # Along an axis the peer is a number of steps, which may be negative.
        below = (peer < 0) & ~graph.has(AXIS)[at]
        yield from _maybe(graph, at[below], "whose peer is below 0", "error", "message")
    if "is_cpu_op" in names and (collective | message).any():
        at = np.flatnonzero(collective | message)
        on_cpu = at[graph.ints_at(at, "is_cpu_op") != 0]
        yield from _maybe(
            graph, on_cpu, "that communicates with is_cpu_op set, which profile astra-sim refuses"
        )


def _maybe(
    graph: Graph, nodes: NDArray[np.int64], what: str, severity: Severity = "warning", noun: str = "node"
) -> Iterator[Diagnostic]:
    if len(nodes):
        yield _about(graph, nodes, what, severity, noun)


def _about(
    graph: Graph, found: NDArray[np.int64], what: str, severity: Severity = "warning", noun: str = "node"
) -> Diagnostic:
    shown = ", ".join(f"{int(graph.ids[at])} '{graph.name(at)}'" for at in found[:SHOWN].tolist())
    return Diagnostic(
        severity,
        int(found[0]),
        f"{len(found)} {noun}{'s' * (len(found) > 1)} {what}: {shown}{more(len(found))}",
    )
