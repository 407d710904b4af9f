"""Tables are declared once; kernels read and write them alike in every mode, and checked ones refuse the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base import jit
from armillary.base.accessors import compile_inlined
from armillary.base.jit import Mode
from armillary.base.tables import Guards, Layout, record, sparse_zeros

DECLARED = """
from armillary.base.tables import Layout, record

STATE = Layout("state")
LANES = STATE.columns("LANE", "lanes", "A lane.")
LANES.column("head", "what it serves, -1: nothing", start=-1)
LANES.column("since", "since when", "ticks")
V_EVENTS = STATE.scalar("events so far")
ITEMS = STATE.rows("ITEMS", "items", "An item.")
I_PLAN = ITEMS.column("plan", "its plan")
ITEMS.column("counts", "how often each", many=3)
I_SERVER = ITEMS.column("server", "of another kind of item", at=0)
ENTRY = record("ENTRY", "An entry, in working memory.")
ENTRY.column("next", "the next")
ENTRY.column("ranks", "two of them", many=2)
"""
KERNEL = """
from armillary.base.accessors import accessors
from armillary.base.jit import inner, njit
import {layout} as lk

lanes, items, entries = accessors(lk.LANES, lk.ITEMS, lk.ENTRY)


@inner
def first(st, at):
    return st[at]


@njit
def lane(st, i, value):
    before = lanes.head(st, i)
    lanes.set_head(st, i, value)
    st[lk.V_EVENTS] += 1
    after = lanes.add_head(st, i, 10)
    return before, after, first(st, lanes.at_head(st, i)), lanes.since(st, i)


@njit
def item(st, i, k, value):
    items.set_plan(st, i, value)
    items.set_counts(st, i, k, value + 1)
    return items.server(st, i), items.add_counts(st, i, k, 5), st[items.at_counts(st, i, k)]


@njit
def entry(mem, at, k, value):
    entries.set_next(mem, at, value)
    entries.add_ranks(mem, at, k, value)
    return entries.next(mem, at), entries.ranks(mem, at, k)
