"""Bandwidth of the collectives of a rank, and how busy they keep each network dimension.

Bandwidths are bytes per ns, which is GB/s with GB = 10^9. Bus bandwidth follows the convention of
NCCL's tests: the rate every member's link must carry, comparable across group sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from armillary.engine.common.timeline import KINDS, Timeline
from armillary.platform.network import TOPOLOGIES
from armillary.report.critical import Late
from armillary.report.plain import nanoseconds, slowest
from armillary.report.time_breakdown import Ticks, measure, union

if TYPE_CHECKING:
    from armillary.report.table import ResultTable

_SHARED = frozenset(
    ("all-reduce", "all-gather", "reduce-scatter", "reduce-scatter-block", "all-to-all", "gather", "scatter")
)
"""Operations in which a member keeps its own part to itself."""


@dataclass(frozen=True)
class CollectiveRow:
    """All collectives of one class with the same label and size."""

    label: str
    """Operation with its group, as in `GraphTable.label`."""
    group_size: int | None
    """Members, None where the timeline does not know the size of the group."""
    size: int
    """Bytes of the node: the vector of an all-reduce, the input of a reduce-scatter, the part this rank
    gives to an all-gather, the total of an all-to-all."""
    count: int
    time: int
    """Sum of the times from entering to leaving, in ticks: ``transfer + waiting``."""
    transfer: int
    """Sum of the times from the tick at which the last member had begun to leaving, see `transfers`."""
    shortest: int
    """Of the times from entering to leaving."""
    longest: int
    algorithm_bandwidth: float | None
    """Bytes per ns: data size ÷ mean transfer, where the data size of an all-gather is n times `size`."""
    bus_bandwidth: float | None
    """Bytes per ns: algorithm bandwidth x 2(n-1)/n (all-reduce), 1 (broadcast, reduce), (n-1)/n (others)."""

    @property
    def waiting(self) -> int:
        """Sum of the times from entering until the last member had begun, in ticks."""
        return self.time - self.transfer


@dataclass(frozen=True)
class DimensionRow:
    """What the collectives of one class do to one network dimension."""

    index: int
    """Position of the dimension, -1 for rings over a sub-group or over all NPUs."""
    name: str
    topology: str
    size: int | None
    capacity: float | None
    """Bytes per ns one NPU can send in this dimension, as the engine says or link bandwidth x links."""
    bytes: int
    """Bytes each NPU sends in it."""
    phases: int
    busy: int
    """Ticks in which at least one phase was active."""
    utilisation_busy: float | None
    """bytes ÷ (busy time x capacity); above 1 where chunks do not share links (profile ``astra-sim``)."""
    utilisation_run: float | None
    """bytes ÷ (finish time of the class x capacity)."""


def group_size(timeline: Timeline, label: str) -> int | None:
    """Return the members of the group in a label such as "all-gather@3", None where unknown.

    Sizes come from ``info["groups"]`` (group id -> members); a label without a group means all NPUs.
    """
    _, at, group = label.partition("@")
    if not at:
        return int(timeline.info.get("npus", timeline.n_ranks))
    sizes = timeline.info.get("groups", {})
    # Not all keys as texts: each of many jobs may have groups.
    size = sizes.get(group)
    if (
        size is None
        and group.isascii()
        and group.isdecimal()
        and len(group) < 20
        and str(int(group)) == group
    ):
        size = sizes.get(int(group))
    return None if size is None else int(size)


def bandwidths(
    label: str, members: int | None, size: int, time_ns: float
) -> tuple[float | None, float | None]:
    """Return (algorithm, bus) bandwidth in bytes per ns of a collective that took `time_ns`.

    None stands for what cannot be said: no time passed, the group is unknown, or the operation has no
    agreed factor.
    """
    operation = label.partition("@")[0]
    if not time_ns or (members is None and operation == "all-gather"):
        return None, None
    algorithm = (size * members if members is not None and operation == "all-gather" else size) / time_ns
    factor = None
    if operation in ("broadcast", "reduce"):
        factor = 1.0
    elif members and operation in _SHARED:
        factor = (2 if operation == "all-reduce" else 1) * (members - 1) / members
    return algorithm, None if factor is None else algorithm * factor


def transfers(timeline: Timeline, cls: int, late: Late | None = None) -> Ticks:
    """Return how long each node of class `cls` moves data, int64 (nodes,) ticks: collectives without waiting.

    The transfer of a collective begins when the last of its members has begun it. A rank may have done part of its work
    by then, or all (the root of a broadcast), so a transfer is at least what the collective needs on an idle machine
    (`Timeline.node_least`), and at most the time from entering to leaving, which it is too where it is not known who
    takes part, or where the rank left before the last began.
    """
    start, end = timeline.spans(cls)
    whole = np.where(start >= 0, end - start, 0)
    begun = (late or Late(timeline)).begun(cls)[0]
    least = timeline.node_least[int(timeline.node_ptr[cls]) : int(timeline.node_ptr[cls + 1])]
    waited = (begun > start) & (begun <= end) & (timeline.table(cls).kind == KINDS.index("collective"))
    found: Ticks = np.where(waited, np.maximum(end - begun, np.minimum(least, whole)), whole)
    return found


def collectives(timeline: Timeline, cls: int, late: Late | None = None) -> list[CollectiveRow]:
    """Return the collectives of class `cls` by label and size, the most time first."""
    table = timeline.table(cls)
    start, end = timeline.spans(cls)
    chosen = np.flatnonzero((table.kind == KINDS.index("collective")) & (start >= 0))
    if not len(chosen):
        return []
    labels, label_of = np.unique(table.label[chosen], return_inverse=True)
    sizes, size_of = np.unique(table.size[chosen], return_inverse=True)
    pairs, row_of = np.unique(label_of * len(sizes) + size_of, return_inverse=True)
    time = end[chosen] - start[chosen]
    order = np.argsort(row_of, kind="stable")
    first = np.searchsorted(row_of[order], np.arange(len(pairs)))
    total = np.add.reduceat(time[order], first)
    moving = np.add.reduceat(transfers(timeline, cls, late)[chosen][order], first)
    shortest = np.minimum.reduceat(time[order], first)
    longest = np.maximum.reduceat(time[order], first)
    count = np.diff(np.append(first, len(order)))
    rows = []
    for i, pair in enumerate(pairs.tolist()):
        label, size = str(labels[pair // len(sizes)]), int(sizes[pair % len(sizes)])
        members = group_size(timeline, label)
        mean = nanoseconds(timeline, int(moving[i])) / int(count[i])
        algorithm, bus = bandwidths(label, members, size, mean)
        rows.append(
            CollectiveRow(
                label=label,
                group_size=members,
                size=size,
                count=int(count[i]),
                time=int(total[i]),
                transfer=int(moving[i]),
                shortest=int(shortest[i]),
                longest=int(longest[i]),
                algorithm_bandwidth=algorithm,
                bus_bandwidth=bus,
            )
        )
    return sorted(rows, key=lambda row: (-row.time, row.label, -row.size))


_COLUMNS = (
    "collective", "size", "members", "calls", "transfer", "waiting", "total", "shortest", "longest",
    "algorithm_bandwidth", "bus_bandwidth",
)  # fmt: skip


def collective_rows(timeline: Timeline) -> ResultTable:
    """Return the collectives of the slowest rank as rows: times in s, sizes in bytes, bandwidths in bytes a second."""
    # Late: a summary needs no table of this kind.
    from armillary.report.table import ResultTable

    cls = slowest(timeline)
    second = float(nanoseconds(timeline, 1)) * 1e-9

    def rate(bytes_per_ns: float | None) -> float | None:
        return None if bytes_per_ns is None else bytes_per_ns * 1e9

    rows = [
        (
            row.label, row.size, row.group_size, row.count, row.transfer * second, row.waiting * second,
            row.time * second, row.shortest * second, row.longest * second, rate(row.algorithm_bandwidth),
            rate(row.bus_bandwidth),
        )
        for row in (() if cls is None else collectives(timeline, cls))
    ]  # fmt: skip
    return ResultTable(_COLUMNS, [dict(zip(_COLUMNS, row, strict=True)) for row in rows])


def dimensions(timeline: Timeline, cls: int) -> list[DimensionRow]:
    """Return one row per network dimension, idle ones too, then one for dimension -1 if it was used."""
    rows = timeline.phases(cls)
    phase_dim = timeline.phase_dim[rows]
    described = timeline.info.get("dimensions", [])
    used = set(np.unique(phase_dim).tolist())
    indices = sorted(used | set(range(len(described))), key=lambda index: (index < 0, index))
    finish_ns = nanoseconds(timeline, int(timeline.finish[cls]))
    ports = port_bandwidths(timeline)
    result = []
    for index in indices:
        known = described[index] if 0 <= index < len(described) else {}
        mine = rows[phase_dim == index]
        sent = int(timeline.phase_bytes[mine].sum())
        busy = measure(*union(timeline.phase_start[mine], timeline.phase_end[mine]))
        capacity = ports[index][0] or None if 0 <= index < len(ports) else None
        result.append(
            DimensionRow(
                index=index,
                name=str(known.get("name", "groups" if index < 0 else f"dim {index}")),
                topology=str(known.get("topology", "Ring" if index < 0 else "")),
                size=known.get("size"),
                capacity=capacity,
                bytes=sent,
                phases=len(mine),
                busy=busy,
                utilisation_busy=_ratio(sent, nanoseconds(timeline, busy), capacity),
                utilisation_run=_ratio(sent, finish_ns, capacity),
            )
        )
    return result


def port_bandwidths(timeline: Timeline) -> list[tuple[float, float]]:
    """Return (out of an NPU, into it) per dimension, in bytes per ns; 0 where it is not known."""
    described = timeline.info.get("dimensions", [])
    ports = timeline.info.get("ports")
    if ports:
        return [(float(port["out_bytes_per_ns"]), float(port["into_bytes_per_ns"])) for port in ports]
    return [(_capacity(one) or 0.0,) * 2 for one in described]


def _capacity(dimension: dict[str, object]) -> float | None:
    """Return what an NPU can send in bytes per ns, by all of its links; None where these are not known."""
    link, size = dimension.get("bandwidth_bytes_per_ns"), dimension.get("size")
    if not isinstance(link, int | float):
        return None
    topology = TOPOLOGIES.get(str(dimension.get("topology")))
    return float(link) * topology.links(size) if topology and isinstance(size, int) else None


def _ratio(sent: int, time_ns: float, capacity: float | None) -> float | None:
    return sent / (time_ns * capacity) if capacity and time_ns else None
