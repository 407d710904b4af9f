"""Lower bounds that no run of this workload on this machine can beat, and what sets them.

Nothing here depends on algorithms, chunks, the network model or the course of a run: collectives count with what they
need on any machine (`armillary.collective.demand`), computations with their own times.

The bound is the largest of the traffic through ports, the compute of the busiest stream, FLOPs over peak, and the
critical path with nothing shared. `collective.demand` gives the traffic of an operation across a cut of its
members: every choice of dimensions makes a cut into blocks, and rings and lines are cut into halves.
`engine.common.demands` does so for all collectives of a program. This module adds up the demands: per rank
what every NPU needs itself, per group, and over the machine what holds only on average (2 (n − 1) / n of an
all-reduce). So the bound of one network model holds for all, which is tested on random machines and programs.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import fsum

import numpy as np
from numpy.typing import NDArray

from armillary.base.jit import Mode, load
from armillary.base.portable import dot
from armillary.base.text import on_one_line
from armillary.base.units import format_time
from armillary.collective.demand import SHORT
from armillary.engine.common.timeline import KINDS, GraphTable, Timeline
from armillary.report.communication import port_bandwidths
from armillary.report.plain import nanoseconds
from armillary.trace.columns import distinct_columns

Ticks = NDArray[np.int64]
SAFE = 1 - 1e-6
"""Network models count ps per byte in fractions of 20 bits, and sums here are floats."""
INTERPRETED_STEPS = 200_000
"""Nodes and dependencies up to which the path kernel is interpreted; loading the compiled one takes longer."""

NAME = 24
"""Letters of the name of a dimension that are shown."""

_COMPUTE, _CPU, _MEMORY = (KINDS.index(kind) for kind in ("compute", "cpu", "memory"))
_NETWORK = [KINDS.index(kind) for kind in ("collective", "send", "recv")]


@dataclass(frozen=True)
class Part:
    """One lower bound: `ticks`, of which `before` and `after` pass without use of its resource."""

    kind: str
    """"port", "compute", "flops" or "path"."""
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
    """The lower bounds of a run, the largest first, and how close the run came to them."""

    parts: tuple[Part, ...]
    total: int
    """Ticks the run took."""

    def __repr__(self) -> str:
        """Return what bounds the run, and how close it came."""
        share = "" if self.efficiency is None else f", efficiency {100 * self.efficiency:.1f} %"
        return f"Bound({self.what or 'none'}: {self.ticks:,} of {self.total:,} ticks{share})"

    @property
    def ticks(self) -> int:
        """The largest of the bounds."""
        return self.parts[0].ticks if self.parts else 0

    @property
    def what(self) -> str:
        """What sets the bound, in words; empty without parts."""
        return self.parts[0].name if self.parts else ""

    @property
    def efficiency(self) -> float | None:
        """Bound ÷ total; None if the run took no time, or took less than its bound (profile astra-sim)."""
        return self.ticks / self.total if self.total and self.ticks <= self.total else None


def bound(timeline: Timeline, free: AbstractSet[str] = frozenset()) -> Bound:
    """Return the lower bounds of a run, the largest first.

    ``compute`` is the time of the compute nodes of the fullest stream of a rank, ``flops`` the part of it
    that remains if every node ran at the peak, ``port`` the bytes that collectives must move between NPUs that differ
    in some dimensions ÷ the bandwidth of what joins them: through one NPU, among the members of a group, or on average
    over the machine; all three with what must come before and after. ``path`` is the
    longest path through the graph of a rank when nothing is ever busy. Each is the largest over all ranks.

    Args:
        timeline: The run.
        free: Kinds of work that shall take no time, to see what would bound then: "compute", "network",
            "memory", or "dimension 0", … with its port and the collectives that use it.
    """
    if not len(timeline.finish):
        return Bound((), timeline.total_ticks)
    least = np.concatenate([least_ticks(timeline, cls, free) for cls in range(len(timeline.finish))])
    # A collective that uses a free dimension may take no time at all, whatever else it uses.
    least[_unknown(timeline, free)] = 0
    head, tail = heads_and_tails(timeline, least)
    parts = []
    if "network" not in free:
        parts += _ports(timeline, free, head, tail)
    if "compute" not in free:
        parts += _compute(timeline, least, head, tail)
    parts.append(_path(timeline, "path", "critical path", head + least))
    ranked = sorted((part for part in parts if part.ticks > 0), key=lambda part: -part.ticks)
    return Bound(tuple(ranked), timeline.total_ticks)


def bound_line(timeline: Timeline, found: Bound) -> str:
    """Return "Lower bound 3.99 ms (port of dimension wafer): efficiency 93 %", or "" without a bound."""
    if not found.ticks:
        return ""
    text = f"Lower bound {format_time(nanoseconds(timeline, found.ticks))} ({found.what})"
    if found.efficiency is not None:
        return f"{text}: efficiency {100 * found.efficiency:.1f} %"
    if timeline.info.get("profile") == "astra-sim":
        reason = "messages in flight together each get a whole link"
        return f"{text}: the astra-sim profile beats it, since its {reason}"
    return f"{text}: the run took less, so the model or the bound is wrong"


def least_ticks(timeline: Timeline, cls: int, free: AbstractSet[str] = frozenset()) -> Ticks:
    """Return the least ticks of the nodes of a class; compute without a least time counts with the time it took."""
    part = slice(int(timeline.node_ptr[cls]), int(timeline.node_ptr[cls + 1]))
    kind, (start, end) = timeline.table(cls).kind, timeline.spans(cls)
    least = timeline.node_least[part]
    # 0 stands for a compute node whose least time is the one it took.
    least = np.where((least == 0) & ((kind == _COMPUTE) | (kind == _CPU)), end - start, least)
    # Nodes that never ran bound nothing.
    zero = start < 0
    for name, kinds in {"compute": [_COMPUTE, _CPU], "network": _NETWORK, "memory": [_MEMORY]}.items():
        if name in free:
            zero |= np.isin(kind, kinds)
    return np.where(zero, 0, least)


def heads_and_tails(timeline: Timeline, least: Ticks, mode: Mode | None = None) -> tuple[Ticks, Ticks]:
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
        # Nodes of a stream run one after the other: their times add up, and so do the least times
        # before the first and after the last of them.
        streams, of = np.unique(table.stream[nodes], return_inverse=True)
        at = int(timeline.node_ptr[cls]) + nodes
        own = least[at]
        before, after = (_least_of(of, len(streams), ticks[at]) for ticks in (head, tail))
        work = {"compute": _sum_of(of, len(streams), own)}
        peak = timeline.peaks(cls)[nodes] * tick_ns
        # Without a peak for every node their FLOPs have no least time.
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


def _unknown(timeline: Timeline, free: AbstractSet[str]) -> NDArray[np.bool_]:
    """Return which nodes are collectives over a dimension that is free, bool (nodes,)."""
    gone = {int(what.split()[1]) for what in free if what.startswith("dimension ")}
    cuts = [not gone.isdisjoint(dims) for dims, _ in timeline.cuts]
    if not gone or not len(timeline.call_group):
        return np.zeros(len(timeline.node_start), np.bool_)
    uses = np.asarray((timeline.call_bytes[:, cuts] > 0).any(axis=(1, 2)))
    found: NDArray[np.bool_] = (timeline.node_call >= 0) & uses[timeline.node_call]
    return found


def _ports(timeline: Timeline, free: AbstractSet[str], head: Ticks, tail: Ticks) -> list[Part]:
    """Return for each cut the largest bound from the bytes that must cross it."""
    cuts = timeline.cuts
    rates = port_bandwidths(timeline)
    tick = float(timeline.info.get("tick_ns", 1))
    nodes = np.flatnonzero((timeline.node_call >= 0) & (timeline.node_start >= 0))
    if not len(nodes) or not cuts:
        return []
    classes, groups = len(timeline.finish), int(timeline.call_group.max(initial=-1)) + 1
    cls = np.searchsorted(timeline.node_ptr, nodes, side="right") - 1
    call = timeline.node_call[nodes]
    # How often a rank of each class makes each call.
    times = np.zeros((classes, len(timeline.call_group)))
    np.add.at(times, (cls, call), 1)
    # (classes x calls) the number of the class and the call's group.
    of_group = (np.arange(classes)[:, None] * groups + timeline.call_group).ravel()
    ranks = np.bincount(timeline.rank_class, minlength=classes).astype(np.float64)
    parts = []
    for c, (dims, latency_ns) in enumerate(cuts):
        latency = latency_ns / tick
        if any(f"dimension {d}" in free for d in dims):
            continue
        # Sending and receiving are bounded apart; dimensions of a cut work side by side.
        rate = np.array([fsum(rates[d][way] for d in dims) for way in range(2)])
        used = np.asarray((timeline.call_bytes[:, c] > 0).any(axis=1))
        if not used.any():
            continue
        edges = _Edges(
            nodes[used[call]], cls[used[call]], timeline.call_group[call[used[call]]], head, tail, latency
        )
        found = []
        if rate.all():
            # Bytes that every NPU must move itself, for the busiest class.
            each = (dot(times, timeline.call_each[:, c]) / rate).max(axis=1)
            found.append(edges.largest(each / tick, "class"))
            # Bytes of all NPUs over the ports of all: true on average only, hence for the whole machine.
            mean = (dot(dot(ranks, times), timeline.call_bytes[:, c]) / ranks.sum() / rate).max()
            found.append(edges.largest(np.full(classes, mean / tick), "all"))
        for way in range(4):
            # Times that a group needs for the calls of a class, the largest of its classes.
            each_call = (times * timeline.call_ns[:, c, way]).ravel()
            most = np.bincount(of_group, each_call, classes * groups).reshape(classes, groups)
            found.append(edges.largest(most.max(axis=0) / tick, "group"))
        ticks, before, after, owner = max(found)
        only = dims[0] if len(dims) == 1 else -1
        parts.append(Part("port", _name(timeline, dims), ticks, owner, before, after, only))
    return parts


class _Edges:
    """Least ticks before and after nodes: of a class, of a group, or of all."""

    def __init__(
        self, nodes: Ticks, cls: Ticks, group: Ticks, head: Ticks, tail: Ticks, latency: float
    ) -> None:
        self.latency = latency
        self.cls, self.group, self.head, self.tail = cls, group, head[nodes], tail[nodes]

    def largest(self, ticks: NDArray[np.float64], of: str) -> tuple[int, int, int, int]:
        """Return the largest bound, the ticks before and after it, and a class to which it applies."""
        owner = {"class": self.cls, "group": self.group, "all": np.zeros(len(self.cls), np.int64)}[of]
        ticks = ticks[:1] if of == "all" else ticks
        before, after = (_least_of(owner, len(ticks), each) for each in (self.head, self.tail))
        # The last byte has arrived a latency after it left.
        ticks = ticks + np.where((ticks > 0) & (ticks < SHORT * self.latency), self.latency, 0)
        whole = np.where(ticks > 0, (ticks * SAFE).astype(np.int64) + before + after, 0)
        best = int(np.argmax(whole))
        cls = int(self.cls[np.argmax(owner == best)])
        return int(whole[best]), int(before[best]), int(after[best]), cls


def _name(timeline: Timeline, dims: list[int]) -> str:
    """Return "port of dimension wafer", or "ports of dimensions node and rail"."""
    names = [dimension_name(timeline, d) for d in dims]
    if len(names) == 1:
        return f"port of dimension {names[0]}"
    return f"ports of dimensions {', '.join(names[:-1])} and {names[-1]}"


def dimension_name(timeline: Timeline, d: int) -> str:
    """Return the name of dimension `d` on one line, cut if it is long, or its number."""
    described = timeline.info.get("dimensions", [])
    name = str(described[d].get("name", d)) if 0 <= d < len(described) else str(d)
    name = on_one_line(name)
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


def _sum_of(group: NDArray[np.integer], groups: int, values: Ticks) -> Ticks:
    total = np.zeros(groups, np.int64)
    np.add.at(total, group, values)
    return total


def _least_of(group: NDArray[np.integer], groups: int, values: Ticks) -> Ticks:
    """Return the least of the values of each group, 0 for an empty one."""
    found = np.full(groups, np.iinfo(np.int64).max)
    np.minimum.at(found, group, values)
    # Groups without a value would otherwise add the sentinel.
    found[found == np.iinfo(np.int64).max] = 0
    return found


def quick_bound(timeline: Timeline) -> int:
    """Return ticks that no run can beat: the kernels of the fullest stream, or what collectives move through ports.

    It is never more than ``bound(timeline).ticks``, which knows paths through the graph besides.
    """
    most, classes = 0.0, len(timeline.finish)
    times = np.zeros((classes, len(timeline.call_group)))
    for cls in range(classes):
        table, part = timeline.table(cls), slice(int(timeline.node_ptr[cls]), int(timeline.node_ptr[cls + 1]))
        start, end = timeline.spans(cls)
        ran = start >= 0
        nodes = np.flatnonzero((table.kind == _COMPUTE) & ran)
        if len(nodes):
            # No paths: heads and tails are left out, which only lowers the bound. 0 is as in `least_ticks`.
            least = timeline.node_least[part][nodes]
            least = np.where(least == 0, (end - start)[nodes], least)
            stream = table.stream[nodes]
            # Mostly all run on one.
            alone = stream.min() == stream.max()
            which = np.zeros(len(stream), np.int64) if alone else distinct_columns(stream[None])[1]
            most = max(most, float(np.bincount(which, weights=least).max()))
        call = timeline.node_call[part]
        times[cls] = np.bincount(call[(call >= 0) & ran], minlength=times.shape[1])
    ranks = np.bincount(timeline.rank_class, minlength=classes) / max(timeline.n_ranks, 1)
    tick, rates = float(timeline.info.get("tick_ns", 1)), port_bandwidths(timeline)
    for c, (dims, _) in enumerate(timeline.cuts):
        rate = np.array([fsum(rates[d][way] for d in dims) for way in range(2)])
        if rate.all():
            moved = (
                dot(times, timeline.call_each[:, c]),
                dot(dot(ranks, times), timeline.call_bytes[:, c]),
            )
            most = max(most, *(float((each / rate / tick).max(initial=0)) * SAFE for each in moved))
    # Rounding of float sums must not lift the result above `bound`.
    return int(most * (1 - 1e-9))
