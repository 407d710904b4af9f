"""A made-up sweep, shared by the tests of its views."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    spec = importlib.util.spec_from_file_location("synthetic", Path(__file__).with_name("synthetic.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
