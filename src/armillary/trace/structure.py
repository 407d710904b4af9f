"""Orders of graphs, and what refuses one: ids that occur twice and cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from armillary.base import jit
from armillary.base.errors import InputError
from armillary.trace.columns import I64
from armillary.trace.graph import Graph, duration_ns

Severity = Literal["error", "warning"]
SHOWN = 8
"""Nodes that a message names."""
T = TypeVar("T", bound=np.generic)

KERNEL = "armillary.trace.order_kernel"

COMPILED_FROM = 50_000
"""Nodes from which the compiled kernel wins over the interpreted one, loading Numba included."""


def csr(owner: NDArray[np.integer], values: NDArray[T], n: int) -> tuple[I64, NDArray[T]]:
    """Group `values` by their owners, 0 to n - 1: offsets (n + 1) and values, stable."""
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=n), out=ptr[1:])
    # Most owners come sorted already.
    if len(owner) and not np.all(owner[1:] >= owner[:-1]):
        values = values[np.argsort(owner, kind="stable")]
    return ptr, values


def owners(ptr: I64) -> I64:
    """Return the owner of every value of a CSR column."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def children(parent: NDArray[np.integer], child: NDArray[np.integer], n: int) -> tuple[I64, I64]:
    """Return the children of nodes 0 to n - 1 in CSR, ascending, given all pairs: offsets (n + 1) and nodes, int64."""
    # (parent, child) as one integer: NumPy sorts values faster than it finds their order. Parents mostly ascend with
    # their children, which a stable sort (timsort) uses: it is five times faster then.
    key = np.sort(parent.astype(np.int64) * n + child, kind="stable")
    owner = key // max(n, 1)
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=n), out=ptr[1:])
    return ptr, key - owner * n


def topological(ptr: I64, parent: NDArray[np.integer]) -> I64:
    """Return the nodes, each after its parents (CSR); those on or behind a cycle are left out."""
    n = len(ptr) - 1
    child = owners(ptr)
    # Nodes that only wait for earlier ones, as most files have them, are in order as they are.
    if bool(np.all(parent < child)):
        return np.arange(n)
    placed, *_, order = _run(
        "topological", [*csr(parent, child, n), np.diff(ptr), np.zeros(n, dtype=np.int64)]
    )
    return np.asarray(order[:placed])


def earliest(graph: Graph, time: I64) -> tuple[I64, I64, int]:
    """Return the earliest start of every node, its level (1 for one that waits for none), and the latest end.

    Args:
        graph: the graph.
        time: duration of every node.

    Raises:
        InputError: the graph has a cycle.
    """
    ptr, parent = graph.parents()
    order = _order(graph)
    if len(order) < graph.n_nodes:
        raise InputError(f"{graph.source}: dependency cycle, expected none")
    # Two arrays: the kernel writes starts into one and levels into the other.
    zeros = np.zeros(graph.n_nodes, dtype=np.int64)
    end, *_, start, level = _run("longest", [ptr, parent, order, time, zeros, zeros.copy()])
    return start, level, end


def _run(name: str, arrays: list[Any]) -> list[Any]:
    """Run a kernel; return its result, followed by its arguments after the call."""
    # By convention the last array has an entry per node.
    if len(arrays[-1]) >= COMPILED_FROM:
        return [getattr(jit.load(KERNEL, "compiled"), name)(*arrays), *arrays]
    lists = [array.tolist() for array in arrays]  # quicker than arrays there
    found = getattr(jit.load(KERNEL, "interpreted"), name)(*lists)
    return [found, *(np.array(values, dtype=np.int64) for values in lists)]


def cycle_in(ptr: I64, parent: NDArray[np.integer]) -> list[int]:
    """Return the nodes of one cycle, each the parent of the next; none if there is no cycle."""
    order = topological(ptr, parent)
    if len(order) == len(ptr) - 1:
        return []
    left = np.ones(len(ptr) - 1, dtype=np.bool_)
    left[order] = False
    # Every node that is left has a parent that is left: walk up until a node repeats.
    node = int(np.flatnonzero(left)[0])
    seen: dict[int, int] = {}
    while node not in seen:
        seen[node] = len(seen)
        parents = parent[ptr[node] : ptr[node + 1]]
        node = int(parents[left[parents]][0])
    return [at for at, step in seen.items() if step >= seen[node]][::-1]


