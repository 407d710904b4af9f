"""What is odd or wrong about a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from armillary import jit
from armillary.errors import InputError
from armillary.trace.graph import Graph
from armillary.trace.schema import CollectiveType, NodeType, type_name

_COMPILED_FROM = 50_000
_SHOWN = 8

_NEEDED = {
    NodeType.COMM_COLL_NODE: ("comm_type", "comm_size"),
    NodeType.COMM_SEND_NODE: ("comm_size", "comm_dst"),
    NodeType.COMM_RECV_NODE: ("comm_size", "comm_src"),
    NodeType.MEM_LOAD_NODE: ("tensor_size",),
    NodeType.MEM_STORE_NODE: ("tensor_size",),
}


@dataclass(frozen=True)
class Diagnostic:
    """One finding; an error keeps the graph from being simulated, a warning does not."""

    severity: Literal["error", "warning"]
    node: int | None
    """Position of the (first) node it is about, None for the whole graph."""
    message: str


def check(graph: Graph) -> list[Diagnostic]:
    """Return all findings about a graph, errors first. Alike ones are one finding with a count."""
    findings = [*_structure(graph), *_contents(graph)]
    return sorted(findings, key=lambda finding: finding.severity != "error")


def validate(graph: Graph) -> None:
    """Raise InputError for the first error of the graph's structure; see `Graph.validate`."""
    for finding in _structure(graph):
        if finding.severity == "error":
            raise InputError(f"{graph.source}: {finding.message}")


def find_cycle(graph: Graph) -> list[int]:
    """Return the positions of the nodes of one dependency cycle, each the parent of the next; or none."""
    ptr, parent = graph.parents()
    n = graph.n_nodes
    child_of = np.repeat(np.arange(n, dtype=np.int32), np.diff(ptr))
    if bool(np.all(parent < child_of)):
        return []
    waiting = np.diff(ptr)
    order = np.argsort(parent, kind="stable")
    child_ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(parent, minlength=n), out=child_ptr[1:])
    if n >= _COMPILED_FROM:
        kernel = jit.load("armillary.trace.order_kernel", "compiled")
        placed = kernel.topological(child_ptr, child_of[order], waiting, np.empty(n, dtype=np.int64))
    else:
        left = waiting.tolist()
        kernel = jit.load("armillary.trace.order_kernel", "interpreted")
        placed = kernel.topological(child_ptr.tolist(), child_of[order].tolist(), left, [0] * n)
        waiting = np.array(left)
    if placed == n:
        return []
    # Every node that is left has a parent that is left: walk up until a node comes round again.
    node = int(np.flatnonzero(waiting > 0)[0])
    seen: dict[int, int] = {}
    while node not in seen:
        seen[node] = len(seen)
        parents = parent[ptr[node] : ptr[node + 1]]
        node = int(parents[waiting[parents] > 0][0])
    return [at for at, step in seen.items() if step >= seen[node]][::-1]


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
    types = graph.types
    for number in np.unique(types).tolist():
        if number == NodeType.INVALID_NODE or type_name(number) == str(number):
            yield _about(graph, types == number, f"of type {type_name(number)}, which nothing can run")
    for kind, names in _NEEDED.items():
        mine = types == kind
        if mine.any():
            for name in names:
                yield from _maybe(graph, mine & ~graph.has(name), f"of type {kind.name} without {name}")
    collective = types == NodeType.COMM_COLL_NODE
    if collective.any():
        yield from _wrong_values(graph, collective)


def _wrong_values(graph: Graph, collective: NDArray[np.bool_]) -> Iterator[Diagnostic]:
    """Check the values of collectives; attributes of the wrong kind are findings too."""
    try:
        size, kind = graph.ints("comm_size", -1), graph.ints("comm_type", 0)
    except InputError as error:
        yield Diagnostic("error", None, str(error).removeprefix(f"{graph.source}: "))
        return
    barrier = kind == CollectiveType.BARRIER
    yield from _maybe(graph, collective & (size == 0) & ~barrier, "of zero bytes", "collective")
    known = np.isin(kind, [int(member) for member in CollectiveType])
    yield from _maybe(graph, collective & ~known, "with an unknown comm_type")


def _maybe(graph: Graph, nodes: NDArray[np.bool_], what: str, noun: str = "node") -> Iterator[Diagnostic]:
    if nodes.any():
        yield _about(graph, nodes, what, noun)


def _about(graph: Graph, nodes: NDArray[np.bool_], what: str, noun: str = "node") -> Diagnostic:
    found = np.flatnonzero(nodes)
    shown = ", ".join(f"{int(graph.ids[at])} '{graph.name(at)}'" for at in found[:_SHOWN].tolist())
    return Diagnostic(
        "warning",
        int(found[0]),
        f"{len(found)} {noun}{'s' * (len(found) > 1)} {what}: {shown}{_more(len(found))}",
    )


def _more(count: int) -> str:
    return f", … ({count - _SHOWN} more)" if count > _SHOWN else ""
