"""The drawn figures of the manual are what their script draws."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
FIGURES = runpy.run_path(str(IMAGES / "draw_architecture.py"))["FIGURES"]


@pytest.mark.parametrize("name", FIGURES)
def test_the_committed_figure_is_up_to_date(name: str) -> None:
    assert (IMAGES / f"{name}.svg").read_text(encoding="utf-8") == FIGURES[name]().svg()


def test_the_figure_of_the_rooms_shows_every_package() -> None:
    """Studios and the like that come later have to be drawn as well."""
    packages = (IMAGES.parents[1] / "src" / "armillary").glob("*/__init__.py")
    drawn = FIGURES["rooms"]().svg()
    assert [path.parent.name for path in packages if f">{path.parent.name}</text>" not in drawn] == []


def test_the_figure_of_the_first_page_is_what_is_simulated_now() -> None:
    drawn = runpy.run_path(str(IMAGES / "draw_step.py"))["figure"]()
    assert (IMAGES / "step.svg").read_text(encoding="utf-8") == drawn
