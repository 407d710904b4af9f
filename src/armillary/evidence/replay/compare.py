"""Measured against simulated, or against what the trace itself recorded."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.timeline import Timeline
from armillary.evidence.replay.plan import Instance
from armillary.evidence.replay.run import Replay, transfer_time
from armillary.report.communication import bandwidths

Source = Literal["simulated", "recorded"]


@dataclass(frozen=True)
class NodeRow:
    """All collectives, or messages, of one kind, size and number of members; times are means in ns."""

    kind: str
    size: int
    """``comm_size`` in bytes."""
    members: int
    calls: int
    measured_ns: float
    bus_bandwidth: float | None
    """Bytes per ns, as NCCL's tests define it; None where there is no agreed factor."""
    expected_ns: float | None
    """Time by `Comparison.source`; None where it has none."""

    @property
    def error(self) -> float | None:
        """Expected over measured, less 1."""
        return _error(self.expected_ns, self.measured_ns)


@dataclass(frozen=True)
class Comparison:
    """A replay beside what was expected of it."""

    source: Source
    measured_ns: float
    """Median of the iterations."""
    shortest_ns: float
    longest_ns: float
    expected_ns: float | None
    rows: list[NodeRow]

    @property
    def error(self) -> float | None:
        """Expected over measured, less 1."""
        return _error(self.expected_ns, self.measured_ns)


def compare(measured: Replay, simulated: Timeline | None = None) -> Comparison:
    """Compare a replay with a simulation of the same trace; without one, with the times in the trace.

    The time of a collective is that from its last member's start to its last member's end, on all sides;
    where only durations are recorded, the shortest one of its members.
    """
    # Of the trace itself where nothing was simulated.
    expected = _recorded(measured) if simulated is None else _simulated(measured, simulated)
    total = (
        _recorded_total(measured) if simulated is None else float(simulated.total_ticks) * _tick(simulated)
    )
    # Alike: kind, size and number of members; times are averaged over their calls.
    found: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for i, instance in enumerate(measured.instances):
        found[_kind(instance), instance.operation.size, len(instance.operation.members)].append(i)
    rows = []
    for (kind, size, members), which in found.items():
        time = float(measured.transfer_ns[which].mean())
        # NaN: a collective whose nodes have no recorded time.
        known = expected[which][~np.isnan(expected[which])]
        _, bus = bandwidths(kind, members, size, time)
        rows.append(
            NodeRow(
                kind, size, members, len(which), time, size / time if kind == "message" and time else bus,
                float(known.mean()) if len(known) else None,
            )
        )  # fmt: skip
    # What takes most time in all comes first.
    rows.sort(key=lambda row: (-row.calls * row.measured_ns, row.kind, row.size))
    totals = measured.totals
    return Comparison(
        # Named in tables and JSON: "simulated", or "recorded".
        "recorded" if simulated is None else "simulated",
        float(measured.total_ns),
        float(totals.min()),
        float(totals.max()),
        total,
        rows,
    )


def _kind(instance: Instance) -> str:
    return "message" if instance.operation.key[0] == "message" else instance.operation.kind


def _tick(timeline: Timeline) -> float:
    return float(timeline.info.get("tick_ns", 1))


def _simulated(measured: Replay, timeline: Timeline) -> NDArray[np.float64]:
    """Return the simulated time of every instance in ns."""
    # One array per class; ranks of a class share it.
    spans = [timeline.spans(cls) for cls in timeline.rank_class.tolist()]
    start, end = [begun for begun, _ in spans], [ended for _, ended in spans]
    times = [float(transfer_time(instance, start, end)) for instance in measured.instances]
    return np.array(times) * _tick(timeline)


def _recorded(measured: Replay) -> NDArray[np.float64]:
    """Return the recorded time of every instance in ns, NaN where there is none."""
    durations = []
    for graph in measured.trace.graphs:
        # Newer traces have ns; µs are the fallback.
        micros = graph.duration_micros.astype(np.int64) * 1000
        durations.append(np.where(graph.has("duration_ns"), graph.ints("duration_ns"), micros))
    times = []
    for instance in measured.instances:
        spans = [int(durations[int(measured.trace.rank_graph[rank])][at]) for rank, at in instance.nodes]
        # The shortest duration of all members is the nearest to the transfer: others also waited. 0 is no
        # record.
        times.append(min((span for span in spans if span), default=np.nan))
    return np.array(times, np.float64)


def _recorded_total(measured: Replay) -> float | None:
    """Return the longest span of a rank from its first start to its last end, None without start times."""
    longest = 0
    for graph in measured.trace.graphs:
        if graph.n_nodes and graph.start_micros.any():
            end = graph.start_micros + graph.duration_micros
            # Nodes without a start were not recorded.
            timed = graph.start_micros > 0
            longest = max(longest, int(end[timed].max()) - int(graph.start_micros[timed].min()))
    # µs to ns; None without any start.
    return longest * 1000.0 if longest else None


def _error(expected: float | None, measured: float) -> float | None:
    return expected / measured - 1 if expected is not None and measured else None
