"""The blocks of which pages consist: dictionaries with a kind, which ``web/src/report`` draws.

Times are in s, sizes in bytes, rates in bytes a second and shares from 0 to 1; scripts choose the units that are shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Block = dict[str, Any]
NUMBERS = ("time", "size", "rate", "share", "count")
"""What a column of numbers holds; other columns hold "text"."""


def headline(value: str, lines: Iterable[str], *, alarm: str = "", notes: Iterable[str] = ()) -> Block:
    """Return the answer in large letters, lines below it, what must be read first, and what it assumes."""
    return {
        "kind": "headline", "value": value, "lines": [*filter(None, lines)], "alarm": alarm, "notes": [*notes],
    }  # fmt: skip


def bars(title: str, rows: Sequence[tuple[str, Mapping[str, float]]], titles: Mapping[str, str]) -> Block:
    """Return stacked bars of times in s: a name and the parts of each row, and the titles of parts."""
    shown = [part for part in titles if any(parts.get(part) for _, parts in rows)]
    return {
        "kind": "bars",
        "title": title,
        "parts": [{"key": part, "title": titles[part]} for part in shown],
        "rows": [{"name": name, "values": [parts.get(part, 0.0) for part in shown]} for name, parts in rows],
    }


def sentences(title: str, items: Iterable[tuple[str, str]], note: str = "") -> Block:
    """Return numbered sentences, each with what would help, or an empty text."""
    return {"kind": "sentences", "title": title, "note": note, "items": [list(each) for each in items]}


def table(
    title: str, columns: Sequence[tuple[str, str]], rows: Iterable[Sequence[Any]], note: str = ""
) -> Block:
    """Return a table: (title, "text" or one of `NUMBERS`) of each column, and rows; None is unknown."""
    return {
        "kind": "table",
        "title": title,
        "note": note,
        "columns": [{"title": name, "holds": holds} for name, holds in columns],
        "rows": [[_value(value) for value in row] for row in rows],
    }


def changes(
    title: str, before: float, rows: Iterable[tuple[str, float | None, str, bool]], note: str = ""
) -> Block:
    """Return changes that were simulated.

    Each is what was changed, the time in s after it (None: impossible), a remark, and whether it is allowed: a plan
    that does not fit into memory has a time but cannot be run.
    """
    return {
        "kind": "changes", "title": title, "before": before, "note": note,
        "rows": [[what, _value(after), *rest] for what, after, *rest in rows],
    }  # fmt: skip


def lines(title: str, series: Sequence[tuple[str, Sequence[tuple[float, float]]]], x: str, y: str) -> Block:
    """Return curves of (x, y); `x` and `y` are "TITLE|HOLDS", the latter one of `NUMBERS`."""
    return {
        "kind": "lines", "title": title, "x": x, "y": y,
        "series": [{"name": name, "points": [list(point) for point in points]} for name, points in series],
    }  # fmt: skip


def text(title: str, paragraphs: Iterable[str]) -> Block:
    """Return paragraphs under a title."""
    return {"kind": "text", "title": title, "paragraphs": [*paragraphs]}


def _value(value: Any) -> Any:
    # NumPy's numbers are none of JSON's.
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
