"""The report as JSON: the same facts as the summary, for programs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from armillary.base.files import write_text
from armillary.base.text import json_text
from armillary.engine.common.timeline import Timeline
from armillary.report.communication import CollectiveRow, DimensionRow, collectives, dimensions
from armillary.report.critical import Late, contributors, critical_path, shares
from armillary.report.flop_rate import flops
from armillary.report.links import links_json
from armillary.report.lower_bound import bound
from armillary.report.memory_fit import memory_fit
from armillary.report.plain import class_sizes, nanoseconds, slowest
from armillary.report.serving import serving_json
from armillary.report.summary import terms_json
from armillary.report.time_breakdown import astra_exposed, breakdown, waited_for

SCHEMA = "armillary-report"
VERSION = 1


def to_json(timeline: Timeline) -> dict[str, Any]:
    """Return the report as plain dicts, lists, numbers and strings.

    The last part of a key is the unit of its number: ``_ticks``, ``_ns``, ``_bytes``, ``_bytes_per_ns``,
    ``_ratio``, ``_count``, ``_flops`` or ``_flops_per_s``. ``finish_ticks_by_rank`` holds [tick, ranks] runs
    over ranks 0, 1, ….
    ``collectives``, ``dimensions`` and ``critical_path`` are those of ``slowest_rank``; a bandwidth or
    ratio that is unknown is null.
    """
    cls = slowest(timeline)
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "version": VERSION,
        "profile": timeline.info.get("profile"),
        "network_model": timeline.info.get("network_model"),
        "folded": timeline.info.get("folded"),
        "tick_ns": timeline.info.get("tick_ns", 1),
        "npus_count": timeline.info.get("npus", timeline.n_ranks),
        "ranks_count": timeline.n_ranks,
        "classes_count": len(timeline.finish),
        **_time(timeline, "finish", timeline.total_ticks),
        "memory": memory_fit(timeline),
        "assumptions": list(timeline.info.get("assumptions", ())),
        "bound": _bound(timeline),
        "flops": _flops(timeline),
        "roofline": _roofline(timeline),
        "compute_model": timeline.info.get("compute_model"),
        **_interval(timeline),
        **terms_json(timeline),
        "serving": serving_json(timeline),
        "network_use": links_json(timeline.network) if timeline.network else None,
        "finish_ticks_by_rank": _runs(timeline),
        "classes": _classes(timeline),
        "slowest_rank": None if cls is None else int(timeline.representative[cls]),
        "collectives": [],
        "dimensions": [],
        "critical_path": None,
        "warnings": list(timeline.info.get("warnings", [])),
        **({"captured": captured} if (captured := timeline.info.get("captured")) else {}),
    }
    if cls is not None:
        report["collectives"] = [_collective(timeline, row) for row in collectives(timeline, cls)]
        report["dimensions"] = [_dimension(timeline, row) for row in dimensions(timeline, cls)]
        report["critical_path"] = _path(timeline, cls)
    return report


def write_json(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write the report to `path`, complete or not at all.

    Raises:
        InputError: the file cannot be written.
    """
    write_text(path, json_text(to_json(timeline), indent=1, allow_nan=False) + "\n")


def _time(timeline: Timeline, name: str, ticks: int) -> dict[str, int | float]:
    return {f"{name}_ticks": ticks, f"{name}_ns": nanoseconds(timeline, ticks)}


def _interval(timeline: Timeline) -> dict[str, Any]:
    """Return the 90 % interval of measured steps, if the study gives the uncertainty of predictions."""
    found = timeline.info.get("uncertainty")
    if not found:
        return {}
    step = nanoseconds(timeline, timeline.total_ticks)
    ends = {f"{name}_ns": step * found[f"{name}_ratio"] for name in ("low", "high")}
    return {"interval": {"share_ratio": 0.8, **ends, "of": found["of"]}}


def _bound(timeline: Timeline) -> dict[str, Any] | None:
    found = bound(timeline)
    if not found.parts:
        return None
    return {
        "what": found.what,
        **_time(timeline, "bound", found.ticks),
        "efficiency_ratio": found.efficiency,
        "parts": [
            {
                "kind": part.kind,
                "name": part.name,
                **_time(timeline, "bound", part.ticks),
                **_time(timeline, "before", part.before),
                **_time(timeline, "after", part.after),
                "representative_rank": int(timeline.representative[part.cls]),
                "dimension": part.dimension if part.dimension >= 0 else None,
            }
            for part in found.parts
        ],
    }


