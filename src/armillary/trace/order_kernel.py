"""Kernels on graphs: topological order, longest paths, ancestors and descendants."""

from __future__ import annotations

from typing import Any

from armillary.base.jit import njit


@njit
def topological(child_ptr: Any, child: Any, waiting: Any, order: Any) -> int:
    """Write nodes to `order`, each after its parents; return how many, less than all in case of a cycle.

    `waiting` holds the number of parents of every node on entry and the number not placed on return.
    """
    # Kahn's algorithm; `order` is its queue as well: `at` reads where `placed` writes.
    placed = 0
    for node in range(len(waiting)):
        if waiting[node] == 0:
            order[placed] = node
            placed += 1
    at = 0
    while at < placed:
        node = order[at]
        at += 1
        for edge in range(child_ptr[node], child_ptr[node + 1]):
            after = child[edge]
            waiting[after] -= 1
            if waiting[after] == 0:
                order[placed] = after
                placed += 1
    return placed


@njit
def longest(ptr: Any, parent: Any, order: Any, time: Any, start: Any, level: Any) -> int:
    """Fill the earliest start and the level of every node: the longest paths to it, in time and in nodes.

    `order` has every node after its parents; `start` and `level` are 0 on entry. Return the latest end.
    """
    end = 0
    for at in range(len(order)):
        node = order[at]
        begin = 0
        deep = 0
        for edge in range(ptr[node], ptr[node + 1]):
            before = parent[edge]
            begin = max(begin, start[before] + time[before])
            deep = max(deep, level[before])
        start[node] = begin
        level[node] = deep + 1
        end = max(end, begin + time[node])
    return end


@njit
def ancestors(ptr: Any, parent: Any, order: Any, mark: Any) -> int:
    """Mark all ancestors of the marked nodes; return how many were added."""
    added = 0
    # Children before parents, so one pass reaches every ancestor.
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
                    # One marked parent is enough, and the node counts once.
                    break
    return added


@njit
def earliest(order: Any, child_ptr: Any, child: Any, length: Any, start: Any) -> None:
    """Raise `start` of every node to the latest end among its parents; `order` has parents first."""
    for at in range(len(order)):
        node = order[at]
        # All parents were visited before, so `start[node]` is final here.
        end = start[node] + length[node]
        for edge in range(child_ptr[node], child_ptr[node + 1]):
            after = child[edge]
            start[after] = max(start[after], end)
