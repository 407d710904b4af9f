"""Many values at once are what each is alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.platform.limits import COUNT, FLAG, SHARE, SIDE, TIME, Kind, Number, Rule, all_are

RULES = (COUNT, SIDE, TIME, SHARE, FLAG, Kind(object, "a rank"), Number(high=3, whole=True))
VALUES = st.one_of(
    st.integers(-1, 4), st.floats(-1, 2), st.just(float("nan")), st.just(float("inf")), st.booleans(),
    st.just("1"), st.none(), st.just(10**400), st.just(np.int64(1)),
)  # fmt: skip


@given(st.sampled_from(RULES), st.lists(VALUES, max_size=4))
def test_no_value_is_let_through_that_is_refused_alone(rule: Rule, values: list[Any]) -> None:
    assert not all_are(rule, values) or not any(map(rule, values))


@pytest.mark.parametrize(("rule", "values"), [(TIME, [0.0, 2.5]), (COUNT, [1, 2]), (FLAG, [True, False])])
def test_plain_values_are_let_through(rule: Rule, values: list[Any]) -> None:
    assert all_are(rule, values)
