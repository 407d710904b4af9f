"""Property tests run under the profile of `conftest.py`, whatever the machine and however the tests are started."""

from __future__ import annotations

import ast
from pathlib import Path

from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
EXAMPLES = {"max_examples", "phases"}
"""What a test may choose for itself; a deadline and a database only to say that there is none."""


def test_the_profile_has_no_deadline() -> None:
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check


def test_no_test_brings_back_what_the_profile_leaves_out() -> None:
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "settings"):
                continue
            for given in node.keywords:
                none = isinstance(given.value, ast.Constant) and given.value.value is None
                allowed = given.arg in EXAMPLES or (given.arg in ("deadline", "database") and none)
                assert allowed, f"{path.relative_to(TESTS)}:{node.lineno}: settings of {given.arg}"
