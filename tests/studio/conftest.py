"""One studio and one browser for all tests of the page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# What compares pictures is beside the other tests of pages.
sys.path.insert(0, str(Path(__file__).parents[1] / "hostile"))
sys.path.insert(0, str(Path(__file__).parent))
from studio_page import Page, hostile_browser, running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Return the page of a studio in a browser."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    if not hostile_browser.is_there():
        pytest.skip("needs chromium")
    with running() as address, hostile_browser.browser(tmp_path_factory.mktemp("browser")) as browser:
        yield Page(browser, address)
