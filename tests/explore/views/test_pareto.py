import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.explore.views.pareto import front, pareto_ranks


def dominates(one, other):
    return all(a <= b for a, b in zip(one, other, strict=True)) and any(
        a < b for a, b in zip(one, other, strict=True)
    )


def ranks_by_peeling(points):
    """The slow reference: take away what nobody left dominates, O(n^2) a layer."""
    ranks, left, rank = [0] * len(points), set(range(len(points))), 0
    while left:
        layer = {i for i in left if not any(dominates(points[j], points[i]) for j in left)}
        for i in layer:
            ranks[i] = rank
        left, rank = left - layer, rank + 1
    return ranks


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(st.tuples(*[st.integers(-4, 4)] * width), min_size=1, max_size=40)
    )
)
def test_ranks_are_those_of_peeling_layer_by_layer(points):
    assert pareto_ranks(np.array(points, float)).tolist() == ranks_by_peeling(points)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)), min_size=1, max_size=60))
def test_front_is_what_nothing_dominates(points):
    found = front(np.array(points))
    assert found.tolist() == [not any(dominates(other, one) for other in points) for one in points]


def test_equal_points_share_a_rank_and_no_points_have_none():
    assert pareto_ranks(np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]])).tolist() == [0, 0, 1]
    assert len(pareto_ranks(np.empty((0, 2)))) == 0


def test_two_objectives_where_every_point_is_its_own_front(lines):
    n = 100_000  # n^2 comparisons would take minutes
    line = np.arange(n, dtype=float)
    assert pareto_ranks(np.stack((line, line), axis=1)).tolist() == list(range(n))
    assert front(np.stack((line, -line), axis=1)).all()
    few = np.stack((line, line), axis=1)[:2000]
    assert lines(lambda: pareto_ranks(few)) < 2.5 * lines(lambda: pareto_ranks(few[:1000]))


def test_three_objectives_on_a_grid():
    points = np.array(list(itertools.product(range(4), repeat=3)), float)
    assert pareto_ranks(points).tolist() == points.sum(axis=1).astype(int).tolist()
