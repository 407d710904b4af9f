"""Which nodes a node waits for, and which wait for it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from armillary.base import jit
from armillary.base.errors import InputError
from armillary.trace.graph import Graph
from armillary.trace.structure import COMPILED_FROM, csr, owners, topological

KERNEL = "armillary.trace.order_kernel"


def ancestors(graph: Graph, nodes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return `nodes` and all they wait for, directly or not, bool (n_nodes,).

    Raises:
        InputError: the graph has a cycle.
    """
    return _reach(graph, nodes, "ancestors")


def descendants(graph: Graph, nodes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return `nodes` and all that wait for them, directly or not; see `ancestors`."""
    return _reach(graph, nodes, "descendants")


def _reach(graph: Graph, nodes: NDArray[np.bool_], name: str) -> NDArray[np.bool_]:
    ptr, parent = graph.parents()
    order = topological(ptr, parent)
    if len(order) < graph.n_nodes:
        raise InputError(f"{graph.source}: dependency cycle, expected none")
    # int8, since the kernels write 1 and 0 in both forms.
    mark = nodes.astype(np.int8)
    if graph.n_nodes >= COMPILED_FROM:
        getattr(jit.load(KERNEL, "compiled"), name)(ptr, parent, order, mark)
        return mark.astype(np.bool_)
    marks = mark.tolist()
    getattr(jit.load(KERNEL, "interpreted"), name)(ptr.tolist(), parent.tolist(), order.tolist(), marks)
    return np.array(marks, dtype=np.bool_)


def around(graph: Graph, nodes: NDArray[np.bool_], depth: int) -> NDArray[np.bool_]:
    """Return the nodes at most `depth` dependencies away from `nodes`, in either direction."""
    ptr, parent = graph.parents()
    child = owners(ptr)
    # Every edge in both directions: a breadth-first search over an undirected graph.
    ends, other = csr(np.concatenate([child, parent]), np.concatenate([parent, child]), graph.n_nodes)
    bounds, neighbours = ends.tolist(), other.tolist()
    found = nodes.copy()
    edge = np.flatnonzero(nodes).tolist()
    while edge and depth > 0:
        near = {to for node in edge for to in neighbours[bounds[node] : bounds[node + 1]]}
        edge = [node for node in near if not found[node]]
        found[edge] = True
        depth -= 1
    return found
