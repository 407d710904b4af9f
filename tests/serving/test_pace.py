"""Serving ends at its limit of processor time, and otherwise gives the same however often it looks at the clock."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base import allowed
from armillary.base.errors import InputError
from armillary.serving import columns as c
from armillary.serving.replica import Served, serve_replica

from .conftest import engines, loads, sessions, table

TABLE = table()


def columns(found: Served) -> list[bytes]:
    values = (getattr(found, field.name) for field in fields(found))
    return [value.tobytes() for value in values if isinstance(value, np.ndarray)]


@pytest.mark.parametrize("rule", c.RULES)
@settings(max_examples=30)
@given(st.data())
def test_looking_at_the_clock_changes_nothing(rule: str, data: st.DataObject) -> None:
    requests = data.draw(loads() | sessions())
    engine = data.draw(engines(requests, (rule,)))
    usual = serve_replica(requests, engine, TABLE, "interpreted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allowed, "FIRST_SLICE", 1)
        patch.setattr(allowed, "LONG_SLICE", 0.0)
        often = serve_replica(requests, engine, TABLE, "interpreted")
    assert columns(often) == columns(usual) and len(columns(usual)) > 3


@settings(max_examples=5)
@given(st.data())
def test_it_ends_at_its_limit(data: st.DataObject) -> None:
    requests = data.draw(loads().filter(lambda found: int(found.output.sum()) > 8))
    engine = data.draw(engines(requests, c.RULES[:1]))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FIRST_WORD", "NEXT_WORD", "MOST_SECONDS"):
            patch.setattr(allowed, name, 1e-9)
        patch.setattr(allowed, "FIRST_SLICE", 1)
        with pytest.raises(InputError, match=r"serving: .* tokens took .*: fewer or shorter requests"):
            serve_replica(requests, engine, TABLE, "interpreted")
