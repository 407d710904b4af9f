"""What a checked kernel refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from armillary.base import jit
from armillary.base.jit import Mode
from armillary.base.tables import Guards, Layout

SOURCE = """
from armillary.base.jit import inner, njit

FIRST, SECOND = 0, 1


@inner
def of(st, i):
    return st[st[FIRST] + i]


@njit
def read(st, i):
    return of(st, i)


@njit
def write(st, i, value):
    at = st[SECOND] + i
    st[at] = value


@njit
def anywhere(st, i):
    st[i] += 1


@njit
def first_of(arrays, i):
    return arrays[0][i]
"""


LAYOUT = Layout("two tables")
FIRST, SECOND = LAYOUT.place("FIRST"), LAYOUT.place("SECOND")


@pytest.fixture(params=["interpreted", "compiled"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode) -> Any:
    name = f"sample_{mode}_{tmp_path.name}_kernel"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with jit.checking():
        yield jit.load(name, mode)


def state(mode: Mode) -> Any:
    with jit.checking():
        return LAYOUT.lay_out({"FIRST": 3, "SECOND": 2}, {}, mode)[0]


def test_what_lies_in_a_table_may_be_read_and_written(kernel: Any, mode: Mode) -> None:
    st = state(mode)
    assert kernel.read(st, 2) == 0
    kernel.write(st, 1, 7)
    assert st[st[SECOND] + 1] == 7
    assert kernel.first_of((np.arange(3), np.arange(2)), 2) == 2


@pytest.mark.parametrize("i", [-1, 3, 5, 100, -100])
def test_what_lies_beyond_a_table_may_not_be_read(kernel: Any, mode: Mode, i: int) -> None:
    with pytest.raises(IndexError):
        kernel.read(state(mode), i)


@pytest.mark.parametrize("i", [-1, 2, -3, 50])
def test_what_lies_beyond_a_table_may_not_be_written(kernel: Any, mode: Mode, i: int) -> None:
    st = state(mode)
    with pytest.raises(IndexError):
        kernel.write(st, i, 1)
    assert list(st) == list(state(mode))


def test_words_between_tables_may_not_be_touched(kernel: Any, mode: Mode) -> None:
    st = state(mode)
    between = [i for i in range(len(st)) if not (i < 2 or 0 <= i - st[0] < 3 or 0 <= i - st[1] < 2)]
    assert len(between) == 9
    for i in (between[0], between[2], between[-1]):
        with pytest.raises(IndexError):
            kernel.anywhere(st, i)


@pytest.mark.parametrize("i", [-1, 3])
def test_an_array_in_a_tuple_is_checked(kernel: Any, i: int) -> None:
    with pytest.raises(IndexError):
        kernel.first_of((np.arange(3), np.arange(9)), i)


def test_words_that_changed_are_found(mode: Mode) -> None:
    with jit.checking():
        st = state(mode)
        guards = Guards(st)
        assert guards.budget(1000) == 1
        st[st[SECOND] - 1] = 0
        with pytest.raises(AssertionError, match="was written"):
            guards.budget(1000)


def test_plain_runs_have_no_such_words(mode: Mode) -> None:
    st, _ = LAYOUT.lay_out({"FIRST": 3, "SECOND": 2}, {}, mode)
    assert len(st) == 2 + 3 + 2
    assert Guards(st).budget(1000) == 1000
