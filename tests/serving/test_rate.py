"""The largest load within an objective."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.serving.rate import largest


@given(st.floats(1e-4, 1e4))
def test_it_is_found_to_a_percent(limit: float) -> None:
    found = largest(lambda speed: float(speed <= limit), 0.9)
    assert found.speed <= limit < found.beyond <= 1.0101 * found.speed
    assert all((good == 1.0) == (speed <= limit) for speed, good in found.tried.items())


def test_what_no_load_meets_and_what_every_load_meets() -> None:
    with pytest.raises(InputError, match="of requests far apart 50 % meet the objective, expected 90 %"):
        largest(lambda speed: 0.5, 0.9)
    with pytest.raises(InputError, match="all requests at once still meet the objective"):
        largest(lambda speed: 1.0, 0.9)


def test_a_load_that_cannot_be_slower_says_what_is_missed() -> None:
    """Requests cannot be further apart than a load may last: that is no news about the objective."""

    def good(speed: float) -> float:
        if speed < 0.1:
            raise InputError("speed: the last request would come after 1e9 s")
        return 0.25

    with pytest.raises(InputError, match="of requests far apart 25 % meet the objective, expected 90 %"):
        largest(good, 0.9)
