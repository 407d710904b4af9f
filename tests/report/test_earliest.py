"""Longest paths and cycles, against slow and obvious references."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.report import earliest as module
from armillary.report.earliest import earliest, forward_edges

graphs = st.integers(1, 9).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=24)
    )
)


def columns(edges):
    return np.array(edges, dtype=np.int64).reshape(-1, 2).T


def has_cycle(n, edges):
    left = set(range(n))
    while free := {v for v in left if not any(b == v and a in left for a, b in edges)}:
        left -= free
    return bool(left)


@given(graphs)
def test_no_cycle_is_left_and_nothing_else_goes(case):
    n, edges = case
    kept = forward_edges(n, *columns(edges))
    remaining = [edge for edge, keep in zip(edges, kept, strict=True) if keep]
    assert not has_cycle(n, remaining)
    for edge in set(edges) - set(remaining):
        assert has_cycle(n, edges)
        # What goes lies between two nodes that a cycle leads to and from.
        assert edge[0] >= edge[1]


@settings(deadline=None)
@given(graphs, st.data())
@pytest.mark.parametrize("compiled", [False, True])
def test_starts_are_those_of_repeated_relaxation(compiled, case, data):
    n, edges = case
    edges = [(a, b) for a, b in edges if a < b]
    order = data.draw(st.permutations(range(n)))
    edges = [(order[a], order[b]) for a, b in edges]
    length = data.draw(st.lists(st.integers(0, 100), min_size=n, max_size=n))
    slow = [0] * n
    for _ in range(n):
        for a, b in edges:
            slow[b] = max(slow[b], slow[a] + length[a])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_COMPILED_FROM", 0 if compiled else 10**9)
        assert earliest(n, *columns(edges), np.array(length)).tolist() == slow