"""
LENGTHS = {"lanes": 4, "items": 3}


class Kernels:
    """The kernels above in each mode, plain and checked."""

    def __init__(self, folder: Path) -> None:
        (folder / "tables_sample_layout.py").write_text(DECLARED)
        (folder / "tables_sample_kernel.py").write_text(KERNEL.format(layout="tables_sample_layout"))
        self.lk: Any = __import__("tables_sample_layout")

    def load(self, mode: Mode) -> Any:
        return jit.load("tables_sample_kernel", mode)

    def state(self, mode: Mode) -> Any:
        return self.lk.STATE.state(LENGTHS, {}, mode)[0]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernels]:
    folder = tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        yield Kernels(folder)


modes = pytest.mark.parametrize("mode", ["interpreted", "compiled"])


def test_a_declaration_gives_the_allocation() -> None:
    layout = Layout("state")
    items = layout.rows("ITEMS", "items", "An item.")
    numbers = [
        items.column("plan", "its plan"),
        items.column("comm", "its group", many=2),
        items.column("row", ""),
    ]
    lanes = layout.columns("LANE", "lanes", "A lane.")
    lanes.column("head", "what it serves", start=-1)
    events = layout.scalar("events so far")
    assert numbers == [0, 1, 3] and items.width == 4
    state, place = layout.state({"items": 2, "lanes": 3}, {}, "compiled")
    assert {name: len(state[where]) for name, where in place.items()} == {"ITEMS": 8, "LANE_HEAD": 3}
    assert state[place["LANE_HEAD"]].tolist() == [-1] * 3 and state[events] == 0
    assert [state[layout.places[name]] for name in place] == [where.start for where in place.values()]
    given = layout.state({"items": 2}, {"LANE_HEAD": np.array([5, 6])}, "interpreted")
    assert given[0][given[1]["LANE_HEAD"]] == [5, 6]


def test_a_program_is_laid_out_table_by_table() -> None:
    layout = Layout("program")
    ranks = layout.scalar("ranks")
    layout.rows("A", "rows", "").column("x", "")
    layout.rows("B", "rows", "").column("x", "")
    flat, base = layout.program(
        {"A": np.array([1, 2]), "B": lambda at: np.array([at])}, "interpreted", {ranks: 7}
    )
    assert flat == [7, base["A"], base["B"], 1, 2, base["B"]] and base == {"A": 3, "B": 5}


@given(st.lists(st.lists(st.integers(-5, 5), max_size=4), min_size=1, max_size=5), st.data())
def test_reserved_tables_are_laid_out_without_a_copy(values: list[list[int]], data: st.DataObject) -> None:
    layout = Layout("program")
    rate = layout.scalar("rate")
    names = [f"T{number}" for number in range(len(values))]
    for name in names:
        layout.rows(name, "rows", "").column("x", "")
    tables = layout.reserve({name: len(own) for name, own in zip(names, values, strict=True)})
    for name, own in zip(names, values, strict=True):
        tables[name][:] = own
    # One that was replaced, or is not where it was, is laid out anew with all others.
    changed = data.draw(st.sampled_from(["", "replaced", "order", "left out", "twice"]))
    given = dict(tables)
    if changed == "replaced":
        given[names[0]] = tables[names[0]].copy()
    elif changed == "order":
        given = dict(reversed(given.items()))
    elif changed == "left out":
        del given[names[-1]]
    elif changed == "twice":
        given[names[-1]] = given[names[0]]
    for mode in ("compiled", "interpreted", "compiled"):
        flat, base = layout.program(given, cast(Mode, mode), {rate: 7})
        copies = {name: np.array(table.tolist(), np.int64) for name, table in given.items()}
        expected, places = layout.program(copies, cast(Mode, mode), {rate: 7})
        assert list(flat) == list(expected) and base == places
        assert not (changed == "" and mode == "compiled") or flat is tables[names[0]].base


def test_a_layout_may_extend_another() -> None:
    first = Layout("first")
    first.rows("A", "a", "").column("x", "")
    second = Layout("second", first)
    second.rows("B", "b", "").column("x", "")
    assert second.places == {"A": 0, "B": 1} and first.places == {"A": 0}
    assert set(second.state({"a": 1, "b": 1}, {}, "compiled")[1]) == {"A", "B"}


def test_what_is_declared_twice_is_refused() -> None:
    layout = Layout("state")
    table = layout.rows("A", "rows", "")
    table.column("x", "")
    with pytest.raises(ValueError, match="x is declared twice"):
        table.column("x", "")
    with pytest.raises(ValueError, match="A is declared twice"):
        layout.rows("A", "rows", "")


def test_an_unknown_column_is_named_with_those_there_are() -> None:
    table = record("ENTRY", "")
    table.column("next", "")
    with pytest.raises(AttributeError, match="ENTRY has no column 'nxt'; it has next"):
        table.find("nxt")


@given(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(-(1 << 60), 1 << 60))
def test_accessors_do_the_same_in_every_mode(
    kernels: Kernels, lane: int, item: int, k: int, value: int
) -> None:
    found = []
    for mode in ("interpreted", "compiled"):
        kernel, state, mem = kernels.load(mode), kernels.state(mode), list(range(12))
        if mode == "compiled":
            mem = np.array(mem)  # type: ignore[assignment]
        results = (
            kernel.lane(state, lane, value),
            kernel.item(state, item, k, value),
            kernel.entry(mem, 4, k % 2, value),
        )
        assert results[0] == (-1, value + 10, value + 10, 0)
        assert results[1] == (value, value + 6, value + 6)
        assert results[2] == (value, value + 5 + k % 2)
        found.append([[int(each) for each in state], [int(each) for each in mem]])
    assert found[0] == found[1]


@modes
@pytest.mark.parametrize(
    "call", [("lane", 4, 0), ("lane", -1, 0), ("item", 3, 0, 0), ("item", 0, 3, 0), ("item", 0, -1, 0)]
)
def test_checked_accessors_refuse_what_lies_beyond_their_table(
    kernels: Kernels, mode: Mode, call: Any
) -> None:
    with jit.checking():
        kernel, state = kernels.load(mode), kernels.state(mode)
        kernel.lane(state, 3, 1)
        kernel.item(state, 2, 2, 1)
        guards = Guards(state)
        with pytest.raises(IndexError):
            getattr(kernel, call[0])(state, *call[1:])
        guards.budget(1)


def test_code_for_the_interpreter_does_what_the_accessors_do(kernels: Kernels) -> None:
    names: dict[str, Any] = {}
    exec(compile_inlined(KERNEL.format(layout="tables_sample_layout"), "some_kernel.py"), names)
    state = kernels.state("interpreted")
    assert names["lane"](state, 1, 7) == (-1, 17, 17, 0) and names["item"](state, 1, 2, 3) == (3, 9, 9)


@pytest.mark.parametrize("share", [0, 0.4, 1])
@pytest.mark.parametrize("size", [0, 1, (1 << 19) - 1, 1 << 19, (1 << 20) + 3])
def test_sparse_zeros_are_zeros_that_can_be_written(size: int, share: float) -> None:
    zeros, others = sparse_zeros(size, int(size * share)), sparse_zeros(size)
    assert zeros.shape == (size,)
    assert zeros.dtype == np.int64
    assert not zeros.any()
    zeros[:] = np.arange(size)
    assert not others.any()


def test_more_zeros_than_memory_are_refused() -> None:
    with pytest.raises(MemoryError):
        sparse_zeros(1 << 58)
