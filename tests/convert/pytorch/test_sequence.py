"""The alignment of names against the longest common subsequence by the textbook's table."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.convert.pytorch.sequence import _MOST_EDITS, align

NAMES = st.lists(st.sampled_from("abcd"), max_size=11)
"""Shorter than what is looked for in a longer sequence, so that all of both is aligned."""
Pairs = list[tuple[int, int]]


def longest(first: list[str], second: list[str]) -> int:
    """Return the length of the longest common subsequence."""
    above = [0] * (len(second) + 1)
    for name in first:
        row = [0]
        for at, other in enumerate(second):
            row.append(above[at] + 1 if name == other else max(above[at + 1], row[-1]))
        above = row
    return above[-1]


def check(pairs: Pairs, first: list[str], second: list[str]) -> None:
    """Equal names, ascending on both sides."""
    assert all(first[at] == second[to] for at, to in pairs)
    for (at, to), (after, later) in pairwise(pairs):
        assert at < after
        assert to < later


def changed(names: list[str], edits: int, seed: int) -> list[str]:
    """Return `names` with single names added, removed or replaced."""
    chance, result = random.Random(seed), list(names)
    for _ in range(edits if names else 0):
        at = chance.randrange(len(result) + 1)
        result[at : at + chance.randrange(2)] = [f"x{chance.random()}"] * chance.randrange(2)
    return result


@given(NAMES, NAMES)
def test_as_long_as_the_longest_common_subsequence(first: list[str], second: list[str]) -> None:
    pairs = align(first, second)
    check(pairs, first, second)
    assert len(pairs) == longest(first, second)


@given(st.lists(st.sampled_from("ab"), max_size=120), st.integers(0, 25), st.integers())
def test_of_long_sequences_that_differ_little(first: list[str], edits: int, seed: int) -> None:
    first = ["start", *first, "end"]
    second = changed(first, edits, seed)
    pairs = align(first, second)
    check(pairs, first, second)
    assert len(pairs) == longest(first, second)


def test_nothing_in_common() -> None:
    assert align([], []) == []
    assert align(["a"], []) == []
    assert align([], ["a"]) == []
    assert align(["a"] * 5, ["b"] * 5) == []


def names_of_a_step(count: int, seed: int = 1) -> list[str]:
    """Return names as a training step has them: layers that repeat."""
    chance = random.Random(seed)
    layers = [[f"op{chance.randrange(40)}" for _ in range(chance.randrange(5, 30))] for _ in range(12)]
    result: list[str] = []
    while len(result) < count:
        result += chance.choice(layers)
    return result[:count]


@pytest.mark.parametrize("count", [60, 700, 20_000])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_one_step_in_a_trace_of_many(count: int, place: str) -> None:
    step = names_of_a_step(count)
    others = {"first": (0, 4), "middle": (2, 3), "last": (4, 0)}[place]
    before, after = (
        [name for n in range(k) for name in names_of_a_step(count, 9 + n + 7 * k)] for k in others
    )
    pairs = align(step, before + step + after)
    assert pairs == [(at, len(before) + at) for at in range(count)]


def test_one_step_that_differs_a_little_in_a_trace_of_many() -> None:
    step = names_of_a_step(5000)
    before, after = names_of_a_step(9000, 2), names_of_a_step(9000, 3)
    pairs = align(changed(step, 60, 5), before + step + after)
    assert len(pairs) >= 5000 - 60
    assert all(9000 <= to < 14000 for _, to in pairs)


def test_one_of_equal_steps() -> None:
    step = names_of_a_step(300)
    pairs = align(step, step * 5)
    assert [at for at, _ in pairs] == list(range(300))
    assert pairs[-1][1] - pairs[0][1] == 299, "all in one step"


def test_too_different_gives_the_same_start_and_end() -> None:
    count = _MOST_EDITS
    first = ["s"] * 3 + [f"a{at}" for at in range(count)] + ["e"] * 4
    second = ["s"] * 3 + [f"b{at}" for at in range(count)] + ["e"] * 4
    assert [at for at, _ in align(first, second)] == [0, 1, 2, *range(count + 3, count + 7)]


class Counted(str):
    """A name that counts how often names are compared."""

    compared = 0
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_comparisons_grow_with_the_length_only() -> None:
    counts = []
    for count in (5_000, 20_000):
        first = [Counted(name) for name in names_of_a_step(count)]
        second = [Counted(name) for name in changed(list(first), 50, 3)]
        Counted.compared = 0
        assert len(align(first, second)) > count - 60
        counts.append(Counted.compared)
    assert counts[1] < 8 * counts[0]
    assert counts[1] < 20_000 * 120
