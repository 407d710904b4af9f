"""What a simulated step used: operations, bytes moved, and how long NPUs computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.base import portable
from armillary.engine.common.timeline import KINDS, GraphTable, Timeline
from armillary.platform.kernels import PRECISIONS
from armillary.report.plain import class_sizes
from armillary.report.time_breakdown import measure, union

_COMPUTE, _SEND = KINDS.index("compute"), KINDS.index("send")


@dataclass(frozen=True)
class Use:
    """What one step used, of the whole machine.

    Attributes:
        seconds: The step.
        npus: Of the machine, with those that did nothing.
        busy: NPU-seconds in which a kernel ran.
        flops: Precision (`PRECISIONS`) -> operations; of kernels that name none as bf16.
        memory: Bytes of local memory that kernels read and wrote.
        moved: Bytes that NPUs sent in each dimension. A message that crosses several counts in each; what the
            timeline puts into no dimension (rings over sub-groups) counts in the outermost.
    """

    seconds: float
    npus: int
    busy: float
    flops: Mapping[str, float]
    memory: float
    moved: tuple[float, ...]

    @property
    def idle(self) -> float:
        """NPU-seconds in which no kernel ran."""
        return max(self.npus * self.seconds - self.busy, 0.0)


def use_of(timeline: Timeline) -> Use:
    """Return what the run of a timeline used; the effort grows with its classes, not with its ranks."""
    sizes = class_sizes(timeline)
    tick = float(timeline.info.get("tick_ns", 1)) / 1e9
    dimensions = [int(one["size"]) for one in timeline.info.get("dimensions", [])]
    busy, memory, flops = 0.0, 0.0, np.zeros(len(PRECISIONS))
    # [classes, dimensions and one more, bytes sent]: the last column is traffic of no dimension.
    sent = timeline.traffic()[:, :, 0]
    # What the timeline puts into no dimension counts in the outermost, see `Use.moved`.
    sent[:, len(dimensions) - 1] += sent[:, -1] if dimensions else 0
    moved: NDArray[np.float64] = portable.dot(
        sizes.astype(np.float64), sent[:, : len(dimensions)].astype(np.float64)
    )
    # One class stands for all of its ranks: multiplied by its size.
    for cls, ranks in enumerate(sizes.tolist()):
        table, (start, end) = timeline.table(cls), timeline.spans(cls)
        # -1: a node that never ran.
        ran = start >= 0
        kernels = np.flatnonzero((table.kind == _COMPUTE) & ran)
        busy += ranks * _busy(table.stream[kernels], start[kernels], end[kernels])
        # float64: bytes of a large trace times ranks leave int64.
        memory += ranks * float(table.moved[kernels].sum(dtype=np.float64))
        # -1: the kernel names no precision.
        precision = np.where(table.precision < 0, PRECISIONS.index("bf16"), table.precision)
        flops += ranks * np.bincount(precision[ran], table.flops[ran], len(PRECISIONS))
        _messages(table, ran, int(timeline.representative[cls]), dimensions, moved, ranks)
    return Use(
        seconds=timeline.total_ticks * tick,
        # More than ranks, where some NPUs have none.
        npus=int(timeline.info.get("npus", timeline.n_ranks)),
        busy=busy * tick,
        # Precisions without operations are left out, so that their energy need not be known.
        flops={name: float(done) for name, done in zip(PRECISIONS, flops, strict=True) if done},
        memory=memory,
        moved=tuple(moved.tolist()),
    )


def per_step(use: Use, steps: int) -> Use:
    """Return what each of several equal steps used."""
    return Use(
        use.seconds / steps,
        use.npus,
        use.busy / steps,
        {name: done / steps for name, done in use.flops.items()},
        use.memory / steps,
        tuple(each / steps for each in use.moved),
    )


def _busy(streams: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    """Return the ticks in which a kernel ran; those of one stream never overlap."""
    # Several streams may overlap: measure the union of their intervals.
    if len(streams) and streams.min() != streams.max():
        return measure(*union(start, end))
    return int((end - start).sum())


def _messages(
    table: GraphTable,
    ran: NDArray[np.bool_],
    rank: int,
    dimensions: list[int],
    moved: NDArray[np.float64],
    ranks: int,
) -> None:
    """Add what the sends of one class move to `moved`, for all its `ranks`."""
    sends = np.flatnonzero((table.kind == _SEND) & ran)
    if not len(sends) or not dimensions:
        return
    # By peer: what a message crosses depends on both ends only.
    for peer in np.unique(table.peer[sends]).tolist():
        size = ranks * float(table.size[sends[table.peer[sends] == peer]].sum(dtype=np.float64))
        # Unknown peers (recorded traces) count in the outermost dimension.
        crossed = crossing(rank, peer, dimensions) if peer >= 0 else [len(dimensions) - 1]
        moved[crossed] += size


def crossing(rank: int, peer: int, dimensions: list[int]) -> list[int]:
    """Return the dimensions in which two ranks differ, innermost first."""
    found, stride = [], 1
    for d, size in enumerate(dimensions):
        # Mixed-radix digits of both ranks.
        if rank // stride % size != peer // stride % size:
            found.append(d)
        stride *= size
    return found
