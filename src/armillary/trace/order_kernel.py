"""Topological orders of a graph."""

from __future__ import annotations

from typing import Any

from armillary.jit import njit


@njit
def topological(child_ptr: Any, child: Any, waiting: Any, order: Any) -> int:
    """Write nodes to `order`, each after its parents; return how many, less than all in case of a cycle.

    `waiting` holds the number of parents of every node, and ends as what is left of it.
    """
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
def lowest_first(child_ptr: Any, child: Any, waiting: Any, order: Any, heap: Any) -> int:
    """Like `topological`, but of the nodes whose parents are placed the lowest comes first.

    `heap` is room for all nodes: a binary heap of those that are ready.
    """
    ready = 0
    for node in range(len(waiting)):
        if waiting[node] == 0:
            heap[ready] = node
            ready += 1
    placed = 0
    while ready > 0:
        node = heap[0]
        order[placed] = node
        placed += 1
        ready -= 1
        last = heap[ready]
        at = 0
        down = 1
        while down < ready:
            if down + 1 < ready and heap[down + 1] < heap[down]:
                down += 1
            if heap[down] >= last:
                break
            heap[at] = heap[down]
            at = down
            down = 2 * at + 1
        heap[at] = last
        for edge in range(child_ptr[node], child_ptr[node + 1]):
            after = child[edge]
            waiting[after] -= 1
            if waiting[after] == 0:
                at = ready
                ready += 1
                while at > 0 and heap[(at - 1) >> 1] > after:
                    heap[at] = heap[(at - 1) >> 1]
                    at = (at - 1) >> 1
                heap[at] = after
    return placed
