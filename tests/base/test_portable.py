"""Elementary functions: their errors against decimal arithmetic, and that nothing that ends in ticks takes others."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base import portable

SOURCES = Path(portable.__file__).parents[1]
POSITIVE = st.floats(1e-12, 1e15)


def units_off(found: float, call: Callable[[], Decimal]) -> float:
    """Return how many units in the last place a float is off."""
    with localcontext() as context:
        context.prec = 60
        true = call()
        return float(abs(Decimal(found) - true) / Decimal(math.ulp(float(true))))


@given(POSITIVE)
def test_logarithms(x):
    assert units_off(portable.log(x), lambda: Decimal(x).ln()) < 0.6
    assert units_off(portable.log2(x), lambda: Decimal(x).ln() / Decimal(2).ln()) < 0.6


@given(st.integers(-1000, 1000))
def test_logarithm_of_a_power_of_two_is_whole(exponent):
    assert portable.log2(2.0**exponent) == exponent


@given(st.floats(-700, 700))
def test_exponentials(x):
    assert units_off(portable.exp(x), Decimal(x).exp) < 0.6


@given(st.floats(-30, 30).filter(lambda x: abs(x) > 1e-20))
def test_exponentials_less_one(x):
    assert units_off(portable.expm1(x), lambda: Decimal(x).exp() - 1) < 0.9


@given(st.floats(1e-3, 1e3), st.floats(-3, 3))
def test_powers(x, y):
    assert units_off(portable.power(x, y), (Decimal(x).ln() * Decimal(y)).exp) < 0.6


@given(st.integers(2, 1000), st.integers(1, 5))
def test_powers_that_are_whole_are_exact(x, y):
    assert portable.power(float(x), y) == x**y


@given(st.lists(POSITIVE, min_size=1, max_size=5), st.floats(-3, 3))
def test_an_array_gets_what_its_floats_get(values, y):
    table = np.array(values)
    small = table % 50
    for function, given_ in (
        (portable.log, table), (portable.log2, table), (portable.exp, small), (portable.expm1, small),
        (lambda x: portable.power(x, y), table),
    ):  # fmt: skip
        assert function(given_).tolist() == [function(x) for x in given_.tolist()]


def test_ends():
    assert portable.power(np.array([0.0, math.inf]), 1.5).tolist() == [0.0, math.inf]
    assert portable.power(np.array([0.0, math.inf]), -1.5).tolist() == [math.inf, 0.0]
    assert (portable.exp(1e9), portable.exp(-1e9), portable.exp(0.0)) == (math.inf, 0.0, 1.0)
    assert (portable.log(0.0), portable.log(math.inf), portable.log(1.0)) == (-math.inf, math.inf, 0.0)
    assert (portable.expm1(0.0), portable.expm1(-1e9), portable.expm1(1e9)) == (0.0, -1.0, math.inf)
    assert np.isnan(portable.log(np.array([-1.0, math.nan]))).all()
    with pytest.raises(ValueError, match="not negative"):
        portable.log(-1.0)


@pytest.mark.parametrize("seed", range(10))
def test_products_and_least_squares_are_those_of_numpy(seed):
    draw = np.random.default_rng(seed)
    matrix, right = draw.standard_normal((12, 4)), draw.standard_normal((12, 3))
    # Every other one has columns that depend on each other.
    matrix[:, 3] = matrix[:, 3] if seed % 2 else 2 * matrix[:, 0]
    for left, other in ((matrix.T, right), (matrix.T, right[:, 0]), (right[:, 0], matrix)):
        np.testing.assert_allclose(portable.dot(left, other), left @ other, rtol=1e-12, atol=1e-13)
    expected = np.linalg.lstsq(matrix, right[:, 0], rcond=1e-6)[0]
    np.testing.assert_allclose(portable.least_squares(matrix, right[:, 0], 1e-6), expected, atol=1e-12)


NOT_FIXED = {
    "np": {
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "power", "float_power", "cbrt", "hypot", "sin", "cos",
        "tan", "tanh", "sinh", "cosh", "dot", "vdot", "inner", "outer", "matmul", "tensordot", "linalg", "argpartition",
        "partition", "corrcoef", "cov", "convolve", "correlate",
    },
    "math": {
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "cbrt", "hypot", "sin", "cos", "tan", "tanh",
        "erf", "erfc", "gamma", "lgamma", "dist", "sumprod",
    },
}  # fmt: skip
"""What differs between machines, or between versions of NumPy and Python."""
PICTURES = {
    "explore/views", "explore/whole_run/show.py", "platform/topology/layout.py", "platform/topology/picture.py",
    "platform/topology/sketch.py", "report/link_picture.py",
}  # fmt: skip
"""Where things stand in pictures, and marks on their axes."""
FITS = {"lab", "evidence", "cli/generate/learn", "testing"}
"""Statistics, and what is fitted to measurements with LAPACK and SciPy: docs/reference/same-bytes.md says so."""


def uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [f"{node.value.id}.{node.attr}"] * (node.attr in NOT_FIXED.get(node.value.id, ()))
        elif isinstance(node, ast.ImportFrom):
            names = [each.name for each in node.names if each.name in NOT_FIXED.get(node.module or "", ())]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            # The order of equal keys is that of the sorting network of the processor.
            unstable = node.func.attr == "argsort" and not any(key.arg == "kind" for key in node.keywords)
            names = ["argsort without kind='stable'"] * unstable
        yield from ((getattr(node, "lineno", 0), name) for name in names)


def test_what_ends_in_ticks_takes_nothing_that_depends_on_the_machine():
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if not any(name == each or name.startswith(f"{each}/") for each in PICTURES | FITS):
            found += [f"{name}:{line}: {what}" for line, what in uses(ast.parse(path.read_bytes()))]
    assert not found, "take armillary.base.portable:\n" + "\n".join(found)
