"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from armillary import jit


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --checked."""
    parser.addoption("--checked", action="store_true", help="check every array access of kernels")


@pytest.fixture(autouse=True, scope="session")
def checked(request: pytest.FixtureRequest) -> Iterator[None]:
    """With --checked, run kernels whose every array access is checked (`armillary.checked`)."""
    if not request.config.getoption("--checked"):
        yield
        return
    with jit.checking():
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of reference data beside the checkout; tests that need it skip where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "README.md").exists():
        pytest.skip("needs the reference data in ../shared")
    return folder
