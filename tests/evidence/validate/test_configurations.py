"""Choosing among configurations at equal interactivity."""

from __future__ import annotations

import pytest

from armillary.evidence.validate.configurations import QUESTIONS, Point, answers


def points(name: str, factor: float, predicted: float, cell: str = "one") -> list[Point]:
    """Return a configuration of `factor` times the throughput, which is predicted as `predicted` times it."""
    return [
        Point(cell, name, clients, (100 / clients, factor * clients), (100 / clients, predicted * clients))
        for clients in (1, 2, 4, 8)
    ]


def test_a_right_choice_is_good_and_a_wrong_one_is_not() -> None:
    right = answers([*points("a", 2, 2), *points("b", 1, 1)])
    assert (right.good, right.asked, right.cells) == (QUESTIONS, QUESTIONS, 1)
    wrong = answers([*points("a", 2, 2), *points("b", 1, 3)])
    assert (wrong.good, wrong.asked) == (0, QUESTIONS)


@pytest.mark.parametrize(("share", "good"), [(0.96, QUESTIONS), (0.94, 0)])
def test_what_is_nearly_the_best_is_good(share: float, good: int) -> None:
    assert answers([*points("a", 1, 1), *points("b", share, 2)]).good == good


def test_a_cell_without_a_choice_asks_nothing() -> None:
    alone = answers([*points("a", 2, 2), *points("b", 1, 1, "another"), *points("c", 1, 1)[:1]])
    assert (alone.good, alone.asked, alone.cells) == (0, 0, 0)


def test_only_measured_interactivities_are_asked_for_and_repeated_runs_are_one() -> None:
    """Of two that never ran as fast nothing can be said; two runs with as many clients count as their mean."""
    fast = [
        Point("one", "b", 1, (1000.0, 5.0), (1000.0, 5.0)),
        Point("one", "b", 2, (500.0, 9.0), (500.0, 9.0)),
    ]
    assert answers([*points("a", 2, 2), *fast]).asked == 0
    a, b = points("a", 2, 2), points("b", 2.05, 2.2)
    assert answers([*a, *a, *b]) == answers([*a, *b])
