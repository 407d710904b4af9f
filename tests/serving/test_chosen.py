"""Kernels that engines choose: factors between the sizes at which they are known."""

from __future__ import annotations

from itertools import product
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.serving.chosen import TOKENS, WIDTHS, Chosen, chosen
from armillary.serving.kernels import kernels_of

SIZES = st.tuples(st.integers(1, 1 << 17), st.integers(1, 1 << 17), st.integers(1, 1 << 17))


def between(size: int, knots: tuple[int, ...]) -> list[float]:
    """Return the share of each knot, the slow way."""
    place = min(max(log2(size), log2(knots[0])), log2(knots[-1]))
    shares = [0.0] * len(knots)
    for at in range(len(knots) - 1):
        low, high = log2(knots[at]), log2(knots[at + 1])
        if low <= place <= high:
            shares = [0.0] * len(knots)
            shares[at + 1] = (place - low) / (high - low)
            shares[at] = 1 - shares[at + 1]
    return shares


@given(SIZES, st.integers(0, 2**32 - 1))
def test_a_factor_lies_on_lines_between_its_neighbours(size, seed):
    factors = np.random.default_rng(seed).uniform(0.5, 2, (len(TOKENS), len(WIDTHS), len(WIDTHS)))
    shares = [between(each, knots) for each, knots in zip(size, (TOKENS, WIDTHS, WIDTHS), strict=True)]
    places = product(range(len(TOKENS)), range(len(WIDTHS)), range(len(WIDTHS)))
    expected = sum(factors[a, b, c] * shares[0][a] * shares[1][b] * shares[2][c] for a, b, c in places)
    found = Chosen(factors, 0.0).ns(np.array([size], np.float64), np.array([1000.0]))
    assert found == pytest.approx([1000 * expected])


def test_a_kernel_that_runs_do_not_have_is_no_part_of_the_time():
    # The table says 2 x (10 + 5): 5 of them are apart.
    factors = np.full((len(TOKENS), len(WIDTHS), len(WIDTHS)), 2.0)
    assert Chosen(factors, 5.0).ns(np.array([[32.0, 512, 512]]), np.array([10.0])) == pytest.approx([25.0])


@given(SIZES)
def test_no_gemm_takes_less_than_its_factors_allow(size):
    factors = chosen("h100-sxm", "trtllm", "fp8")
    assert factors is not None and factors.apart > 0
    found = factors.ns(np.array([size], np.float64), np.array([1000.0]))
    assert found >= 1000 * factors.factors.min() - 1e-9


@pytest.mark.parametrize(
    ("device", "engine", "kind"), [("h100-sxm", "vllm", "fp8"), ("b200", "trtllm", "fp4")]
)
def test_devices_with_tables_have_factors_and_those_like_them_too(device, engine, kind):
    found = kernels_of(device, engine, 450e9, False, None)
    assert found is not None and found.chosen[kind] == chosen(device, engine, kind)
    same = kernels_of({"h100-sxm": "h100-nvl", "b200": "gb200"}[device], engine, 450e9, False, None)
    assert same is None or same.chosen[kind] == found.chosen[kind]


def test_what_no_table_says_has_no_factors():
    assert chosen("a100-sxm-80", "vllm", "bf16") is None
    found = kernels_of("a100-sxm-80", "vllm", 300e9, False, None)
    assert found is not None and found.chosen["bf16"] is None
    sizes = np.array([[16.0, 4096, 4096]])
    assert (found.gemms_ns("bf16", sizes) > 0).all()
