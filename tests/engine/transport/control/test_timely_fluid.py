"""TIMELY has no unique fixed point: where its fluid model ends depends on how flows began."""

from __future__ import annotations

import pytest

from .timely_fluid import timely_rates


@pytest.mark.parametrize(("first", "least", "most"), [(0.5, 0.49, 0.51), (0.7, 0.65, 0.85), (0.9, 0.8, 0.95)])
def test_flows_keep_the_shares_that_they_begin_with(first: float, least: float, most: float) -> None:
    """Two flows over 10 Gb/s with 16 KiB per step; the means of the second half of 30 ms."""
    rates = timely_rates(
        (first, 1 - first), 16384 / 1.25e9, 2 * (4158 / 1.25e9 + 1e-6) + 2 * (64 / 1.25e9 + 1e-6), 30e-3
    )
    mean = rates[len(rates) // 2 :].mean(axis=0)
    assert least < mean[0] / mean.sum() < most
