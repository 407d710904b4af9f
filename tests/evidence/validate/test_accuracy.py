"""Errors by hand, and rank correlations against scipy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.evidence.validate.accuracy import accuracy, by_group, reasons, spearman, verdict, verdicts
from armillary.evidence.validate.table import Bar, Row, Table

NAN = math.nan
ROWS = (
    Row("a", 100, 110, "x", 90, 120),
    Row("b", 200, 190, "x", 195, 210),
    Row("c", 400, 300, "y"),
    Row("d", 800, NAN, "y", reason="no data"),
    Row("e", 800, 0, "z"),
)


def table(rows, bar, parts=()):
    return Table("t", "T", "us", "", tuple(rows), "blind", bar, parts=parts)


def test_errors_are_those_of_predicted_rows():
    found = accuracy(ROWS)
    assert (found.rows, found.refused) == (3, 2)
    assert found.mean == pytest.approx((0.1 + 0.05 + 0.25) / 3)
    assert found.worst == pytest.approx(0.25)
    assert found.median == pytest.approx(0.1)
    assert found.rank == pytest.approx(1)
    assert found.bias == pytest.approx((1.1 * 0.95 * 0.75) ** (1 / 3) - 1)
    assert found.within == pytest.approx(1 / 3)  # 110 / 100 - 1 is more than 0.1 in binary
    assert found.held == pytest.approx(1.0)


def test_interval_that_misses_the_measurement():
    rows = [Row("a", 100, 110, low=105, high=120), Row("b", 100, 110, low=100, high=120), Row("c", 100, 110)]
    assert accuracy(rows).held == 0.5
    assert math.isnan(accuracy(rows[2:]).held)


def test_groups_and_reasons():
    found = by_group(ROWS)
    assert list(found) == ["x", "y", "z"]
    assert found["x"].mean == pytest.approx(0.075)
    assert (found["y"].rows, found["y"].refused) == (1, 1)
    assert found["z"].rows == 0
    assert math.isnan(found["z"].mean)
    assert reasons(ROWS) == {"no data": 1, "no reason given": 1}


def test_rank_correlation_with_ties_by_hand():
    # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
    one, two = np.array([1.0, 2, 2, 3]), np.array([1.0, 2, 3, 4])
    assert spearman(one, two) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert spearman(one, -two) == pytest.approx(-4.5 / math.sqrt(4.5 * 5))
    assert math.isnan(spearman(np.array([1.0]), np.array([2.0])))
    assert math.isnan(spearman(np.array([1.0, 1]), np.array([2.0, 3])))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=30))
@settings(max_examples=50, deadline=None)
def test_rank_correlation_is_that_of_scipy(pairs):
    stats = pytest.importorskip("scipy.stats")
    one, two = np.array(pairs, dtype=float).T
    if np.ptp(one) and np.ptp(two):
        assert spearman(one, two) == pytest.approx(stats.spearmanr(one, two).statistic)
    else:
        assert math.isnan(spearman(one, two))


@pytest.mark.parametrize(
    ("bar", "expected"),
    [
        (None, "shown"),
        (Bar(0.14), "met"),
        (Bar(0.13), "missed"),
        (Bar(0.14, worst=0.26), "met"),
        (Bar(0.14, worst=0.24), "missed"),
        (Bar(0.14, rank=0.9), "met"),
    ],
)
def test_verdict(bar, expected):
    assert verdict(table(ROWS[:3], bar)) == expected


def test_rank_below_the_bar_or_unknown_is_missed():
    assert verdict(table([Row("a", 1, 1.1), Row("b", 1.05, 1)], Bar(0.5, rank=0.9))) == "missed"
    assert verdict(table(ROWS[:1], Bar(0.5, rank=0.9))) == "missed"


def test_more_than_a_fifth_refused_meets_no_bar():
    good, bad = Row("a", 1, 1), Row("b", 1, NAN)
    assert verdict(table([good] * 4 + [bad], Bar(0.1))) == "met"
    assert verdict(table([good] * 3 + [bad], Bar(0.1))) == "missed"
    assert verdict(table([bad], Bar(0.1))) == "missed"


def test_parts_are_judged_too():
    part = table(ROWS[:3], Bar(0.01))
    assert verdicts([table(ROWS[:3], Bar(0.2), (part,)), table(ROWS, None)]) == {
        "met": 1,
        "missed": 1,
        "shown": 1,
    }
