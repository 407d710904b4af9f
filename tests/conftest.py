"""Fixtures for all tests, and the one Hypothesis profile that they run under."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from armillary.base import jit

# A busy machine is no reason to fail: nothing here measures time. Where CI is set (`.ci/run`) every run tries the
# same examples. Fixtures of one function serve all its examples, so those must not depend on what one left behind.
settings.register_profile(
    "armillary",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("armillary")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --checked."""
    parser.addoption("--checked", action="store_true", help="check every array access of kernels")


@pytest.fixture(autouse=True, scope="session")
def checked(request: pytest.FixtureRequest) -> Iterator[None]:
    """With --checked, run kernels whose every array access is checked (`armillary.base.checked`)."""
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


@pytest.fixture(scope="session")
def lines() -> Callable[[Callable[[], object]], int]:
    """Return a function that counts the lines of Python a call executes: how its work grows, on any machine."""

    def count(call: Callable[[], object]) -> int:
        found = 0

        def within(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal found
            found += event == "line"
            return within

        before = sys.gettrace()
        sys.settrace(within)
        try:
            call()
        finally:
            sys.settrace(before)
        return found

    return count
