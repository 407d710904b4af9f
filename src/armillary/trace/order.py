"""Orders of nodes: topological, the order of issue, and the cycles that leave none."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from armillary import jit
from armillary.trace.graph import Graph

I64 = NDArray[np.int64]
T = TypeVar("T", bound=np.generic)

KERNEL = "armillary.trace.order_kernel"

COMPILED_FROM = 50_000
"""Nodes from which the compiled kernel wins over the interpreted one, loading Numba included."""


def csr(owner: NDArray[np.integer], values: NDArray[T], n: int) -> tuple[I64, NDArray[T]]:
    """Group `values` by their owners, 0 to n - 1: offsets (n + 1) and values, stable."""
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(owner, minlength=n), out=ptr[1:])
    if len(owner) and not np.all(owner[1:] >= owner[:-1]):
        values = values[np.argsort(owner, kind="stable")]
    return ptr, values


def owners(ptr: I64) -> I64:
    """Return the owner of every value of a CSR column."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))


def topological(ptr: I64, parent: NDArray[np.integer]) -> I64:
    """Return the nodes, each after its parents (CSR); those on or behind a cycle are left out."""
    return _run("topological", ptr, parent)


def lowest_first(ptr: I64, parent: NDArray[np.integer]) -> I64:
    """Return the nodes, the lowest number first among those whose parents are out; see `topological`."""
    return _run("lowest_first", ptr, parent)


def _run(name: str, ptr: I64, parent: NDArray[np.integer]) -> I64:
    n = len(ptr) - 1
    child = owners(ptr)
    if bool(np.all(parent < child)):
        return np.arange(n)
    arrays = [*csr(parent, child, n), np.diff(ptr), np.zeros(n, dtype=np.int64)]
    mode: jit.Mode = "compiled" if n >= COMPILED_FROM else "interpreted"
    if name == "lowest_first":
        arrays.append(np.zeros(n, dtype=np.int64))
    if mode == "interpreted":  # lists are quicker than arrays there
        lists = [array.tolist() for array in arrays]
        placed = getattr(jit.load(KERNEL, mode), name)(*lists)
        return np.array(lists[3][:placed], dtype=np.int64)
    placed = getattr(jit.load(KERNEL, mode), name)(*arrays)
    return np.array(arrays[3][:placed], dtype=np.int64)


def cycle_in(ptr: I64, parent: NDArray[np.integer]) -> list[int]:
    """Return the nodes of one cycle, each the parent of the next; none if there is no cycle."""
    order = topological(ptr, parent)
    if len(order) == len(ptr) - 1:
        return []
    left = np.ones(len(ptr) - 1, dtype=np.bool_)
    left[order] = False
    # Every node that is left has a parent that is left: walk up until a node comes round again.
    node = int(np.flatnonzero(left)[0])
    seen: dict[int, int] = {}
    while node not in seen:
        seen[node] = len(seen)
        parents = parent[ptr[node] : ptr[node + 1]]
        node = int(parents[left[parents]][0])
    return [at for at, step in seen.items() if step >= seen[node]][::-1]


def find_cycle(graph: Graph) -> list[int]:
    """Return the positions of the nodes of one dependency cycle, each the parent of the next; or none."""
    return cycle_in(*graph.parents())


def issue_order(graph: Graph) -> I64:
    """Return the positions of the nodes in the order in which they would go if none took time.

    Among those whose dependencies are met, the lowest id goes first; nodes of a cycle are left out.
    """
    ptr, parent = graph.parents()
    ids = graph.ids
    if bool(np.all(ids[1:] > ids[:-1])):
        return lowest_first(ptr, parent)
    by_id = np.argsort(ids, kind="stable")
    place = np.empty(len(ids), dtype=np.int64)
    place[by_id] = np.arange(len(ids))
    return by_id[lowest_first(*csr(place[owners(ptr)], place[parent], len(ids)))]
