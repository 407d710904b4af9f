"""Views of the results of a sweep: a ranked table, pictures, and one interactive page.

Names are imported on first use: pictures need matplotlib.

Rows become columns once: codes per axis, measures, costs (less is better), Pareto ranks. All tables,
pictures and the page read these, so they agree. The page carries them as packed arrays and keeps one filter,
from which every chart is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.explore.views.columns import Axis, Columns, Objective, columns_of
    from armillary.explore.views.overview import picture
    from armillary.explore.views.page import write_html
    from armillary.explore.views.pareto import front, pareto_ranks
    from armillary.explore.views.ranked_table import ranked, why_not

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
__getattr__ = lazy(
    __name__,
    {
        ".columns": ("Axis", "Columns", "Objective", "columns_of"),
        ".overview": ("picture",),
        ".page": ("write_html",),
        ".pareto": ("front", "pareto_ranks"),
        ".ranked_table": ("ranked", "why_not"),
    },
)
