"""The map of the code: it is short, and the modules that it names exist and give reasons."""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
ROOMS, _, REST = PAGE.partition("## How data goes through")
REASONS = re.findall(r"`([\w.]+)`", REST.partition("## Where the reasons are")[2])


@pytest.mark.parametrize("name", re.findall(r"`([\w.]+)`", "".join(re.findall(r"^\| `.*? \|", ROOMS, re.M))))
def test_a_package_of_the_map_exists(name: str) -> None:
    assert find_spec(f"armillary.{name}")


@pytest.mark.parametrize("name", REASONS)
def test_a_module_that_is_said_to_give_reasons_does(name: str) -> None:
    found = find_spec(f"armillary.{name}")
    assert found is not None and found.origin is not None
    docstring = ast.get_docstring(ast.parse(Path(found.origin).read_text(encoding="utf-8")))
    assert docstring is not None and len(docstring.split()) > 30


def test_the_map_is_short() -> None:
    assert len(PAGE.split()) <= 1_200
