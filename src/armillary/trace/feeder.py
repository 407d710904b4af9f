"""A feeder: which nodes of a graph can be issued now."""

from __future__ import annotations

import heapq

import numpy as np

from armillary.base.errors import InputError, StuckError
from armillary.trace.graph import Graph
from armillary.trace.structure import validate


class Feeder:
    """Hands out the nodes of a graph as their dependencies are met.

    Example:
        ``while not feeder.done: node = feeder.issuable()[0]; feeder.take(node); …; feeder.finish(node)``
    """

    def __init__(self, graph: Graph) -> None:
        """Start with the nodes that depend on nothing.

        Raises:
            InputError: ids occur twice or dependencies form a cycle.
        """
        validate(graph)
        self.graph = graph
        ptr, parent = graph.parents()
        n = graph.n_nodes
        order = np.argsort(graph.ids, kind="stable")
        # Rank in the order of ids: the heap compares small integers, ties by position.
        self._rank = np.argsort(order, kind="stable").tolist()
        self._waiting = np.diff(ptr).tolist()
        self._children: list[list[int]] = [[] for _ in range(n)]
        for child, node in zip(np.repeat(np.arange(n), np.diff(ptr)).tolist(), parent.tolist(), strict=True):
            self._children[node].append(child)
        self._ready = [(self._rank[node], node) for node in range(n) if not self._waiting[node]]
        heapq.heapify(self._ready)
        self._running: set[int] = set()
        self._finished = 0

    @property
    def done(self) -> bool:
        """Whether every node has finished.

        Raises:
            StuckError: nodes are left, but none is running or issuable.
        """
        if self._finished == self.graph.n_nodes:
            return True
        if not self._ready and not self._running:
            left = self.graph.n_nodes - self._finished
            raise StuckError(f"{self.graph.source}: {left} nodes can never be issued")
        return False

    def issuable(self) -> list[int]:
        """Return the positions of the nodes that can be issued now, in the order of their ids."""
        return [node for _, node in sorted(self._ready)]

    def next_issuable(self) -> int | None:
        """Take and return the issuable node with the lowest id, None if there is none now."""
        if not self._ready:
            return None
        node = heapq.heappop(self._ready)[1]
        self._running.add(node)
        return node

    def take(self, node: int) -> None:
        """Mark an issuable node as running.

        Raises:
            InputError: it is not issuable.
        """
        try:
            self._ready.remove((self._rank[node], node))
        except ValueError:
            raise InputError(
                f"{self.graph.node(node)} cannot be issued now, expected one of {self.issuable()}"
            ) from None
        # Removing from the middle breaks the heap.
        heapq.heapify(self._ready)
        self._running.add(node)

    def finish(self, node: int) -> list[int]:
        """Mark a running node as finished; return the nodes that this makes issuable.

        Raises:
            InputError: it is not running.
        """
        if node not in self._running:
            raise InputError(
                f"{self.graph.node(node)} is not running, expected one of {sorted(self._running)}"
            )
        self._running.remove(node)
        self._finished += 1
        freed = []
        for child in self._children[node]:
            self._waiting[child] -= 1
            if not self._waiting[child]:
                heapq.heappush(self._ready, (self._rank[child], child))
                freed.append(child)
        return freed