def _flops(timeline: Timeline) -> dict[str, Any] | None:
    found = flops(timeline)
    if found is None:
        return None
    return {
        "total_flops": found.total,
        "busiest_rank_flops": found.busiest,
        "total_flops_per_s": found.rate,
        "npu_flops_per_s": found.rate_per_npu,
        "npu_peak_flops_per_s": found.peak,
        "mfu_ratio": found.mfu,
        "hfu_ratio": found.utilisation,
        "above_peak": found.above_peak,
        "precisions": [
            {"precision": name or None, "total_flops": done} for name, done in found.by_precision.items()
        ],
    }


def _roofline(timeline: Timeline) -> dict[str, float] | None:
    used = timeline.info.get("roofline")
    return used and {
        "compute_efficiency_ratio": used["compute_efficiency"],
        "memory_efficiency_ratio": used["memory_efficiency"],
        "kernel_overhead_ns": used["kernel_overhead_ns"],
    }


def _runs(timeline: Timeline) -> list[list[int]]:
    """Return the finish ticks of all ranks, run-length encoded."""
    ticks = timeline.finish_ticks
    if not len(ticks):
        return []
    # Run-length encoding: ranks of a class mostly are neighbours and finish together.
    first = np.concatenate(([0], np.flatnonzero(np.diff(ticks)) + 1))
    counts = np.diff(np.append(first, len(ticks)))
    return [list(run) for run in zip(ticks[first].tolist(), counts.tolist(), strict=True)]


def _classes(timeline: Timeline) -> list[dict[str, Any]]:
    sizes, exposed = class_sizes(timeline), astra_exposed(timeline)
    # One `Late` for all classes: it caches what it finds about each of them.
    rows, late = [], Late(timeline)
    for cls in range(len(timeline.finish)):
        found = breakdown(timeline, cls, late)
        row: dict[str, Any] = {
            "representative_rank": int(timeline.representative[cls]),
            "ranks_count": int(sizes[cls]),
            **_time(timeline, "finish", found.finish),
        }
        for part, ticks in found.parts().items():
            row |= _time(timeline, part, ticks)
        row["waiting_for"] = [
            {"representative_rank": int(timeline.representative[other]), **_time(timeline, "waiting", ticks)}
            for other, ticks in (waited_for(timeline, cls, late) if found.waiting else ())
        ]
        row |= _time(timeline, "communication_hidden", found.communication_hidden)
        row |= _time(timeline, "astra_sim_exposed_communication", int(exposed[cls]))
        rows.append(row)
    return rows


def _collective(timeline: Timeline, row: CollectiveRow) -> dict[str, Any]:
    return {
        "label": row.label,
        "group_count": row.group_size,
        "size_bytes": row.size,
        "calls_count": row.count,
        **_time(timeline, "total", row.time),
        **_time(timeline, "transfer", row.transfer),
        **_time(timeline, "waiting", row.waiting),
        **_time(timeline, "shortest", row.shortest),
        **_time(timeline, "longest", row.longest),
        "algorithm_bandwidth_bytes_per_ns": row.algorithm_bandwidth,
        "bus_bandwidth_bytes_per_ns": row.bus_bandwidth,
    }


def _dimension(timeline: Timeline, row: DimensionRow) -> dict[str, Any]:
    return {
        "dimension": row.index,
        "name": row.name,
        "topology": row.topology,
        "npus_count": row.size,
        "npu_capacity_bytes_per_ns": row.capacity,
        "sent_per_npu_bytes": row.bytes,
        "phases_count": row.phases,
        **_time(timeline, "busy", row.busy),
        "utilisation_while_busy_ratio": row.utilisation_busy,
        "utilisation_of_run_ratio": row.utilisation_run,
    }


def _path(timeline: Timeline, cls: int) -> dict[str, Any]:
    steps = critical_path(timeline, cls)
    result: dict[str, Any] = {"steps_count": len(steps)}
    for kind, ticks in shares(timeline, steps).items():
        result |= _time(timeline, kind, ticks)
    result["contributors"] = [
        {"name": name, "steps_count": count, **_time(timeline, "total", ticks)}
        for name, ticks, count in contributors(timeline, steps, limit=10)
    ]
    return result
