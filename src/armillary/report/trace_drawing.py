"""Boxes that stand for one or more nodes of a trace, and the edges between them, for drawings."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.units import format_bytes, format_time
from armillary.report.earliest import forward_edges
from armillary.report.trace_times import durations, kinds, lanes
from armillary.trace import Graph
from armillary.trace.graph import locate

I64 = NDArray[np.int64]

COLLAPSES = ("auto", "none", "chains", "calls", "names", "lanes")
MAX_NODES = 2000
DATA, CTRL = 1, 2

_SHORT = {
    "(anonymous namespace)::": "",
    "void ": "",
    "at::native::": "",
    "autograd::engine::evaluate_function: ": "evaluate ",
}
_NUMBER = re.compile(r"\d+(?![A-Za-z0-9])")


@dataclass(frozen=True, eq=False)
class Drawing:
    """Boxes and edges; box b stands for the nodes where ``box == b``."""

    graph: Graph
    how: str
    """Which of `COLLAPSES` was applied, never "auto"."""
    box: I64
    """(n_nodes): the box of every node; boxes are numbered in the order of their first nodes."""
    src: I64
    """(edges): box of the dependency."""
    dst: I64
    """(edges): box that depends on it."""
    dependency: NDArray[np.int8]
    """(edges): `DATA`, `CTRL`, or their sum."""
    weight: I64
    """(edges): number of dependencies it stands for."""

    @cached_property
    def first(self) -> I64:
        """Position of the first node of every box, int64 (boxes,)."""
        return np.unique(self.box, return_index=True)[1]

    @property
    def n_boxes(self) -> int:
        """Number of boxes."""
        return len(self.first)

    @cached_property
    def count(self) -> I64:
        """Number of nodes in every box, int64 (boxes,)."""
        return np.bincount(self.box, minlength=self.n_boxes)

    @cached_property
    def duration(self) -> I64:
        """Sum of the recorded durations in ns, int64 (boxes,)."""
        return self._total(durations(self.graph))

    @cached_property
    def size(self) -> I64:
        """Sum of the bytes communicated, int64 (boxes,)."""
        return self._total(self.graph.ints("comm_size"))

    def _total(self, values: I64) -> I64:
        # float64 sums, clipped so that the conversion back cannot wrap.
        sums = np.bincount(self.box, weights=np.maximum(values, 0), minlength=self.n_boxes)
        return np.minimum(sums, 2.0**62).astype(np.int64)

    @cached_property
    def kind(self) -> NDArray[np.int8]:
        """The commonest kind in every box, an index into `trace_times.KINDS`, int8 (boxes,)."""
        table = np.zeros((self.n_boxes, int(kinds(self.graph).max(initial=0)) + 1), dtype=np.int64)
        np.add.at(table, (self.box, kinds(self.graph)), 1)
        found: NDArray[np.int8] = table.argmax(axis=1).astype(np.int8)
        return found

    @cached_property
    def lane(self) -> I64:
        """The lane of the first node of every box, see `trace_times.lanes`, int64 (boxes,)."""
        return lanes(self.graph)[0][self.first]

    @cached_property
    def labels(self) -> list[str]:
        """A short name for every box: its node's, its call's, or the commonest of its nodes'."""
        names = self.graph.names()
        if self.how in ("none", "calls"):
            return [short_name(names[at]) for at in self.first.tolist()]
        if self.how == "names":
            return [pattern(names[at]) for at in self.first.tolist()]
        if self.how == "lanes":
            return [lanes(self.graph)[1][lane] for lane in self.lane.tolist()]
        # Chains hold different nodes: the two commonest names describe them.
        members = np.argsort(self.box, kind="stable")
        ends = np.cumsum(self.count)
        found = []
        for first, after in zip((ends - self.count).tolist(), ends.tolist(), strict=True):
            common = Counter(short_name(names[at]) for at in members[first:after].tolist())
            found.append(" · ".join(name for name, _ in common.most_common(2)))
        return found

    @cached_property
    def notes(self) -> list[str]:
        """A note for every box: number of nodes, time and bytes."""
        found = []
        columns = (self.count.tolist(), self.duration.tolist(), self.size.tolist())
        for count, ns, size in zip(*columns, strict=True):
            parts = [f"{count:,} nodes"] if count > 1 else []
            parts += [format_time(ns)] if ns else []
            parts += [format_bytes(size)] if size else []
            found.append(" · ".join(parts))
        return found


