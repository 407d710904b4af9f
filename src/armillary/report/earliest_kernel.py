"""Longest paths through an acyclic graph."""

from __future__ import annotations

from typing import Any

from armillary.base.jit import njit


@njit
def earliest(order: Any, child_ptr: Any, child: Any, length: Any, start: Any) -> None:
    """Raise `start` of every node to the latest end among its parents; `order` has parents first."""
    for at in range(len(order)):
        node = order[at]
        end = start[node] + length[node]
        for edge in range(child_ptr[node], child_ptr[node + 1]):
            after = child[edge]
            start[after] = max(start[after], end)
