"""Checks of one graph: errors that keep it from being simulated, and oddities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.trace.columns import RAW, CollectiveType, NodeType, type_name
from armillary.trace.graph import LIMIT, Graph, distinct_types
from armillary.trace.grid import AXIS
from armillary.trace.node import PACE, REPLAY_ONLY
from armillary.trace.structure import find_cycle

Severity = Literal["error", "warning"]

_SHOWN = 8

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


@dataclass(frozen=True)
class Diagnostic:
    """One finding; an error keeps the trace from being simulated, a warning does not."""

    severity: Severity
    node: int | None
    """Position of the (first) node it is about, None for the whole graph."""
    message: str


def check(graph: Graph) -> list[Diagnostic]:
    """Return all findings about a graph, errors first; findings of the same kind are merged and counted."""
    # The sort is stable: within a severity findings keep their order.
    findings = [*_structure(graph), *_contents(graph)]
    return sorted(findings, key=lambda finding: finding.severity != "error")


def validate(graph: Graph) -> None:
    """Refuse what cannot be simulated: ids that occur twice, and cycles.

    Raises:
        InputError: names the nodes.
    """
    for finding in _structure(graph):
        if finding.severity == "error":
            raise InputError(f"{graph.source}: {finding.message}")


def _structure(graph: Graph) -> Iterator[Diagnostic]:
    ids = graph.ids
    if len(ids) and not np.all(ids[1:] > ids[:-1]):
        order = np.argsort(ids, kind="stable")
        twice = order[1:][ids[order[1:]] == ids[order[:-1]]]
        if len(twice):
            shown = ", ".join(f"{int(ids[at])} '{graph.name(at)}'" for at in twice[:_SHOWN].tolist())
            many = "nodes have" if len(twice) > 1 else "node has"
            yield Diagnostic(
                "error",
                int(twice[0]),
                f"{len(twice)} {many} the id of an earlier node, expected unique ids: {shown}"
                + _more(len(twice)),
            )
            # A dependency on an id that occurs twice is ambiguous, so cycles would mean nothing.
            return
    cycle = find_cycle(graph)
    if cycle:
        shown = " -> ".join(f"{int(ids[at])} '{graph.name(at)}'" for at in cycle[:_SHOWN])
        shown += " -> …" if len(cycle) > _SHOWN else f" -> {int(ids[cycle[0]])}"
        yield Diagnostic(
            "error",
            cycle[0],
            f"dependency cycle of {len(cycle)} node{'s' * (len(cycle) > 1)}, expected none: {shown}",
        )
    dangling = graph.dangling
    if dangling:
        shown = ", ".join(
            f"node {int(ids[at])} '{graph.name(at)}' needs {missing}" for at, missing in dangling[:_SHOWN]
        )
        many = "dependencies on absent nodes are" if len(dangling) > 1 else "dependency on an absent node is"
        yield Diagnostic(
            "warning", dangling[0][0], f"{len(dangling)} {many} dropped: {shown}{_more(len(dangling))}"
        )


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
    shown = ", ".join(f"{int(graph.ids[at])} '{graph.name(at)}'" for at in found[:_SHOWN].tolist())
    return Diagnostic(
        severity,
        int(found[0]),
        f"{len(found)} {noun}{'s' * (len(found) > 1)} {what}: {shown}{_more(len(found))}",
    )


def _more(count: int) -> str:
    return f", … ({count - _SHOWN} more)" if count > _SHOWN else ""
