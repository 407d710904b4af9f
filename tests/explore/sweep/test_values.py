"""Lists and ranges against obvious references, and ranges with units."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.explore.sweep.schema import Varied
from armillary.explore.sweep.values import values_of


def values(**keys):
    return values_of(Varied.model_validate(keys))


@given(st.integers(-50, 50), st.integers(0, 300), st.integers(1, 40))
def test_steps_are_those_of_range(low, more, step):
    assert values(**{"from": low, "to": low + more, "step": step}) == tuple(range(low, low + more + 1, step))


@given(st.integers(1, 20), st.integers(0, 5000), st.integers(2, 5))
def test_factors_are_powers(low, more, times):
    expected = [low * times**k for k in range(20) if low * times**k <= low + more]
    assert values(**{"from": low, "to": low + more, "times": times}) == tuple(expected)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(2, 30))
def test_counts_are_even_in_the_unit_of_the_first(low, high, count):
    found = values(**{"from": f"{low} MB/s", "to": f"{high} MB/s", "count": count})
    assert (found[0], found[-1], len(found)) == (f"{low} MB/s", f"{high} MB/s", count)
    for index, text in enumerate(found):
        exact = low + Fraction(high - low) * index / (count - 1)
        assert float(text.removesuffix(" MB/s")) == pytest.approx(float(exact), rel=1e-9)


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6), st.integers(2, 30))
def test_log_spacing_has_equal_ratios(low, high, count):
    found = values(**{"from": low, "to": high, "count": count, "spacing": "log"})
    steps = [math.log(b / a) for a, b in pairwise(found)]
    assert len(found) == count
    assert steps == pytest.approx([math.log(high / low) / (count - 1)] * (count - 1), abs=1e-6)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"from": "50 GB/s", "to": "400 GB/s", "count": 4, "spacing": "log"}, "50 100 200 400"),
        ({"from": "50 GB/s", "to": "0.4 TB/s", "count": 4, "spacing": "log"}, "50 100 200 400"),
        ({"from": "50 GB/s", "to": "400 GB/s", "times": 2}, "50 100 200 400"),
        ({"from": "50 GB/s", "to": "200 GB/s", "step": "75 GB/s"}, "50 125 200"),
    ],
)
def test_quantities_keep_their_unit(keys, expected):
    assert values(**keys) == tuple(f"{number} GB/s" for number in expected.split())


def test_whole_ends_give_whole_numbers_once():
    assert values(**{"from": 1, "to": 4, "count": 7, "spacing": "log"}) == (1, 2, 3, 4)
    assert values(**{"from": 0.0, "to": 1.0, "count": 3}) == (0.0, 0.5, 1.0)
    assert values(values=[1, True, "a", None]) == (1, True, "a", None)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"values": []}, "empty list"),
        ({"values": [2, 2]}, "2 twice"),
        ({"values": [[1]]}, "expected plain values"),
        ({"from": 1, "to": "8 GB", "times": 2}, "to: got '8 GB', expected a number"),
        (
            {"from": "1 GB", "to": "8 GB/s", "times": 2},
            "to: got '8 GB/s', expected a quantity such as '1 GB'",
        ),
        ({"from": "1 parsec", "to": "2 parsec", "times": 2}, "from: got '1 parsec'"),
        ({"from": 8, "to": 1, "times": 2}, "not above to"),
        ({"from": 8, "to": 1, "step": 2}, "not above to"),
        ({"from": 0, "to": 1, "count": 3, "spacing": "log"}, "above 0"),
        ({"from": 0, "to": 10**9, "step": 1}, "at most 1000000"),
    ],
)
def test_what_is_no_range(keys, problem):
    with pytest.raises(InputError) as error:
        values(**keys)
    assert problem in str(error.value)
