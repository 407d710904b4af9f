"""Expressions against Python's own on safe input, and what they refuse."""

import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.explore.sweep.expression import Expression

NAMES = {"tp": 8, "pp": 16, "share": 0.25, "kind": "1f1b", "on": True, "fabric": 50e9}
leaves = st.one_of(
    st.integers(0, 50).map(str), st.sampled_from(("0.5", "1e3", "tp", "pp", "share", "on", "'1f1b'", "kind"))
)


def grown(inner):
    operator = st.sampled_from(["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"])
    return st.one_of(
        st.tuples(inner, operator, inner).map(lambda parts: "({} {} {})".format(*parts)),
        st.tuples(st.sampled_from(("-", "not ")), inner).map(lambda parts: "({}{})".format(*parts)),
        st.tuples(st.sampled_from(("min", "max")), inner, inner).map(
            lambda parts: "{}({}, {})".format(*parts)
        ),
        st.tuples(st.sampled_from(("abs", "ceil", "floor", "log2")), inner).map(
            lambda p: "{}({})".format(*p)
        ),
        st.tuples(inner, inner, inner).map(lambda parts: "({} if {} else {})".format(*parts)),
        st.tuples(inner, inner).map(lambda parts: "({} in ({}, 8))".format(*parts)),
    )


@settings(max_examples=150, deadline=None)
@given(st.recursive(leaves, grown, max_leaves=8))
def test_expressions_are_those_of_python(text):
    known = {"ceil": math.ceil, "floor": math.floor, "log2": math.log2, "min": min, "max": max, "abs": abs}
    try:
        expected = eval(text, {"__builtins__": {}, **known}, NAMES)
    except (ArithmeticError, TypeError, ValueError):
        expected = None
    if isinstance(expected, str) or expected is None or "'1f1b'" in text or "kind" in text:
        # Texts are for comparisons: what Python makes of "ab" * 3 is refused.
        try:
            found = Expression(text).value(NAMES)
        except InputError:
            return
        assert found == expected
        return
    assert Expression(text).value(NAMES) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("60 GiB", 60 * 2**30),
        ("10 s + 500 ms", 10.5),
        ("100 GB/s / 4", 25e9),
        ("20 %", 0.2),
        ("9 % 4", 1),
        ("15.6 T", 15.6e12),
        ("989 TFLOP/s", 989e12),
        ("2 if tp == 8 else 3", 2),
        ("tp in (4, 8) and not pp in (2,)", True),
        ("2 ** 10", 1024),
        ("kind == '1f1b'", True),
        ("fabric == '50 GB/s' and fabric == 50 GB/s", True),
        ("kind != 'a 5 parsecs'", True),
    ],
)
def test_quantities_are_in_base_units(text, value):
    assert Expression(text).value(NAMES) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tp.real", "attribute is not allowed"),
        ("__import__('os')", "a call of '__import__'"),
        ("open('x')", "a call of 'open'"),
        ("maximum(tp, 1)", "did you mean 'max'?"),
        ("[x for x in (1,)]", "listcomp is not allowed"),
        ("lambda: 1", "lambda is not allowed"),
        ("tp[0]", "subscript is not allowed"),
        ("f'{tp}'", "joinedstr is not allowed"),
        ("max(*tp)", "starred is not allowed"),
        ("tp =", "is no expression"),
        ("5 parsecs", "no such unit"),
        ("1j", "no such unit"),
        ("b'x' == 1", "expected numbers and texts"),
        ("_power(2, 3)", "a call of '_power'"),
        ("_x + 1", "no such name '_x'"),
        ("", "got 0 characters"),
        ("(" * 400, "is no expression"),
    ],
)
def test_everything_else_is_refused(text, problem):
    with pytest.raises(InputError) as error:
        Expression(text)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tp / (pp - 16)", "division by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("kind * 1000000", "expected a number"),
        ("10.0 ** 400", "range"),
        ("tp < kind", "not supported"),
        ("(0 - 8) ** 0.5", "expected a finite number"),
        ("tp + absent", "absent is not known"),
    ],
)
def test_values_that_do_not_exist(text, problem):
    with pytest.raises(InputError) as error:
        Expression(text).value(NAMES)
    assert problem in str(error.value).lower()


def test_an_unknown_name_is_told_with_the_nearest():
    with pytest.raises(InputError, match=r"no such name 'tpp' .did you mean 'tp'"):
        Expression("tpp <= 8").check_names(NAMES.keys())


def test_expressions_travel():
    one = Expression("tp  <=  60 GiB")
    other = pickle.loads(pickle.dumps(one))
    assert (other, other.text, other.value(NAMES)) == (one, "tp <= 60 GiB", True)
