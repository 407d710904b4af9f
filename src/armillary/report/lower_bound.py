"""What no run of this workload on this machine can beat, and what sets it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from armillary.engine.timeline import KINDS, GraphTable, Timeline
from armillary.jit import Mode, load
from armillary.report.communication import port_bandwidths

Ticks = NDArray[np.int64]
INTERPRETED_STEPS = 200_000
"""Nodes and dependencies up to which the path is found without the compiler, which costs more to load."""

NAME = 24
"""Letters of the name of a dimension that are shown."""

_COMPUTE, _CPU, _MEMORY = (KINDS.index(kind) for kind in ("compute", "cpu", "memory"))
_NETWORK = [KINDS.index(kind) for kind in ("collective", "send", "recv")]


@dataclass(frozen=True)
class Part:
    """One lower bound: `ticks`, of which `before` and `after` pass without the resource it is about."""

    kind: str
    """"port", "compute", "flops", "path" or "latency"."""
    name: str
    """The same in words: "port of dimension wafer"."""
    ticks: int
    cls: int
    """The class of ranks for which it is the largest."""
    before: int = 0
    """Least ticks before the resource can be used for the first time."""
    after: int = 0
    """Least ticks that must follow its last use."""
    dimension: int = -1


@dataclass(frozen=True)
class Bound:
    """The lower bounds of a run, the largest first, and how near the run came to it."""

    parts: tuple[Part, ...]
    total: int
    """Ticks the run took."""

    @property
    def ticks(self) -> int:
        """The largest of the bounds."""
        return self.parts[0].ticks if self.parts else 0

    @property
    def what(self) -> str:
        """What sets it, in words; empty without parts."""
        return self.parts[0].name if self.parts else ""

    @property
    def efficiency(self) -> float | None:
        """Bound ÷ total; None if the run took no time, or took less than its bound (profile astra-sim)."""
        return self.ticks / self.total if self.total and self.ticks <= self.total else None


def bound(timeline: Timeline, free: AbstractSet[str] = frozenset()) -> Bound:
    """Return the lower bounds of a run, the largest first.

    ``compute`` is the time of the compute nodes of the fullest stream of a rank, ``flops`` the part of it
    that remains if every node ran at the peak, ``port`` the bytes of the collectives through a port ÷ its
    bandwidth, per dimension; all three with what must come before and after on that rank. ``path`` is the
    longest path through the graph of a rank when nothing is ever busy, ``latency`` the same if only the
    latencies of the collectives took time. Each is the largest over all ranks.

    Args:
        timeline: The run.
        free: Kinds of work that shall take no time, to see what would bound then: "compute", "network",
            "memory", or "dimension 0", … with its port and the collectives that use it.
    """
    if not len(timeline.finish):
        return Bound((), timeline.total_ticks)
    least = np.concatenate([least_ticks(timeline, cls, free) for cls in range(len(timeline.finish))])
    ran = timeline.phase_start >= 0
    row_node = timeline.node_ptr[timeline.phase_class] + timeline.phase_node
    for d in range(len(timeline.info.get("dimensions", []))):
        if f"dimension {d}" in free:
            least[row_node[timeline.phase_dim == d]] = 0
    head, tail = _longest(timeline, least)
    parts = []
    if "network" not in free:
        parts += _ports(timeline, free, row_node, ran, head, tail)
    if "compute" not in free:
        parts += _compute(timeline, least, head, tail)
    parts.append(_path(timeline, "path", "critical path", head + least))
    if "network" not in free:
        delay = _latencies(timeline, free, row_node, ran)
        if delay.any():
            parts.append(_path(timeline, "latency", "latency", _longest(timeline, delay)[0] + delay))
    ranked = sorted((part for part in parts if part.ticks > 0), key=lambda part: -part.ticks)
    return Bound(tuple(ranked), timeline.total_ticks)


def least_ticks(timeline: Timeline, cls: int, free: AbstractSet[str] = frozenset()) -> Ticks:
    """Return the fewest ticks of the nodes of a class; compute that the engine gives none took its own time."""
    part = slice(int(timeline.node_ptr[cls]), int(timeline.node_ptr[cls + 1]))
    kind, (start, end) = timeline.table(cls).kind, timeline.spans(cls)
    least = timeline.node_least[part]
    least = np.where((least == 0) & ((kind == _COMPUTE) | (kind == _CPU)), end - start, least)
    zero = start < 0
    for name, kinds in {"compute": [_COMPUTE, _CPU], "network": _NETWORK, "memory": [_MEMORY]}.items():
        if name in free:
            zero |= np.isin(kind, kinds)
    return np.where(zero, 0, least)


def _longest(timeline: Timeline, least: Ticks, mode: Mode | None = None) -> tuple[Ticks, Ticks]:
    """Return head and tail (see the kernel) of all nodes of all classes."""
    head, tail = np.zeros((2, len(least)), np.int64)
    tables = [timeline.table(cls) for cls in range(len(timeline.finish))]
    steps = len(least) + sum(len(table.parent) for table in tables)
    if mode is None:
        mode = "interpreted" if steps <= INTERPRETED_STEPS else "compiled"
    kernel = load("armillary.report.path_kernel", mode)
    for cls, table in enumerate(tables):
        part = slice(int(timeline.node_ptr[cls]), int(timeline.node_ptr[cls + 1]))
        n = part.stop - part.start
        given = [_int64(table.parent_ptr), _int64(table.parent), least[part], head[part], tail[part]]
        room = [np.zeros(n, np.int64), np.zeros(n, np.int64), np.full(n, -1)]
        if mode == "compiled":
            kernel.longest(n, *given, *room)
            continue
        lists = [array.tolist() for array in (*given, *room)]
        kernel.longest(n, *lists)
        head[part], tail[part] = lists[3], lists[4]
    return head, tail


def _int64(array: NDArray[np.integer]) -> Ticks:
    return np.ascontiguousarray(array, np.int64)


def _path(timeline: Timeline, kind: str, name: str, end: Ticks) -> Part:
    """Return the bound of the class whose last `end` is the latest."""
    best = int(np.argmax(end)) if len(end) else 0
    cls = int(np.searchsorted(timeline.node_ptr, best, side="right")) - 1
    return Part(kind, name, int(end[best]) if len(end) else 0, cls)


def _compute(timeline: Timeline, least: Ticks, head: Ticks, tail: Ticks) -> list[Part]:
    """Return the bounds of compute and of FLOPs at the peak: nodes of a stream run one after the other."""
    tick_ns = float(timeline.info.get("tick_ns", 1))
    found: dict[str, Part] = {}
    for cls in range(len(timeline.finish)):
        table: GraphTable = timeline.table(cls)
        nodes = np.flatnonzero((table.kind == _COMPUTE) & (timeline.spans(cls)[0] >= 0))
        if not len(nodes):
            continue
        streams, of = np.unique(table.stream[nodes], return_inverse=True)
        at = int(timeline.node_ptr[cls]) + nodes
        own = least[at]
        before, after = (_least_of(of, len(streams), ticks[at]) for ticks in (head, tail))
        work = {"compute": _sum_of(of, len(streams), own)}
        peak = timeline.peaks(cls)[nodes] * tick_ns
        if peak.all():
            # A node that is faster than the peak (a measured time, say) takes its own time.
            at_peak = np.minimum(table.flops[nodes] / peak, own)
            work["flops"] = np.bincount(of, weights=at_peak, minlength=len(streams)).astype(np.int64)
        for kind, ticks in work.items():
            if not ticks.any():
                continue
            s = int(np.argmax(before + ticks + after))
            name = "compute" if kind == "compute" else "FLOPs at peak"
            if len(streams) > 1:
                name += f" on stream {int(streams[s])}"
            total = int(before[s] + ticks[s] + after[s])
            if kind not in found or found[kind].ticks < total:
                found[kind] = Part(kind, name, total, cls, int(before[s]), int(after[s]))
    return list(found.values())


def _ports(
    timeline: Timeline,
    free: AbstractSet[str],
    row_node: Ticks,
    ran: NDArray[np.bool_],
    head: Ticks,
    tail: Ticks,
) -> list[Part]:
    """Return for each dimension the bound by the bytes through the fullest port."""
    classes = len(timeline.finish)
    tick = Fraction(timeline.info.get("tick_ns", 1))
    parts = []
    for d, (out, into) in enumerate(port_bandwidths(timeline)):
        rows = np.flatnonzero(ran & (timeline.phase_dim == d))
        if not len(rows) or f"dimension {d}" in free or not max(out, into):
            continue
        cls, nodes = timeline.phase_class[rows], row_node[rows]
        sent, port = timeline.phase_bytes[rows], timeline.phase_port_bytes[rows]
        # What is busier than the sends may be the other direction, which may be the faster one.
        by_rate = [(_sum_of(cls, classes, port), max(out, into))]
        if out < into:
            by_rate.append((_sum_of(cls, classes, np.where(sent == port, port, 0)), out))
        before, after = (_least_of(cls, classes, ticks[nodes]) for ticks in (head, tail))
        for total, rate in by_rate:
            used = total > 0
            if not used.any():
                continue
            guess = np.where(used, total / (rate * float(tick)) + before + after, -1)
            c = int(np.argmax(guess))
            work = int(Fraction(int(total[c])) / (Fraction(rate) * tick))  # rounded down: it stays a bound
            edges = int(before[c]), int(after[c])
            name = f"port of dimension {dimension_name(timeline, d)}"
            parts.append(Part("port", name, work + sum(edges), c, *edges, d))
    return parts


def _latencies(timeline: Timeline, free: AbstractSet[str], row_node: Ticks, ran: NDArray[np.bool_]) -> Ticks:
    """Return for each node the latencies of the phases of its first chunk: at least a hop for each."""
    described = timeline.info.get("dimensions", [])
    tick_ns = float(timeline.info.get("tick_ns", 1))
    of_dimension = [
        0 if f"dimension {d}" in free else int(float(one.get("latency_ns") or 0) / tick_ns)
        for d, one in enumerate(described)
    ]
    delay = np.zeros(len(timeline.node_start), np.int64)
    rows = np.flatnonzero(
        ran & (timeline.phase_chunk == 0) & (timeline.phase_dim >= 0) & (timeline.phase_dim < len(described))
    )
    if len(rows):
        took = timeline.phase_end[rows] - timeline.phase_start[rows]
        hop = np.array(of_dimension, np.int64)[timeline.phase_dim[rows]]
        np.add.at(delay, row_node[rows], np.clip(took, 0, hop))
    return delay


def dimension_name(timeline: Timeline, d: int) -> str:
    """Return the name of dimension `d` on one line, cut if it is long, or its number."""
    described = timeline.info.get("dimensions", [])
    name = str(described[d].get("name", d)) if 0 <= d < len(described) else str(d)
    name = "".join(letter if letter.isprintable() else " " for letter in name)
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


def _sum_of(group: NDArray[np.integer], groups: int, values: Ticks) -> Ticks:
    total = np.zeros(groups, np.int64)
    np.add.at(total, group, values)
    return total


def _least_of(group: NDArray[np.integer], groups: int, values: Ticks) -> Ticks:
    """Return the least of the values of each group, 0 for an empty one."""
    found = np.full(groups, np.iinfo(np.int64).max)
    np.minimum.at(found, group, values)
    found[found == np.iinfo(np.int64).max] = 0
    return found
