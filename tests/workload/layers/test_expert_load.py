"""How choices of experts are dealt out."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from armillary.workload.layers.expert_load import zipf


@given(st.integers(1, 40), st.floats(0, 10), st.integers(0, 500), st.data())
def test_choices_add_up(count: int, skew: float, tokens: int, data: st.DataObject) -> None:
    top_k = data.draw(st.integers(1, count))
    found = zipf(count, skew, tokens * top_k, tokens)
    assert sum(found) == tokens * top_k
    assert max(found) <= tokens
    assert min(found) >= 0
    assert found == sorted(found, reverse=True)


@given(st.integers(1, 30), st.integers(0, 3), st.integers(1, 1000))
def test_without_a_bound_shares_are_within_one_of_the_law(count: int, skew: int, total: int) -> None:
    weights = [Fraction(1, (number + 1) ** skew) for number in range(count)]
    for number, share in enumerate(zipf(count, float(skew), total, total)):
        assert abs(share - total * weights[number] / sum(weights)) < 1 + Fraction(1, 10**6)
