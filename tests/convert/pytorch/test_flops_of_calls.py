"""Operators that call operators: each call counts once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.convert.pytorch.flops import Work, exclusive

NONE = Work(0, 0)


def test_each_call_is_counted_once() -> None:
    linear, add, table, zeros = Work(100, 40), Work(10, 80), Work(5, 90), Work(0, 50)
    works = [None, linear, Work(0, 0), linear, add, table, zeros, None]
    parents = [-1, 0, 1, 1, 1, 0, 5, 5]
    names = ["step", "linear", "t", "addmm", "expand", "table", "zero_", "unknown"]
    shares = exclusive(works, parents, names)
    assert shares[3] == linear and shares[1] == Work(0, 0)  # its parts cost more than itself
    assert shares[5] == Work(5, 40) and shares[6] == zeros
    assert sum(share.flops for share in shares) == 115
    assert (
        exclusive(works[::-1], [7 - parent if parent >= 0 else -1 for parent in parents[::-1]], names[::-1])
        == shares[::-1]
    )


@pytest.mark.parametrize("recorded", [True, False])
def test_calls_on_distributed_tensors_count_what_the_rank_does(recorded: bool) -> None:
    """As DTensor records them, since PyTorch 2.8 with a node in between."""
    whole, part, scale, cast = Work(800, 90), Work(400, 50), Work(3, 6), Work(0, 2)
    calls = [
        ("linear", whole, -1),
        ("addmm", whole, 0),
        ("PythonSubclass", None, 1),
        ("div", scale, 2),  # of another name
        ("to", cast, 3),
        ("addmm", part, 2 if recorded else 1),
        ("clone", Work(0, 40), -1),
        ("PythonSubclass", None, 6),
        ("clone", Work(0, 20), 7 if recorded else 6),
        ("table", Work(5, 90), -1),
        ("mul", Work(5, 40), 9),
        ("mul", Work(5, 40), 10),  # of another type, not of a part
    ]
    names, works, parents = zip(*calls, strict=True)
    expected = [
        NONE,
        NONE,
        NONE,
        Work(3, 4),
        cast,
        part,
        NONE,
        NONE,
        Work(0, 20),
        Work(0, 50),
        NONE,
        works[11],
    ]
    assert exclusive(works, parents, names) == expected
    back = [11 - parent if parent >= 0 else -1 for parent in parents[::-1]]
    assert exclusive(works[::-1], back, names[::-1]) == expected[::-1]


@given(st.lists(st.tuples(st.integers(-1, 30), st.none() | st.integers(0, 9)), max_size=30))
def test_a_tree_costs_what_its_outermost_calls_do_or_more(calls: list[tuple[int, int | None]]) -> None:
    parents = [min(parent, at - 1) for at, (parent, _) in enumerate(calls)]
    works = [None if flops is None else Work(flops, flops) for _, flops in calls]
    shares = exclusive(works, parents, [str(at) for at in range(len(calls))])
    totals = [share.flops for share in shares]
    for at in reversed(range(len(calls))):
        own = works[at]
        assert own is None or totals[at] >= own.flops
        if parents[at] >= 0:
            totals[parents[at]] += totals[at]
