"""Sizes, times and operators of a trace."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base import jit
from armillary.trace import columns as c
from armillary.trace import structure
from armillary.trace.columns import CollectiveType, NodeType, type_name
from armillary.trace.graph import Graph, distinct_types, duration_ns, exact_sum
from armillary.trace.trace import Trace

I64 = NDArray[np.int64]

BOUNDS = (0, 1, *(10**k for k in range(3, 11)))
"""Lower bounds of the duration histogram in ns: 0 alone, below 1 µs, 10 µs, …, and 10 s or more."""

_LATEST_MICROS = 8 * 10**15
"""Start times from here on (the year 2223) are taken as invalid."""

Lane = tuple[str, int]
"""("stream" or "thread", its number); the work of a lane runs in order."""


@dataclass
class _Sum:
    """Nodes and time."""

    nodes: int = 0
    time: int = 0

    def add(self, nodes: int, time: float) -> None:
        self.nodes += int(nodes)
        self.time += int(time)

    def facts(self) -> dict[str, int]:
        return {"nodes": self.nodes, "time_ns": self.time}


def _sums() -> dict[Any, _Sum]:
    return defaultdict(_Sum)


@dataclass
class _Totals:
    """Sums over the ranks."""

    all: _Sum = field(default_factory=_Sum)
    gap: _Sum = field(default_factory=_Sum)
    types: dict[int, _Sum] = field(default_factory=_sums)
    operators: dict[str, _Sum] = field(default_factory=_sums)
    lanes: dict[Lane, _Sum] = field(default_factory=_sums)
    durations: dict[int, _Sum] = field(default_factory=_sums)
    sizes: dict[tuple[str, str], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    counts: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)


def stats(trace: Trace, top: int = 10) -> dict[str, Any]:
    """Return counts and sums over all ranks, as plain JSON values; times in ns, sizes in bytes.

    Keys: ranks, graphs (distinct), all, types, operators (the `top` by time; names with ``#`` for numbers),
    operators_in_all, lanes (streams and threads), communication (by type and group; sizes of one node),
    flops, bytes (moved by compute and memory nodes), longest_path (of the rank that has the longest, without
    waiting for other ranks), dependencies, durations (a histogram), gap (nodes that stand for time in which nothing
    was recorded) and starts.

    Raises:
        InputError: an attribute is of the wrong kind, or a graph has a cycle.
    """
    totals = _Totals()
    path = {"nodes": 0, "time_ns": 0}
    first, last = [], []
    for graph, ranks in zip(trace.graphs, np.bincount(trace.rank_graph).tolist(), strict=True):
        # Started first: names are folded in a thread while the longest path is computed.
        names = _fold_names(graph)
        time = duration_ns(graph)
        _, level, end = structure.earliest(graph, time)
        _add(totals, graph, time, ranks)
        _add_by(totals.operators, *names(), time, ranks)
        path["nodes"] = max(path["nodes"], int(level.max(initial=0)))
        path["time_ns"] = max(path["time_ns"], end)
        # Traces without start times have 0 everywhere; wrapped ones have huge values.
        if graph.start_micros.any() and int(graph.start_micros.max()) < _LATEST_MICROS:
            starts = graph.start_micros.astype(np.int64) * 1000
            first.append(int(starts.min()))
            last.append(int((starts + time).max()))
    operators = sorted(totals.operators.items(), key=lambda item: (-item[1].time, -item[1].nodes, item[0]))
    return {
        "ranks": trace.n_ranks,
        "graphs": len(trace.graphs),
        "all": totals.all.facts(),
        "types": {type_name(number): total.facts() for number, total in sorted(totals.types.items())},
        "operators": [{"name": name, **total.facts()} for name, total in operators[:top]],
        "operators_in_all": len(operators),
        "lanes": [
            {"kind": k, "number": n, **total.facts()} for (k, n), total in sorted(totals.lanes.items())
        ],
        "communication": [
            {"type": kind, "group": group, **_spread(sizes)}
            for (kind, group), sizes in sorted(totals.sizes.items())
        ],
        "flops": totals.counts["flops"],
        "bytes": totals.counts["bytes"],
        "longest_path": path,
        "dependencies": {
            **{name: totals.counts[name] for name in ("data", "ctrl", "dangling", "roots", "leaves")},
            **{name: totals.most[name] for name in ("most_parents", "most_children")},
        },
        "durations": [
            {"from_ns": BOUNDS[at], **totals.durations[at].facts()} for at in sorted(totals.durations)
        ],
        "gap": {**totals.gap.facts(), "share": totals.gap.time / totals.all.time if totals.all.time else 0.0},
        "starts": {"first_ns": min(first), "last_end_ns": max(last)} if first else None,
    }


def _add(totals: _Totals, graph: Graph, time: I64, ranks: int) -> None:
    n = graph.n_nodes
    totals.all.add(n * ranks, exact_sum(time) * ranks)
    if not n:
        return
    types = graph.types
    numbers = distinct_types(types)
    _add_by(totals.types, np.searchsorted(numbers, types), numbers.tolist(), time, ranks)
    _add_by(totals.durations, np.digitize(time, BOUNDS) - 1, range(len(BOUNDS)), time, ranks)
    _add_lanes(totals, graph, time, ranks)
    _add_communication(totals, graph, ranks)
    if "gap" in graph.attr_names:
        gap = graph.ints("gap") != 0
        totals.gap.add(int(gap.sum()) * ranks, exact_sum(time[gap]) * ranks)
    if "num_ops" in graph.attr_names:
        totals.counts["flops"] += exact_sum(graph.ints("num_ops")) * ranks
    if "tensor_size" in graph.attr_names:
        totals.counts["bytes"] += exact_sum(graph.ints("tensor_size")) * ranks
    ptr, parent = graph.parents()
    parents, children = np.diff(ptr), np.bincount(parent, minlength=n)
    counts = {
        "data": len(graph.data_deps),
        "ctrl": len(graph.ctrl_deps),
        "dangling": len(graph.dangling),
        "roots": n - int(np.count_nonzero(parents)),
        "leaves": n - int(np.count_nonzero(children)),
    }
    for name, count in counts.items():
        totals.counts[name] += count * ranks
    for name, degrees in (("most_parents", parents), ("most_children", children)):
        totals.most[name] = max(totals.most[name], int(degrees.max()))


def _fold_names(graph: Graph) -> Callable[[], tuple[NDArray[np.integer], list[str]]]:
    """Return a function that waits for the code of every node's name and the distinct names, and returns both."""
    names = graph.columns.rows[c.NAME_AT, graph.first : graph.first + graph.n_nodes]
    # The interpreted form holds the GIL, so a thread would gain nothing.
    if graph.n_nodes < c.COMPILED_FROM:
        return lambda: c.fold_numbers(graph.columns, names)
    for kernel in (c.TEXT_KERNEL, structure.KERNEL):  # modules are loaded by one thread only
        jit.load(kernel, "compiled")
    pool = ThreadPoolExecutor(1)
    codes = pool.submit(c.fold_numbers, graph.columns, names)
    pool.shutdown(wait=False)
    return codes.result


def _add_by(
    sums: dict[Any, _Sum], codes: NDArray[np.integer], names: Sequence[Any], time: I64, ranks: int
) -> None:
    """Add nodes and time to `sums`, by the name that `codes` give every node."""
    nodes = np.bincount(codes, minlength=len(names))
    # float64 sums: exact below 2**53 ns, which is 104 days.
    times = np.bincount(codes, weights=time, minlength=len(names))
    for at in np.flatnonzero(nodes).tolist():
        sums[names[at]].add(int(nodes[at]) * ranks, int(times[at]) * ranks)


def _add_lanes(totals: _Totals, graph: Graph, time: I64, ranks: int) -> None:
    if not {"stream", "tid"} & set(graph.attr_names):
        return
    # Kernels run on a stream; CPU operators on a thread, even if they carry a stream, too.
    cpu = (graph.ints("is_cpu_op") != 0) & (graph.types == NodeType.COMP_NODE)
    for kind, name, mine in (("stream", "stream", ~cpu), ("thread", "tid", cpu)):
        if name in graph.attr_names:
            named = graph.has(name) & mine
            numbers, codes = np.unique(graph.ints(name)[named], return_inverse=True)
            _add_by(totals.lanes, codes, [(kind, number) for number in numbers.tolist()], time[named], ranks)


def _add_communication(totals: _Totals, graph: Graph, ranks: int) -> None:
    types = graph.types
    at = np.flatnonzero((types >= NodeType.COMM_SEND_NODE) & (types <= NodeType.COMM_COLL_NODE))
    if not len(at):
        return
    size, groups = graph.ints_at(at, "comm_size"), ["", *graph.strings("pg_name")[1]]
    operation, group = graph.ints_at(at, "comm_type", -1), graph.strings("pg_name")[0][at] + 1
    message = types[at] != NodeType.COMM_COLL_NODE
    # Messages get codes below -1, beside comm_type and -1 for an absent one.
    operation = np.where(message, -1 - types[at].astype(np.int64), operation)
    rows = np.stack([operation, np.where(message, 0, group), size])
    first, which = c.distinct_columns(rows)
    for kind, code, each, count in zip(*rows[:, first].tolist(), np.bincount(which).tolist(), strict=True):
        totals.sizes[_kind_name(kind), groups[code]][each] += count * ranks


def _kind_name(kind: int) -> str:
    if kind < -1:
        return "SEND" if kind == -1 - NodeType.COMM_SEND_NODE else "RECV"
    return CollectiveType(kind).name if kind in CollectiveType.__members__.values() else f"comm_type {kind}"


def _spread(sizes: Counter[int]) -> dict[str, int]:
    """Return the number of nodes, and the sum, minimum, lower median and maximum of their sizes."""
    nodes = sizes.total()
    ordered = sorted(sizes.items())
    before = 0
    for size, count in ordered:
        before += count
        # Sizes count as often as they occur; the first to reach half is the lower median.
        if 2 * before >= nodes:
            median = size
            break
    total = sum(size * count for size, count in ordered)
    return {"nodes": nodes, "bytes": total, "min": ordered[0][0], "median": median, "max": ordered[-1][0]}
