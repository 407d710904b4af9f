"""Dimensions that are the same, through views."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.lab.extrapolation.recorded.dimensions import Dim, Factors, product, regroup, same

SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=4)


def dims(*sizes: int) -> list[Dim]:
    return [Dim(size) for size in sizes]


def test_a_view_keeps_what_it_joins_and_divides() -> None:
    batch, length, hidden = tokens = dims(2, 32, 64)
    rows = dims(64, 64)
    assert regroup(tokens, rows)
    heads = dims(2, 32, 4, 16)
    assert regroup(rows, heads)
    factors = Factors()
    factors.scale([length], Fraction(2))
    factors.scale([hidden], Fraction(1, 2))
    assert [factors.size(dim) for dim in rows] == [128, 32]
    assert [factors.size(dim) for dim in heads] == [2, 64, 2, 16]
    assert not factors.changed(batch)


def test_one_sample_is_still_a_dimension() -> None:
    tokens, rows = dims(1, 32), dims(32)
    assert regroup(tokens, rows)
    factors = Factors()
    factors.scale([tokens[0]], Fraction(4))
    assert factors.size(rows[0]) == 128


def test_what_cannot_be_the_same_is_left_alone() -> None:
    assert not same(Dim(6), Dim(8))
    assert not same(product(dims(2, 3)), product(dims(3, 2)))
    before, after = dims(2, 3), dims(3, 2)
    assert not regroup(before, after, merging=True)
    assert [len(dim.leaves()) for dim in (*before, *after)] == [1, 1, 1, 1]


def test_the_outermost_that_divides_is_scaled() -> None:
    parts = [Dim(3, whole=True), Dim(4), Dim(8)]
    factors = Factors()
    assert factors.scale([product(parts)], Fraction(1, 2)) is parts[1]
    assert factors.scale([product(parts)], Fraction(1, 2)) is None
    assert not factors.padded


@pytest.mark.parametrize("factor", [Fraction(2), Fraction(1, 2)])
@given(first=SIZES, second=SIZES)
def test_views_of_the_same_elements_have_as_many(
    first: list[int], second: list[int], factor: Fraction
) -> None:
    """Whatever of them is scaled, a tensor and its view keep as many elements as each other."""
    before, after = dims(*first), dims(*second)
    if prod(first) != prod(second) or not regroup(before, after):
        return
    factors = Factors()
    factors.scale([before[0]], factor)
    sizes = [prod(factors.size(dim) for dim in each) for each in (before, after)]
    if not factors.padded and len(before[0].leaves()) > 0 and before[0].size > 1:
        assert sizes[0] == sizes[1] == prod(first) * factor
