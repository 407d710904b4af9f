"""A timeline of a trace for ui.perfetto.dev, from recorded starts or from dependencies alone."""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.report import chrome_trace
from armillary.report.earliest import earliest, forward_edges
from armillary.report.time_breakdown import lanes as disjoint
from armillary.report.trace_times import KINDS, durations, kinds, lanes, starts
from armillary.trace import CollectiveType, Graph, Trace

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Placed:
    """When each node of a graph starts and ends, in ns, int64 (n_nodes,)."""

    start: I64
    end: I64
    recorded: bool
    """Whether starts are recorded; else nodes start as soon as dependencies allow."""
    ignored: int = 0
    """Number of dependencies that are ignored because they close a cycle."""


def place(graph: Graph) -> Placed:
    """Return the times of the nodes: recorded, or by dependency alone where the trace records no starts."""
    begun = starts(graph)
    return as_soon_as_possible(graph) if begun is None else Placed(begun, begun + durations(graph), True)


def as_soon_as_possible(graph: Graph) -> Placed:
    """Return times at which all nodes start when the last of their dependencies ends.

    Raises:
        InputError: a duration is out of range, or their sum is.
    """
    length = durations(graph)
    if (total := float(length.sum(dtype=np.float64))) > 2.0**62:
        raise InputError(f"{graph.source}: durations add up to {total:.3g} ns, expected at most {2**62}")
    n, (ptr, parents) = graph.n_nodes, graph.parents()
    parent, child = parents.astype(np.int64), np.repeat(np.arange(n), np.diff(ptr))
    kept = forward_edges(n, parent, child)
    begun = earliest(n, parent[kept], child[kept], length)
    return Placed(begun, begun + length, False, int((~kept).sum()))


def write_trace_timeline(
    ranks: Sequence[tuple[int, Graph]] | Trace, path: str | os.PathLike[str]
) -> list[tuple[str, Placed]]:
    """Write one process per rank and one thread per CPU thread, stream, communicator or kind of node.

    Ranks that share a graph share a process. Where starts are recorded, zero is the earliest of all ranks.
    Slices that overlap go to more threads, but for recorded calls on a CPU thread, one inside the other.
    Times are µs, exact to the ns.

    Args:
        ranks: what to write: a trace, or (rank, graph) pairs.
        path: the file; compressed if it ends in ``.gz``.

    Returns:
        The name of each process, and its times.

    Raises:
        InputError: the file cannot be written.
    """
    if isinstance(ranks, Trace):
        ranks = [(rank, ranks.graph(rank)) for rank in range(ranks.n_ranks)]
    alike: dict[int, list[int]] = {}
    graphs: dict[int, Graph] = {}
    for rank, graph in ranks:
        alike.setdefault(id(graph), []).append(rank)
        graphs[id(graph)] = graph
    placed = {key: place(graph) for key, graph in graphs.items()}
    # One origin for all ranks keeps their recorded offsets.
    recorded = [times for times in placed.values() if times.recorded and len(times.start)]
    origin = min((int(times.start.min()) for times in recorded), default=0)
    shown = []
    for key, numbers in alike.items():
        more = f" (+{len(numbers) - 1} alike)" if len(numbers) > 1 else ""
        how = "" if placed[key].recorded else ", as soon as dependencies allow"
        shown.append((f"rank {numbers[0]}{more}{how}", numbers[0], graphs[key], placed[key]))
    about = {"producer": "armillary", "ranks": len(ranks), "origin_ns": str(origin)}
    chrome_trace.write(path, about, _events(shown, origin))
    return [(name, times) for name, _, _, times in shown]


