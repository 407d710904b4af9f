"""Reports on a timeline: breakdown, bound, reasons, critical path, summary, JSON, Perfetto and a picture.

Names are imported on first use, so that `import armillary.report` is cheap. No module may have the name of a
function here: importing it would replace the function by the module.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.report.communication import CollectiveRow, DimensionRow, collectives, dimensions
    from armillary.report.critical import Step, contributors, critical_path, shares
    from armillary.report.flop_rate import Flops, flops
    from armillary.report.job_picture import jobs_picture
    from armillary.report.job_tables import jobs_json, print_jobs, write_jobs_json
    from armillary.report.json_report import to_json, write_json
    from armillary.report.link_picture import links_picture, write_links
    from armillary.report.links import KindRow, LinkRow, busiest, kind_rows, link_rows, write_links_csv
    from armillary.report.lower_bound import Bound, Part, bound
    from armillary.report.perfetto import write_jobs_perfetto, write_perfetto
    from armillary.report.picture import breakdown_picture
    from armillary.report.reasons import Reason, bound_line, explain
    from armillary.report.serving import Bounds, ServingTimes, serving_times
    from armillary.report.summary import headline, print_summary
    from armillary.report.time_breakdown import Breakdown, astra_exposed, breakdown, waited_for

_MODULE_OF = {
    "Bound": "lower_bound",
    "Bounds": "serving",
    "Breakdown": "time_breakdown",
    "CollectiveRow": "communication",
    "DimensionRow": "communication",
    "Flops": "flop_rate",
    "KindRow": "links",
    "LinkRow": "links",
    "Part": "lower_bound",
    "Reason": "reasons",
    "ServingTimes": "serving",
    "Step": "critical",
    "astra_exposed": "time_breakdown",
    "bound": "lower_bound",
    "bound_line": "reasons",
    "breakdown": "time_breakdown",
    "breakdown_picture": "picture",
    "busiest": "links",
    "collectives": "communication",
    "contributors": "critical",
    "critical_path": "critical",
    "dimensions": "communication",
    "explain": "reasons",
    "flops": "flop_rate",
    "headline": "summary",
    "kind_rows": "links",
    "link_rows": "links",
    "links_picture": "link_picture",
    "jobs_json": "job_tables",
    "jobs_picture": "job_picture",
    "print_jobs": "job_tables",
    "print_summary": "summary",
    "serving_times": "serving",
    "shares": "critical",
    "to_json": "json_report",
    "waited_for": "time_breakdown",
    "write_jobs_json": "job_tables",
    "write_jobs_perfetto": "perfetto",
    "write_json": "json_report",
    "write_links": "link_picture",
    "write_links_csv": "links",
    "write_perfetto": "perfetto",
}

__all__ = [
    "Bound",
    "Bounds",
    "Breakdown",
    "CollectiveRow",
    "DimensionRow",
    "Flops",
    "KindRow",
    "LinkRow",
    "Part",
    "Reason",
    "ServingTimes",
    "Step",
    "astra_exposed",
    "bound",
    "bound_line",
    "breakdown",
    "breakdown_picture",
    "busiest",
    "collectives",
    "contributors",
    "critical_path",
    "dimensions",
    "explain",
    "flops",
    "headline",
    "jobs_json",
    "jobs_picture",
    "kind_rows",
    "link_rows",
    "links_picture",
    "print_jobs",
    "print_summary",
    "serving_times",
    "shares",
    "to_json",
    "waited_for",
    "write_jobs_json",
    "write_jobs_perfetto",
    "write_json",
    "write_links",
    "write_links_csv",
    "write_perfetto",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
