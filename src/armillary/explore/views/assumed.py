"""What the times of a sweep's points assume of kernels, for every table, picture and page of it."""

from __future__ import annotations

from collections.abc import Iterable

from armillary.explore.sweep.point import Row


def assumed_line(rows: Iterable[Row]) -> str:
    """Return "Compute times assumed: roofline at 40 to 60 % of the peak" if no model of a device times the kernels."""
    shares = [row.measures["roofline"] for row in rows if row.status == "ok" and row.measures.get("roofline")]
    if not shares:
        return ""
    low, high = (f"{100 * share:g}" for share in (min(shares), max(shares)))
    reach = low if low == high else f"{low} to {high}"
    return f"Compute times assumed: roofline at {reach} % of the peak"
