"""A replay for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.base.units import format_bandwidth, format_bytes, format_time
from armillary.evidence.replay.compare import Comparison
from armillary.evidence.replay.run import Replay

if TYPE_CHECKING:
    from rich.table import Table


def headline(replay: Replay, comparison: Comparison) -> str:
    """Return the total in one line: measured, expected and the error."""
    text = (
        f"Iteration {format_time(comparison.measured_ns)} measured (median of {len(replay.totals)}, "
        f"{format_time(comparison.shortest_ns)} to {format_time(comparison.longest_ns)}), "
        f"{replay.trace.n_ranks} ranks on {replay.backend}, compute from {replay.compute}"
    )
    if comparison.expected_ns is None:
        return text
    return f"{text}\n{format_time(comparison.expected_ns)} {comparison.source}, error {_percent(comparison.error)}"


def table(comparison: Comparison) -> Table:
    """Return collectives and messages by kind, size and number of ranks."""
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    shown.add_column("operation")
    for name in ("size", "ranks", "calls", "measured", "bus", comparison.source, "error"):
        shown.add_column(name, justify="right")
    for row in comparison.rows:
        shown.add_row(
            row.kind,
            format_bytes(row.size),
            str(row.members),
            str(row.calls),
            format_time(row.measured_ns),
            "" if row.bus_bandwidth is None else format_bandwidth(row.bus_bandwidth),
            "" if row.expected_ns is None else format_time(row.expected_ns),
            _percent(row.error),
        )
    return shown


def as_json(replay: Replay, comparison: Comparison) -> dict[str, Any]:
    """Return everything as plain JSON values; times in ns, bandwidths in bytes per ns (GB/s).

    Nodes are those of the median iteration, from when its first rank began.
    """
    at = replay.median
    begin = int(replay.begin[at].min())
    return {
        "backend": replay.backend,
        "compute": replay.compute,
        "ranks": replay.trace.n_ranks,
        "iterations_ns": replay.totals.tolist(),
        "measured_ns": comparison.measured_ns,
        "source": comparison.source,
        "expected_ns": comparison.expected_ns,
        "error": comparison.error,
        "operations": [{**vars(row), "error": row.error} for row in comparison.rows],
        "nodes": [
            {
                "id": replay.trace.graph(rank).ids.tolist(),
                "start_ns": (replay.start[rank][at] - begin).tolist(),
                "end_ns": (replay.end[rank][at] - begin).tolist(),
            }
            for rank in range(replay.trace.n_ranks)
        ],
    }


def _percent(error: float | None) -> str:
    return "" if error is None else f"{error:+.1%}".replace("%", " %")
