"""Rows as a CSV table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from armillary.explore.sweep.point import Row
from armillary.explore.views.columns import columns_of


def csv_text(rows: Sequence[Row], sweep: Any) -> str:
    """Return number, values, status, reason and measures (base units) of every row; see `columns_of`."""
    columns = columns_of(rows, sweep)
    axes = [axis.name for axis in columns.axes]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["number", *axes, "status", "reason", *columns.measures, "seconds"])
    for row in columns.rows:
        values = [row.values.get(name) for name in axes]
        found = [row.measures.get(name) for name in columns.measures]
        writer.writerow([row.number, *values, row.status, row.reason, *found, row.seconds])
    return text.getvalue()
