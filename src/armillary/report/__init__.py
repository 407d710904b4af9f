"""Reports on a timeline: breakdown, bound, reasons, critical path, summary, JSON, Perfetto and a picture.

Names are imported on first use, so that `import armillary.report` is cheap. No module may have the name of a
function here: importing it would replace the function by the module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.report.communication import CollectiveRow, DimensionRow, collectives, dimensions
    from armillary.report.critical import Step, contributors, critical_path, shares
    from armillary.report.flop_rate import Flops, flops
    from armillary.report.job_picture import jobs_picture
    from armillary.report.job_tables import jobs_json, print_jobs, write_jobs_json
    from armillary.report.json_report import to_json, write_json
    from armillary.report.link_picture import links_picture, write_links
    from armillary.report.links import KindRow, LinkRow, busiest, kind_rows, link_rows, write_links_csv
    from armillary.report.lower_bound import Bound, Part, bound, bound_line
    from armillary.report.perfetto import write_jobs_perfetto, write_perfetto
    from armillary.report.picture import breakdown_picture
    from armillary.report.reasons import Reason, explain
    from armillary.report.serving import Bounds, ServingTimes, serving_times
    from armillary.report.summary import headline, print_summary
    from armillary.report.table import Parts, ResultTable
    from armillary.report.time_breakdown import Breakdown, astra_exposed, breakdown, waited_for

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
    "Parts",
    "Reason",
    "ResultTable",
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
__getattr__ = lazy(
    __name__,
    {
        ".communication": ("CollectiveRow", "DimensionRow", "collectives", "dimensions"),
        ".critical": ("Step", "contributors", "critical_path", "shares"),
        ".flop_rate": ("Flops", "flops"),
        ".job_picture": ("jobs_picture",),
        ".job_tables": ("jobs_json", "print_jobs", "write_jobs_json"),
        ".json_report": ("to_json", "write_json"),
        ".link_picture": ("links_picture", "write_links"),
        ".links": ("KindRow", "LinkRow", "busiest", "kind_rows", "link_rows", "write_links_csv"),
        ".lower_bound": ("Bound", "Part", "bound", "bound_line"),
        ".perfetto": ("write_jobs_perfetto", "write_perfetto"),
        ".picture": ("breakdown_picture",),
        ".reasons": ("Reason", "explain"),
        ".serving": ("Bounds", "ServingTimes", "serving_times"),
        ".summary": ("headline", "print_summary"),
        ".table": ("Parts", "ResultTable"),
        ".time_breakdown": ("Breakdown", "astra_exposed", "breakdown", "waited_for"),
    },
)
