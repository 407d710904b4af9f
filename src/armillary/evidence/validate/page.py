"""Validations as one HTML page that needs nothing else: charts, and tables to filter and sort."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from armillary.base.files import write_text
from armillary.base.page import check_page, drawn_page
from armillary.evidence.validate.accuracy import NEAR, is_refused
from armillary.evidence.validate.run import Skipped
from armillary.evidence.validate.saved import row_facts, table_facts
from armillary.evidence.validate.show import bar_texts
from armillary.evidence.validate.table import Row, Table


def write_html(tables: Sequence[Table], path: Path, skipped: Iterable[Skipped] = ()) -> None:
    """Write the page, which a browser opens without a network.

    Raises:
        InputError: the suffix is not .html, or the file cannot be written.
    """
    check_page(path)
    facts = {
        "near": NEAR,
        "tables": [_facts(table) for table in tables],
        "skipped": [f"{one.suite.name}: {one.reason}" for one in skipped],
    }
    write_text(path, *drawn_page("validation", "Predicted and measured", facts))


def _facts(table: Table) -> dict[str, Any]:
    """Return a table with its rows by columns, the worst first and what is refused last."""
    # The worst first, as the page opens on them.
    rows = sorted(table.rows, key=lambda row: math.inf if is_refused(row) else -abs(row.error))
    return {
        **table_facts(table),
        "bars": bar_texts(table.bar),
        "parts": [table_facts(part) | {"bars": bar_texts(part.bar)} for part in table.parts],
        "rows": _columns(rows),
    }


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    facts = [row_facts(row) for row in rows]
    return {
        # Six digits are enough for people and make the page small.
        name: [float(f"{v:.6g}") if isinstance(v, float) else v for v in (row[name] for row in facts)]
        for name in ("label", "group", "measured", "predicted", "low", "high", "error", "reason")
    }
