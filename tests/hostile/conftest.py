"""Lets the tests here import what is beside them, and gives them a browser."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from hostile_browser import Browser, browser, is_there


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for the tests of a module."""
    if not is_there():
        pytest.skip("needs chromium")
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found
