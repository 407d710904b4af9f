"""Laws from two sizes: sums of neighbouring powers come out as they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.lab.extrapolation.reference import measured


@given(
    st.integers(-2, 1),
    st.floats(0, 1e6),
    st.floats(1, 1e6),
    st.sampled_from([0.5, 2.0, 4.0]),
    st.floats(0.1, 64),
)
@settings(max_examples=100)
def test_sums_of_two_powers_are_found(low: int, a: float, b: float, ratio: float, factor: float) -> None:
    def law(x: float) -> float:
        return float(a * x**low + b * x ** (low + 1))

    found = measured(np.array([law(1)]), np.array([law(ratio)]), ratio, factor)
    assert found[0] == pytest.approx(law(factor) / law(1), rel=1e-4)


def test_what_does_not_change_stays() -> None:
    found = measured(np.array([7.0, 0.0, 5.0]), np.array([7.0, 9.0, 0.0]), 2.0, 8.0)
    assert found.tolist() == [1.0, 1.0, 1.0]


def test_steeper_laws_are_one_power() -> None:
    assert measured(np.array([1.0]), np.array([8.0]), 2.0, 4.0)[0] == pytest.approx(64)
