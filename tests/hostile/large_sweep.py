"""A page of a sweep of many points, made up."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from armillary.explore.views import write_html


def write_large_sweep(path: Path, points: int = 20_000) -> None:
    """Write the page; of the made-up sweep of the tests of views there are at most 11,520 points."""
    place = Path(__file__).parents[1] / "explore" / "views" / "synthetic.py"
    spec = importlib.util.spec_from_file_location("synthetic", place)
    assert spec and spec.loader
    synthetic: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(synthetic)
    write_html(synthetic.rows(points), synthetic.sweep(2), path)
