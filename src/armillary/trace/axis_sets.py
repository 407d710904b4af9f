"""Groups and peers of a trace with a grid, resolved from its rules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.trace.columns import NodeType, distinct_columns
from armillary.trace.graph import Graph
from armillary.trace.grid import AXIS, FURTHER, RankGrid
from armillary.trace.templates import PlacedGraph
from armillary.trace.trace import WORLD, Trace

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AxisSet:
    """Groups that follow from one rule; their numbers are `base` and those after it."""

    name: str
    base: int
    members: Ints
    """(groups, members)."""
    n_ranks: int

    @cached_property
    def group_of(self) -> NDArray[np.int32]:
        """Index of every rank's group, int32 (n_ranks,); -1: it is in none."""
        found = np.full(self.n_ranks, -1, np.int32)
        found[self.members] = np.arange(len(self.members), dtype=np.int32)[:, None]
        return found


class AxisSets:
    """The axis sets of a trace: the world, then the others in order of first use; equal groups make one axis set."""

    def __init__(self, trace: Trace) -> None:
        """Find the axis sets.

        Raises:
            InputError: a graph names a group that the grid does not have.
        """
        self.grid = grid_of(trace)
        n = self.grid.n_ranks
        self.all = [AxisSet("", WORLD, np.arange(n)[None, :], n)]
        self._at = {"": 0, "0": 0}
        # By mesh dimensions and places: "dp+tp" and "tp+dp" are one axis set, and axes of size 1
        # add nothing. Further communicators of the same ranks are their own.
        self._known: dict[object, int] = {(self._everything, None, ""): 0}
        # Graphs that were placed together name groups in nodes that they share.
        shared = (graph.packed if isinstance(graph, PlacedGraph) else graph for graph in trace.graphs)
        for graph in {id(each): each for each in shared}.values():
            codes, names = graph.strings("pg_name")
            for code, name in enumerate(names):
                try:
                    self.find(name)
                except InputError as error:
                    raise InputError(f"{graph.node(int(np.argmax(codes == code)))}: {error}") from error

    @property
    def _everything(self) -> tuple[int, ...]:
        return tuple(mesh_dim for mesh_dim, size in enumerate(self.grid.sizes) if size > 1)

    def find(self, name: str) -> int:
        """Return the index in `all` of an axis set.

        Raises:
            InputError: the grid has no such axes.
        """
        if name not in self._at:
            key = (self.grid.mesh_dims(name), self.grid.places(name), name.partition(FURTHER)[2])
            if key not in self._known:
                last = self.all[-1]
                # Group numbers run on from axis set to axis set; the world is 0.
                base = last.base + len(last.members)
                self.all.append(AxisSet(name, base, self.grid.members(name), self.grid.n_ranks))
                self._known[key] = len(self.all) - 1
            self._at[name] = self._known[key]
        return self._at[name]

    @property
    def of_all(self) -> tuple[str, ...]:
        """Names of axis sets that only happen to span all ranks, because the remaining mesh dimensions have size 1."""
        return tuple(name for name, at in self._at.items() if at == 0 and not self._means_all(name))

    def _means_all(self, name: str) -> bool:
        if name in ("", "0"):
            return True
        if name in self.grid.subsets:
            return False
        mesh_dims = {
            mesh_dim for axis in self.grid.axes_in(name) for mesh_dim in self.grid.mesh_dims_of(axis)
        }
        return mesh_dims == set(range(len(self.grid.sizes)))

    def number(self, axis_set: int, rank: int) -> int:
        """Return the number of the group of a rank, below 0 if it is in none."""
        group = int(self.all[axis_set].group_of[rank])
        return self.all[axis_set].base + group if group >= 0 else -1

    def of(self, number: int) -> AxisSet:
        """Return the axis set of a group."""
        # Bases ascend, so the last one at or below the number owns it.
        return next(axis_set for axis_set in reversed(self.all) if axis_set.base <= number)

    def members(self, number: int) -> Ints:
        """Return the ranks of a group."""
        axis_set = self.of(number)
        ranks: Ints = axis_set.members[number - axis_set.base]
        return ranks


@dataclass(frozen=True)
class Route:
    """The peer of messages: `steps` along an axis, or without an axis the rank `steps` itself."""

    axis: str | None
    steps: int

    def peers(self, grid: RankGrid, ranks: Ints) -> Ints:
        """Return the peers of `ranks`."""
        if self.axis is None:
            return np.full(len(ranks), self.steps, np.int64)
        return grid.peers(ranks, self.axis, self.steps)


def routes_of(graph: Graph, grid: RankGrid) -> tuple[Ints, list[Route]]:
    """Return the index of each node's route (n_nodes,), -1 for none, and the distinct routes of a graph's messages.

    Raises:
        InputError: a message names an axis that the grid does not have.
    """
    send, receive = graph.types == NodeType.COMM_SEND_NODE, graph.types == NodeType.COMM_RECV_NODE
    given = (send & graph.has("comm_dst")) | (receive & graph.has("comm_src"))
    at = np.flatnonzero(given)
    of_node = np.full(graph.n_nodes, -1, np.int64)
    ends = np.where(send, graph.ints("comm_dst"), graph.ints("comm_src"))[at]
    codes, names = graph.strings(AXIS)
    (used, first), inverse = _distinct(codes[at].astype(np.int64), ends)
    routes: dict[tuple[tuple[int, ...] | None, int], int] = {}
    found: list[Route] = []
    numbers = []
    for code, steps, example in zip(*used, first, strict=True):
        axis = names[code] if code >= 0 else None
        mesh_dims = None
        if axis is not None:
            try:
                # Modulo the size, and by mesh dimensions: two names for one axis are one route.
                mesh_dims, steps = grid.mesh_dims_of(axis), steps % grid.size(axis)
            except InputError as error:
                raise InputError(f"{graph.node(int(at[example]))}: {AXIS}: {error}") from error
        number = routes.setdefault((mesh_dims, steps), len(found))
        if number == len(found):
            found.append(Route(axis, steps))
        numbers.append(number)
    of_node[at] = np.array(numbers, np.int64)[inverse]
    return of_node, found


def grid_of(trace: Trace) -> RankGrid:
    """Return the grid of a trace that has one."""
    assert trace.grid is not None
    return trace.grid


def _distinct(codes: Ints, ends: Ints) -> tuple[tuple[list[list[int]], list[int]], Ints]:
    """Return the distinct pairs and their first indices, and the number of the pair of every entry."""
    pairs = np.stack([codes, ends])
    first, inverse = distinct_columns(pairs)
    return (pairs[:, first].tolist(), first.tolist()), inverse
