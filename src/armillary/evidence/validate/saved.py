"""Validations as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from armillary.base.files import write_text
from armillary.base.text import json_text
from armillary.evidence.validate.accuracy import accuracy, by_group, is_refused, reasons, verdict
from armillary.evidence.validate.run import Skipped
from armillary.evidence.validate.table import Row, Table


def write_json(tables: Sequence[Table], path: Path, skipped: Iterable[Skipped] = ()) -> None:
    """Write tables with all their rows; errors are ratios, what is nan is null.

    Raises:
        InputError: the file cannot be written.
    """
    facts = {
        "tables": [_whole(table) for table in tables],
        "skipped": [{"name": one.suite.name, "reason": one.reason} for one in skipped],
    }
    write_text(path, json_text(facts, indent=1, allow_nan=False) + "\n")


def _whole(table: Table) -> dict[str, Any]:
    rows = [row_facts(row) for row in table.rows]
    return table_facts(table) | {"rows": rows, "parts": [_whole(part) for part in table.parts]}


def table_facts(table: Table) -> dict[str, Any]:
    """Return all of a table but its rows and parts as JSON values."""
    return {
        "name": table.name,
        "title": table.title,
        "unit": table.unit,
        "source": table.source,
        "relation": table.relation,
        "n": len(table.rows),
        "errors": _plain(asdict(accuracy(table.rows))),
        "bar": table.bar and asdict(table.bar),
        "verdict": verdict(table),
        "groups": {name: _plain(asdict(found)) for name, found in by_group(table.rows).items()},
        "refused": dict(reasons(table.rows)),
        "notes": list(table.notes),
    }


def row_facts(row: Row) -> dict[str, Any]:
    """Return a row as JSON values."""
    refused = is_refused(row)
    return _plain(
        {
            "label": row.label,
            "group": row.group,
            "measured": row.measured,
            # A refused row has no prediction; NaN is null in JSON.
            "predicted": math.nan if refused else row.predicted,
            "low": row.low,
            "high": row.high,
            "error": math.nan if refused else row.error,
            "reason": row.reason,
            "seen": row.seen,
        }
    )


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in facts.items()}
