"""The distinct columns and rows of a table, against NumPy and plain lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.trace.columns import distinct_columns, distinct_rows

VALUES = st.sampled_from([-(2**63), -1, 0, 1, 2, 7, 2**40, 2**61, 2**62, 2**63 - 1])


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 4).flatmap(lambda rows: st.lists(st.tuples(*[VALUES] * rows), min_size=1, max_size=30)))
def test_columns_are_those_of_numpy(columns: list[tuple[int, ...]]) -> None:
    table = np.array(columns, np.int64).reshape(len(columns), -1).T
    first, which = distinct_columns(table)
    found = sorted(set(columns))
    assert [columns[at] for at in first.tolist()] == found
    assert first.tolist() == [columns.index(column) for column in found]
    assert [found[at] for at in which.tolist()] == columns


def test_of_no_columns_there_are_none() -> None:
    first, which = distinct_columns(np.zeros((2, 0), np.int64))
    assert not first.size
    assert not which.size


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 3).flatmap(lambda width: st.lists(st.tuples(*[VALUES] * width), min_size=1, max_size=60)),
    st.booleans(),
)
def test_rows_are_numbered_as_they_appear(rows: list[tuple[int, ...]], many: bool) -> None:
    # Many rows of few columns are told apart in another way than few rows.
    rows = rows * 60 if many else rows
    first, which = distinct_rows(np.array(rows, np.int64))
    found = list(dict.fromkeys(rows))
    assert [rows[at] for at in first.tolist()] == found
    assert first.tolist() == [rows.index(row) for row in found]
    assert [found[at] for at in which.tolist()] == rows


def test_of_no_rows_there_are_none() -> None:
    first, which = distinct_rows(np.zeros((0, 2), np.int64))
    assert not first.size
    assert not which.size