def drawing(graph: Graph, collapse: str = "none", max_nodes: int = MAX_NODES) -> Drawing:
    """Return what to draw of `graph`.

    Args:
        graph: the trace; dependencies on absent nodes are left out.
        collapse: "none": every node; "chains": what has one parent and one child, in the same lane, runs
            together; "calls": control dependencies are the calls of operators, as in PyTorch traces, and inner
            calls join their caller until at most `max_nodes` are left; "names": nodes of one lane whose names differ in
            numbers and arguments only; "lanes": one box for each thread, stream and kind; "auto": the first
            of these that leaves at most `max_nodes` boxes.
        max_nodes: most boxes to draw.

    Raises:
        InputError: no such collapse, or two nodes have the same id.
    """
    if collapse not in COLLAPSES:
        raise InputError(f"collapse {collapse!r}: expected {one_of(COLLAPSES)}{nearest(collapse, COLLAPSES)}")
    # Edges go by id, which must therefore be unique.
    ids, times = np.unique(graph.ids, return_counts=True)
    if len(ids) < graph.n_nodes:
        raise InputError(
            f"{graph.source}: {times.max()} nodes have the id {ids[times.argmax()]}, expected one"
        )
    edges = edges_of(graph)
    if collapse != "auto":
        return _collapsed(graph, collapse, max_nodes, edges)
    if graph.n_nodes <= max_nodes:
        return _collapsed(graph, "none", max_nodes, edges)
    # From the finest to the coarsest way; the last one is taken if none is coarse enough.
    for how in COLLAPSES[2:]:
        made = _collapsed(graph, how, max_nodes, edges)
        # Calls are not worth it where hardly any node has a caller.
        if made.n_boxes <= _few(max_nodes) and not (how == "calls" and made.n_boxes < _few(max_nodes) // 10):
            break
    return made


def _few(max_nodes: int) -> int:
    """Return the number of boxes to aim at if the graph is collapsed: what fits on a screen."""
    return max(max_nodes // 5, 1)


def short_name(name: str) -> str:
    """Return a name without common prefixes and without the arguments and templates of a C++ function."""
    bare = name
    for part, shorter in _SHORT.items():
        bare = bare.replace(part, shorter, 1)
    # Only where it looks like C++: other names may have parentheses that mean something.
    if (bare.endswith((")", ">")) and bare != name) or "::" in bare:
        bare = re.split(r"[<(]", bare, maxsplit=1)[0].strip()
    return bare or name or "(no name)"


def pattern(name: str) -> str:
    """Return a short name with ``*`` for the numbers in it."""
    return _NUMBER.sub("*", short_name(name))


def _collapsed(graph: Graph, how: str, max_nodes: int, edges: tuple[I64, I64, I64]) -> Drawing:
    groups: dict[str, Callable[[], I64]] = {
        "none": lambda: np.arange(graph.n_nodes),
        "chains": lambda: _chains(graph, *edges[:2]),
        "calls": lambda: _calls(graph, _few(max_nodes)),
        "names": lambda: _names(graph),
        "lanes": lambda: lanes(graph)[0],
    }
    key = groups[how]()
    _, first, box = np.unique(key, return_index=True, return_inverse=True)
    # Boxes in the order of their first nodes, not of their keys.
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(len(first))
    box = number[box.reshape(-1)]
    src, dst, dependency = edges
    boxes = max(len(first), 1)
    # (box, box) as one integer; parallel dependencies become one edge with a weight.
    pairs = box[src] * boxes + box[dst]
    # A node that waits for itself is drawn; a box hides the edges inside it.
    outside = box[src] != box[dst] if how != "none" else np.ones(len(src), dtype=np.bool_)
    pairs, at = np.unique(pairs[outside], return_inverse=True)
    weight = np.bincount(at, minlength=len(pairs))
    flags = np.zeros(len(pairs), dtype=np.int8)
    np.bitwise_or.at(flags, at.reshape(-1), dependency[outside].astype(np.int8))
    return Drawing(graph, how, box, pairs // boxes, pairs % boxes, flags, weight)


def edges_of(graph: Graph) -> tuple[I64, I64, I64]:
    """Return parent, child and `DATA` or `CTRL` of every dependency on a node that is there."""
    parts = []
    for flag, ptr, deps in ((DATA, graph.data_ptr, graph.data_deps), (CTRL, graph.ctrl_ptr, graph.ctrl_deps)):
        child = np.repeat(np.arange(graph.n_nodes), np.diff(ptr))
        parent = locate(graph.ids, deps)
        there = parent >= 0
        parts.append(np.stack([parent[there], child[there], np.full(int(there.sum()), flag)]))
    src, dst, dependency = np.concatenate(parts, axis=1)
    return src, dst, dependency


def _chains(graph: Graph, src: I64, dst: I64) -> I64:
    n = graph.n_nodes
    # Data and control dependencies between two nodes are one edge here.
    pairs = np.unique(src * max(n, 1) + dst)
    src, dst = pairs // max(n, 1), pairs % max(n, 1)
    forward = forward_edges(n, src, dst)
    lane = lanes(graph)[0]
    only = (
        forward
        & (np.bincount(src, minlength=n)[src] == 1)
        & (np.bincount(dst, minlength=n)[dst] == 1)
        & (lane[src] == lane[dst])
    )
    # A link joins a node to its parent if each is the only one for the other; the roots of these
    # links are the chains.
    head = np.arange(n)
    head[dst[only]] = src[only]
    return _roots(head)


def _roots(parent: I64) -> I64:
    """Follow `parent`, in which a root is its own, to the roots; by doubling, so O(n log n)."""
    while True:
        further = parent[parent]
        if np.array_equal(further, parent):
            return parent
        parent = further


def _names(graph: Graph) -> I64:
    codes: dict[str, int] = {}
    numbers = {name: codes.setdefault(pattern(name), len(codes)) for name in set(graph.names())}
    named = np.array([numbers[name] for name in graph.names()], dtype=np.int64)
    lane, names = lanes(graph)
    return named * len(names) + lane


def callers(graph: Graph) -> I64:
    """Return the earlier node on which each depends by control first, int64 (n_nodes,); itself where there is none."""
    caller = np.arange(graph.n_nodes)
    called = np.flatnonzero(np.diff(graph.ctrl_ptr))
    at = locate(graph.ids, graph.ctrl_deps[graph.ctrl_ptr[called]])
    # Only a caller that comes earlier: that leaves out cycles.
    real = (at >= 0) & (at < called)
    caller[called[real]] = at[real]
    return caller


def _calls(graph: Graph, max_nodes: int) -> I64:
    """Return a box key per node: the largest calls are opened as long as at most `max_nodes` boxes result."""
    caller = callers(graph)
    lane, names = lanes(graph)
    alike = _alike(caller, _names(graph))
    room = max_nodes
    while True:
        key = _opened(caller, alike, room) * len(names) + lane
        boxes = len(np.unique(key))
        if boxes <= max_nodes or room <= 1:
            return key
        room = min(room - 1, room * max_nodes // boxes)  # calls that run in several lanes are several boxes


def _alike(caller: I64, name: I64) -> I64:
    """Return for every node the first of its run of leaf calls with one caller and one name."""
    n = len(caller)
    nodes = np.arange(n)
    calls = np.bincount(caller[caller != nodes], minlength=n) > 0
    order = np.argsort(caller, kind="stable")
    before, after = order[:-1], order[1:]
    same = (caller[before] == caller[after]) & (name[before] == name[after]) & ~calls[before] & ~calls[after]
    first = nodes.copy()
    first[after[same]] = before[same]
    return _roots(first)


def _opened(caller: I64, alike: I64, room: int) -> I64:
    """Return for every node the outermost closed call around it; about `room` calls stay closed."""
    callers, firsts = caller.tolist(), alike.tolist()
    sizes = [1] * len(callers)
    callees: list[list[int]] = [[] for _ in callers]
    # Callees come after their callers, so backwards their sizes are complete.
    for node in range(len(callers) - 1, -1, -1):
        if callers[node] != node:
            sizes[callers[node]] += sizes[node]
            if firsts[node] == node:
                callees[callers[node]].append(node)
    roots = np.flatnonzero(caller == np.arange(len(caller)))
    # A heap of closed calls by size: the largest that still fits is opened next.
    closed = [(-sizes[node], node) for node in roots.tolist()]
    heapq.heapify(closed)
    room -= len(roots)
    is_open = np.zeros(len(caller), dtype=np.bool_)
    while closed:
        node = heapq.heappop(closed)[1]
        if 0 < len(callees[node]) <= room:
            is_open[node] = True
            room -= len(callees[node])
            for callee in callees[node]:
                heapq.heappush(closed, (-sizes[callee], callee))
    return _roots(np.where(is_open[caller], alike, caller))
