"""Views of the results of a sweep: a ranked table, pictures, and one interactive page.

Names are imported on first use: pictures need matplotlib, pages plotly.

Rows become columns once: codes per axis, measures, costs (less is better), Pareto ranks. All tables,
pictures and the page read these, so they agree. The page carries them as packed arrays and keeps one filter,
from which every chart is drawn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.explore.views.columns import Axis, Columns, Objective, columns_of
    from armillary.explore.views.overview import picture
    from armillary.explore.views.page import write_html
    from armillary.explore.views.pareto import front, pareto_ranks
    from armillary.explore.views.ranked_table import ranked, why_not

_MODULE_OF = {
    "Axis": "columns",
    "Columns": "columns",
    "Objective": "columns",
    "columns_of": "columns",
    "front": "pareto",
    "pareto_ranks": "pareto",
    "picture": "overview",
    "ranked": "ranked_table",
    "why_not": "ranked_table",
    "write_html": "page",
}

__all__ = [
    "Axis",
    "Columns",
    "Objective",
    "columns_of",
    "front",
    "pareto_ranks",
    "picture",
    "ranked",
    "why_not",
    "write_html",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