def find_cycle(graph: Graph) -> list[int]:
    """Return the positions of the nodes of one dependency cycle, each the parent of the next; or none."""
    return [] if len(_order(graph)) == graph.n_nodes else cycle_in(*graph.parents())


def _order(graph: Graph) -> I64:
    """Return the order of `topological`; it is found once for each graph, and of most graphs it is that of the file."""
    kept = graph.kept.get(("topological",))
    if kept is None:
        order = topological(*graph.parents())
        plain = len(order) == graph.n_nodes and bool(np.all(order[1:] > order[:-1]))
        kept = graph.kept["topological",] = () if plain else (order,)
    return kept[0] if kept else np.arange(graph.n_nodes)


def issue_order(graph: Graph) -> I64:
    """Return the positions of the nodes in roughly the order in which a simulator would issue them.

    Nodes are ordered by earliest start, then by id. Nodes wait for no resource and no other rank here, and one
    without a duration takes 1 ns.

    Raises:
        InputError: the graph has a cycle, or an impossible duration.
    """
    start, _, _ = earliest(graph, np.maximum(duration_ns(graph), 1))
    # 1 ns instead of 0 keeps a child behind its parent in the order.
    ids = graph.ids
    if bool(np.all(start[1:] >= start[:-1])) and bool(np.all(ids[1:] > ids[:-1])):
        return np.arange(graph.n_nodes)
    return np.lexsort((ids, start))


@dataclass(frozen=True)
class Diagnostic:
    """One finding; an error keeps the trace from being simulated, a warning does not."""

    severity: Severity
    node: int | None
    """Position of the (first) node it is about, None for the whole graph."""
    message: str


def validate(graph: Graph) -> None:
    """Refuse what cannot be simulated: ids that occur twice, and cycles.

    Raises:
        InputError: names the nodes.
    """
    for finding in misplaced(graph):
        if finding.severity == "error":
            raise InputError(f"{graph.source}: {finding.message}")


def misplaced(graph: Graph) -> Iterator[Diagnostic]:
    """Yield the findings about ids and dependencies."""
    ids = graph.ids
    if len(ids) and not np.all(ids[1:] > ids[:-1]):
        order = np.argsort(ids, kind="stable")
        twice = order[1:][ids[order[1:]] == ids[order[:-1]]]
        if len(twice):
            shown = ", ".join(f"{int(ids[at])} '{graph.name(at)}'" for at in twice[:SHOWN].tolist())
            many = "nodes have" if len(twice) > 1 else "node has"
            yield Diagnostic(
                "error",
                int(twice[0]),
                f"{len(twice)} {many} the id of an earlier node, expected unique ids: {shown}"
                + more(len(twice)),
            )
            # A dependency on an id that occurs twice is ambiguous, so cycles would mean nothing.
            return
    cycle = find_cycle(graph)
    if cycle:
        shown = " -> ".join(f"{int(ids[at])} '{graph.name(at)}'" for at in cycle[:SHOWN])
        shown += " -> …" if len(cycle) > SHOWN else f" -> {int(ids[cycle[0]])}"
        yield Diagnostic(
            "error",
            cycle[0],
            f"dependency cycle of {len(cycle)} node{'s' * (len(cycle) > 1)}, expected none: {shown}",
        )
    dangling = graph.dangling
    if dangling:
        shown = ", ".join(
            f"node {int(ids[at])} '{graph.name(at)}' needs {missing}" for at, missing in dangling[:SHOWN]
        )
        many = "dependencies on absent nodes are" if len(dangling) > 1 else "dependency on an absent node is"
        yield Diagnostic(
            "warning", dangling[0][0], f"{len(dangling)} {many} dropped: {shown}{more(len(dangling))}"
        )


def more(count: int) -> str:
    """Return how many there are besides those that a message names."""
    return f", … ({count - SHOWN} more)" if count > SHOWN else ""
