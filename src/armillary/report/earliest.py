"""Earliest starts of nodes that only their dependencies delay, and edges to drop from cyclic graphs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from armillary.base import jit

I64 = NDArray[np.int64]
_COMPILED_FROM = 50_000


def forward_edges(n: int, src: I64, dst: I64) -> NDArray[np.bool_]:
    """Return which edges (src, dst) to keep so that no cycle is left, bool (edges,); all if there is none.

    Among nodes on cycles, or between cycles, edges that do not lead to a later node are dropped.
    """
    # Every edge of a cycle leads from a node on or behind a cycle (`above`) to one on or before a
    # cycle (`below`, found on the reversed graph). Edges to a higher number alone close no cycle,
    # so among these edges the others are dropped.
    forward = src != dst
    _, above = _topological(n, src[forward], dst[forward])
    if above.any():
        caught = forward & (above[src] > 0)
        _, below = _topological(n, dst[caught], src[caught])
        forward &= (above[src] == 0) | (below[dst] == 0) | (src < dst)
    found: NDArray[np.bool_] = forward
    return found


def earliest(n: int, src: I64, dst: I64, length: I64) -> I64:
    """Return the start of every node, int64 (n,), as soon as all its parents have ended.

    Args:
        n: number of nodes.
        src: parent of every edge; the graph is acyclic, see `forward_edges`.
        dst: child of every edge.
        length: duration of each node, int64 (n,).
    """
    order, _ = _topological(n, src, dst)
    child_ptr, child = _children(n, src, dst)
    # As elsewhere: loading Numba costs more than interpreting a small graph.
    if n >= _COMPILED_FROM:
        start = np.zeros(n, dtype=np.int64)
        jit.load("armillary.trace.order_kernel", "compiled").earliest(order, child_ptr, child, length, start)
        return start
    starts = [0] * n
    jit.load("armillary.trace.order_kernel", "interpreted").earliest(
        order.tolist(), child_ptr.tolist(), child.tolist(), length.tolist(), starts
    )
    return np.array(starts, dtype=np.int64)


def _children(n: int, src: I64, dst: I64) -> tuple[I64, I64]:
    ptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(src, minlength=n), out=ptr[1:])
    return ptr, dst[np.argsort(src, kind="stable")]


def _topological(n: int, src: I64, dst: I64) -> tuple[I64, I64]:
    """Return the nodes, parents first, and for each node the number of parents on a cycle or behind one."""
    child_ptr, child = _children(n, src, dst)
    waiting = np.bincount(dst, minlength=n)
    order = np.empty(n, dtype=np.int64)
    if n >= _COMPILED_FROM:
        kernel = jit.load("armillary.trace.order_kernel", "compiled")
        placed = kernel.topological(child_ptr, child, waiting, order)
        return order[:placed], waiting
    left, nodes = waiting.tolist(), [0] * n
    kernel = jit.load("armillary.trace.order_kernel", "interpreted")
    placed = kernel.topological(child_ptr.tolist(), child.tolist(), left, nodes)
    return np.array(nodes[:placed], dtype=np.int64), np.array(left, dtype=np.int64)
