"""Ancestors and descendants in a graph. `order` has every node after its parents, `mark` 1 where it starts."""

from __future__ import annotations

from typing import Any

from armillary.base.jit import njit


@njit
def ancestors(ptr: Any, parent: Any, order: Any, mark: Any) -> int:
    """Mark all ancestors of the marked nodes; return how many were added."""
    added = 0
    for at in range(len(order) - 1, -1, -1):
        node = order[at]
        if mark[node]:
            for edge in range(ptr[node], ptr[node + 1]):
                if not mark[parent[edge]]:
                    mark[parent[edge]] = 1
                    added += 1
    return added


@njit
def descendants(ptr: Any, parent: Any, order: Any, mark: Any) -> int:
    """Mark all descendants of the marked nodes; return how many were added."""
    added = 0
    for at in range(len(order)):
        node = order[at]
        if not mark[node]:
            for edge in range(ptr[node], ptr[node + 1]):
                if mark[parent[edge]]:
                    mark[node] = 1
                    added += 1
                    break
    return added