def _events(shown: list[tuple[str, int, Graph, Placed]], origin: int) -> Iterator[str]:
    tid = 0
    for order, (name, rank, graph, times) in enumerate(shown):
        pid = rank + 1  # Perfetto takes process 0 for the idle process
        yield chrome_trace.metadata(pid, 0, "process_name", {"name": name})
        yield chrome_trace.metadata(pid, 0, "process_sort_index", {"sort_index": order})
        zero = origin if times.recorded else 0
        lane, titles = lanes(graph)
        kind = [KINDS[number] for number in kinds(graph).tolist()]
        by_lane = np.argsort(lane, kind="stable")
        first = np.searchsorted(lane[by_lane], np.arange(len(titles) + 1))
        for number, title in enumerate(titles):
            mine = by_lane[first[number] : first[number + 1]]
            # Callers before callees that begin in the same tick.
            mine = mine[np.lexsort((-times.end[mine], times.start[mine]))]
            begins, ends = (times.start[mine] - zero).tolist(), (times.end[mine] - zero).tolist()
            # Recorded calls on a CPU thread form a stack, which viewers show nested.
            nests = times.recorded and title.startswith("CPU")
            level = (
                nested_lanes(begins, ends) if nests else disjoint(times.start[mine], times.end[mine]).tolist()
            )
            of_lane: list[list[tuple[int, int]]] = [[] for _ in range(max(level, default=-1) + 1)]
            for i, at in enumerate(mine.tolist()):
                of_lane[level[i]].append((i, at))
            for extra, own in enumerate(of_lane):
                tid += 1  # unique in the file: some readers ignore the process of a thread
                label = title if not extra else f"{title} ({extra + 1})"
                yield chrome_trace.metadata(pid, tid, "thread_name", {"name": label})
                yield chrome_trace.metadata(pid, tid, "thread_sort_index", {"sort_index": tid})
                for i, at in own:
                    yield chrome_trace.slice_(pid, tid, begins[i], ends[i], _rest(graph, at, kind[at]))


def nested_lanes(begins: list[int], ends: list[int]) -> list[int]:
    """Return a lane for each interval such that two in one lane are disjoint or one inside the other.

    Args:
        begins: in ascending order, and the longest first among equal ones.
        ends: where each ends.
    """
    # Each lane is a stack of open intervals. `tops` is a tree of what is on top of each, the greatest above: the first
    # lane with room is found in the logarithm of their number, as 100,000 intervals may all overlap.
    stacks: list[list[int]] = [[]]
    tops: list[float] = [math.inf, math.inf]
    open_ends: list[tuple[int, int]] = []
    found = []
    for begin, end in zip(begins, ends, strict=True):
        while open_ends and open_ends[0][0] <= begin:
            lane = heapq.heappop(open_ends)[1]
            stack = stacks[lane]
            while stack and stack[-1] <= begin:
                stack.pop()
            _put(tops, lane, stack[-1] if stack else math.inf)
        if tops[1] < end:
            # As many lanes again, all empty.
            leaves = tops[len(stacks) :]
            tops = [math.inf] * (4 * len(stacks))
            stacks += [[] for _ in stacks]
            for lane, top in enumerate(leaves):
                _put(tops, lane, top)
        at = 1
        while at < len(stacks):
            at = 2 * at + (tops[2 * at] < end)
        lane = at - len(stacks)
        stacks[lane].append(end)
        heapq.heappush(open_ends, (end, lane))
        _put(tops, lane, end)
        found.append(lane)
    return found


def _put(tree: list[float], leaf: int, value: float) -> None:
    """Set a leaf of a tree in which each entry is the greater of its two."""
    at = len(tree) // 2 + leaf
    tree[at] = value
    while at > 1:
        at //= 2
        tree[at] = max(tree[2 * at], tree[2 * at + 1])


def _rest(graph: Graph, at: int, kind: str) -> str:
    args: dict[str, Any] = {"node": chrome_trace.identifier(int(graph.ids[at]))}
    for name, _, value in graph.attrs(at):
        if name == "comm_type" and value in CollectiveType.__members__.values():
            args["collective"] = CollectiveType(value).name
        elif isinstance(value, int | str) and value != "":
            args[name] = chrome_trace.identifier(value) if isinstance(value, int) else value
    return chrome_trace.rest(graph.name(at) or kind, kind, args)
