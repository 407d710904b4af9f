"""The cases of benchmarks/extrapolate.py, up to 512 ranks: errors stay below what is promised."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[3] / "benchmarks" / "extrapolate.py"
MOST = 3.0
"""Percent."""


def benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("extrapolate_benchmark", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("axis", dict.fromkeys(case.axis for case in benchmark().cases()))
def test_errors_are_small(axis: str) -> None:
    module = benchmark()
    for case in module.cases():
        if case.axis == axis:
            line = module.measure(case)
            errors = {
                key: abs(value)
                for key, value in line.items()
                if isinstance(value, float) and key != "seconds"
            }
            assert max(errors.values()) <= (0.01 if axis == "dp" else MOST), line
