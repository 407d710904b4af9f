"""Fixtures for all tests, and the one Hypothesis profile that they run under."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no reason to fail: nothing here measures time. Where CI is set (`.ci/run`) every run tries the
# same examples. Fixtures of one function serve all its examples, so those must not depend on what one left behind.
settings.register_profile(
    "armillary",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("armillary")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of reference data beside the checkout; tests that need it skip where it is absent."""
    folder = Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "README.md").exists():
        pytest.skip("needs the reference data in ../shared")
    return folder
