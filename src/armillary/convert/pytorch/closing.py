"""The closing check: a converted rank must replay in its recorded time, with all its communication kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.units import format_time
from armillary.convert.pytorch.rank import Rank
from armillary.trace import Graph
from armillary.trace.columns import COMMUNICATION

Times = NDArray[np.int64]

APART = 0.05
"""Warn if the replayed time differs from the recorded time by more than this share of it."""
CONSTANT = 0.05
"""Warn if gaps make up more than this share of the replayed time: they are constant on every machine."""
DELAYS = ("gap", "latency", "queued", "host")
"""Kinds of delay whose share of the replayed time the facts give."""
SHOWN = 16
"""With more ranks than this, state only those whose replay differs most from its recording."""


def close(rank: Rank, graph: Graph) -> tuple[dict[str, Any], list[str]]:
    """Return the facts of one rank, and a warning for each that is wrong.

    The facts are recorded_ns (first start to last end of operators and device activities), replayed_ns (the same for
    `graph` if each node starts as soon as all its dependencies have ended), communication_kernels (how many the
    recording has), and for each of `DELAYS` the share by which the replayed time would shrink if such nodes took no
    time; delays off the critical path therefore count nothing. Times and shares are None if no times were recorded.
    """
    kernels = [step for step in rank.steps if step.communicates]
    facts: dict[str, Any] = {
        "recorded_ns": rank.last - rank.first if rank.timed else None,
        "replayed_ns": None,
        "communication_kernels": len(kernels),
        **{f"{kind}_fraction": None for kind in DELAYS},
    }
    wrong = []
    # Nodes of process groups stand before those of the steps, one node for each step.
    communicates = np.isin(graph.types, COMMUNICATION)[graph.n_nodes - len(rank.steps) :].tolist()
    lost = Counter(
        step.name
        for step, made in zip(rank.steps, communicates, strict=True)
        # Further kernels of one call are meant to stay compute: the call moves its bytes once.
        if step.communicates == "kernel" and not made
    )
    if lost:
        name, count = lost.most_common(1)[0]
        wrong.append(
            f"{lost.total()} of {len(kernels)} communication kernels are no communication in the trace, most of them "
            f"'{name[:60]}' ({count})"
        )
    if rank.timed:
        ends = replay(graph)
        facts["replayed_ns"] = int(ends.max(initial=0))
        apart = facts["replayed_ns"] / max(facts["recorded_ns"], 1) - 1
        if abs(apart) > APART:
            wrong.append(
                f"replayed {format_time(facts['replayed_ns'])}, recorded {format_time(facts['recorded_ns'])} "
                f"({apart:+.1%}): {_cause(graph, ends, rank)}"
            )
        facts |= {f"{kind}_fraction": _share(graph, kind, facts["replayed_ns"]) for kind in DELAYS}
        if facts["gap_fraction"] > CONSTANT:
            wrong.append(
                f"{facts['gap_fraction']:.0%} of the time is gaps, for which nothing in the file accounts, and which "
                f"no machine changes: {_longest(graph, ends)}"
            )
    return facts, wrong


def replay(graph: Graph, without: str = "") -> Times:
    """Return when each node ends, int64 ns (n_nodes,), from recorded durations and dependencies alone.

    Nodes stand behind their dependencies, as `convert` writes them. Those with the attribute `without` take no time.
    """
    ptr, parents = graph.parents()
    bounds, before = ptr.tolist(), parents.tolist()
    durations = graph.ints("duration_ns")
    ends = (np.where(graph.ints(without) != 0, 0, durations) if without else durations).tolist()
    # In topological order, so the ends of all dependencies are final when a node needs them.
    for at in range(graph.n_nodes):
        if waits := before[bounds[at] : bounds[at + 1]]:
            ends[at] += max([ends[wait] for wait in waits])
    return np.array(ends, dtype=np.int64)


def _share(graph: Graph, kind: str, replayed: int) -> float:
    if kind not in graph.attr_names or not replayed:
        return 0.0
    return round(1 - int(replay(graph, without=kind).max(initial=0)) / replayed, 6)


def _longest(graph: Graph, ends: Times) -> str:
    """Name the longest gap on the critical path of the last node, and the node behind it."""
    gaps = graph.ints("gap") != 0
    durations = graph.ints("duration_ns")
    ptr, parents = graph.parents()
    at = int(np.argmax(ends))
    found, behind = -1, at
    # Back along the critical path: the dependency that ended last.
    while ptr[at] < ptr[at + 1]:
        waits = parents[ptr[at] : ptr[at + 1]]
        before = int(waits[np.argmax(ends[waits])])
        if gaps[before] and (found < 0 or durations[before] > durations[found]):
            found, behind = before, at
        at = before
    if found < 0:
        return "several ways through the graph have some"
    return (
        f"the longest of them, {format_time(int(durations[found]))}, ends with node {int(graph.ids[behind])} "
        f"'{graph.name(behind)[:60]}'"
    )


def _cause(graph: Graph, ends: Times, rank: Rank) -> str:
    """Name the node that adds most of the difference, on the critical path of the longer of replay and recording."""
    # Zeros stand for the nodes of process groups, which no step has recorded.
    recorded = np.zeros(graph.n_nodes, np.int64)
    recorded[graph.n_nodes - len(rank.steps) :] = [step.end - rank.first for step in rank.steps]
    off = ends - recorded
    longer = recorded if recorded.max() > ends.max() else ends
    ptr, parents = graph.parents()
    at: int | None = int(np.argmax(longer))
    worst, most = 0, 0
    while at is not None:
        waits = parents[ptr[at] : ptr[at + 1]]
        before = int(waits[np.argmax(longer[waits])]) if len(waits) else None
        # How much the offset grew over this node: an early error is carried along by all that follow it.
        change = int(off[at]) - (int(off[before]) if before is not None else 0)
        if abs(change) > abs(most):
            worst, most = at, change
        at = before
    return (
        f"most of it comes in with node {int(graph.ids[worst])} '{graph.name(worst)[:60]}', which ends "
        f"{format_time(abs(most))} too {'late' if most > 0 else 'early'}"
    )


def statements(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line per rank with its replayed and its recorded time."""
    timed = [one for one in facts if one.get("recorded_ns") is not None]

    def apart(one: Mapping[str, Any]) -> float:
        return float(abs(one["replayed_ns"] / max(one["recorded_ns"], 1) - 1))

    shown = sorted(sorted(timed, key=apart, reverse=True)[:SHOWN], key=lambda one: int(one["rank"]))
    lines = [
        f"rank {one['rank']}: replayed {format_time(one['replayed_ns'])}, recorded {format_time(one['recorded_ns'])}"
        for one in shown
    ]
    if others := len(timed) - len(shown):
        least = min(apart(one) for one in shown)
        lines.append(f"{others} other ranks: replayed and recorded time at most {least:.2%} apart")
    return lines
