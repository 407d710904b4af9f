"""A sweep as one self-contained HTML page: linked charts that filter by clicking and brushing."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.files import write_text
from armillary.base.page import check_page, drawn_page
from armillary.explore.sweep.measures import MEASURES
from armillary.explore.sweep.point import Row
from armillary.explore.views.assumed import assumed_line
from armillary.explore.views.columns import Columns, columns_of, title_of
from armillary.explore.views.reasons import reason_classes, status_line
from armillary.explore.views.slices import telling_axes

_REASONS = 200
_LADDERS: dict[str, list[tuple[float, str]]] = {
    "s": [(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (86400.0, "days")],
    "byte": [(1.0, "B"), *((2.0 ** (10 * (i + 1)), f"{p}iB") for i, p in enumerate("KMGTPE"))],
    "J": [(1e-6, "µJ"), (1e-3, "mJ"), (1.0, "J"), (3.6e6, "kWh"), (3.6e9, "MWh")],
    "": [(1.0, "")],
}
"""Base unit -> (scale, display unit), ascending; other units take decimal prefixes."""
_LARGE = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"), (1e18, "E"))


def write_html(rows: Sequence[Row], sweep: Any, path: str | os.PathLike[str]) -> None:
    """Write a page with all points, which a browser opens without a network.

    Args:
        rows: In any order.
        sweep: See `columns_of`.
        path: An .html file, written complete or not at all.

    Raises:
        InputError: the suffix is another, or the file cannot be written.
    """
    check_page(path)
    data = page_data(columns_of(rows, sweep))
    write_text(path, *drawn_page("sweep", data["title"], data))


def page_data(columns: Columns) -> dict[str, Any]:
    """Return the data of the page as JSON values; columns of rows are little-endian arrays in base64."""
    reasons = reason_classes(columns.rows)
    # -1 for ok, the number after all classes for rows without any.
    why = np.where(columns.ok, -1, len(reasons))
    for i, reason in enumerate(reasons):
        why[list(reason.rows)] = i
    # The page needs some pair even where fewer than two axes vary.
    pair = telling_axes(columns) or tuple((columns.varied * 2)[:2]) or (0, 0)
    return {
        "title": Path(columns.title).name or "Sweep",
        "count": len(columns.rows),
        "status": ". ".join(filter(None, (status_line(columns.rows), assumed_line(columns.rows)))),
        "axes": [
            {"name": columns.axes[axis].name, "values": columns.axes[axis].texts, "codes": _packed(codes, "<i2")}
            for axis, codes in zip(columns.varied, columns.codes[:, columns.varied].T, strict=True)
        ],
        "fixed": [f"{axis.name} {axis.texts[0]}" for axis in columns.axes if len(axis.values) == 1],
        "measures": [
            {"name": name, "title": title_of(name), **_unit(name), "values": _packed(values, "<f4")}
            for name, values in columns.measures.items()
        ],
        "objectives": [{"name": each.name, "better": each.better} for each in columns.objectives],
        "numbers": _packed(np.array([row.number for row in columns.rows]), "<i4"),
        # Classes beyond the listed ones are shown as "other", the number after the last.
        "why": _packed(np.minimum(why, _REASONS), "<i2"),
        "pareto": _packed(columns.pareto, "<i4"),
        "reasons": [{"status": one.status, "text": one.text, "count": len(one.rows)} for one in reasons[:_REASONS]],
        "heat": [columns.varied.index(axis) for axis in pair] if columns.varied else [],
    }  # fmt: skip


def _unit(name: str) -> dict[str, Any]:
    """Return which direction of a measure is better, and its format: prefix and scales with units."""
    known = MEASURES.get(name)
    unit = known.unit if known else ""
    better = known.better if known else "less"
    # A ratio is shown in percent.
    if known and not unit:
        return {"better": better, "before": "", "ladder": [(0.01, "%")]}
    if unit in _LADDERS:
        return {"better": better, "before": "", "ladder": _LADDERS[unit]}
    if unit == "USD":
        return {"better": better, "before": "$", "ladder": [(1.0, ""), (1e6, "M"), (1e9, "G")]}
    word = {"1/s": f"{name.partition('_')[0]}/s", "NPU": "NPUs", "NPU year": "NPU years"}.get(unit, unit)
    scales = _LARGE if unit in ("FLOP/s", "W") else ((1.0, ""), (1e6, "M "), (1e9, "G "))
    return {
        "better": better,
        "before": "",
        "ladder": [(scale, f"{prefix}{word}") for scale, prefix in scales],
    }


def _packed(values: NDArray[Any], kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode("ascii")
