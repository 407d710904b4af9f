"""The layout: nothing overlaps, edges lead down, and big graphs take no time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.report.layered_layout import BOX, layered


def place(n, edges, lane=None, block=None):
    src, dst = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    lane = np.zeros(n, dtype=np.int64) if lane is None else np.array(lane)
    return layered(n, src, dst, lane, None if block is None else np.array(block))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.data())
def test_boxes_do_not_overlap_and_are_inside(n, data):
    node = st.integers(0, n - 1)
    block = data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    edges = [e for e in data.draw(st.lists(st.tuples(node, node), max_size=80)) if block[e[0]] == block[e[1]]]
    lane = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    at = place(n, edges, lane, block)
    for a in range(n):
        assert BOX[0] / 2 <= at.x[a] <= at.width[block[a]] - BOX[0] / 2
        assert BOX[1] / 2 <= at.y[a] <= at.height[block[a]] - BOX[1] / 2
        for b in range(a):
            apart = abs(at.x[a] - at.x[b]) >= BOX[0] or abs(at.y[a] - at.y[b]) >= BOX[1]
            assert apart or block[a] != block[b]
    for e, (a, b) in enumerate(edges):
        if at.left[a] == at.left[b] and not at.back[e]:
            assert at.y[a] < at.y[b]
            bends = at.bends[1, at.bend_ptr[e] : at.bend_ptr[e + 1]]
            assert (np.diff([at.y[a], *bends, at.y[b]]) > 0).all()


def test_a_chain_is_a_straight_line_cut_into_columns():
    at = place(40, [(i, i + 1) for i in range(39)])
    columns = [at.x[at.left == left] for left in np.unique(at.left)]
    assert len(columns) > 1
    assert all(np.ptp(column) < 1 for column in columns)


def test_lanes_stay_side_by_side():
    edges = [(i, i + 1) for i in range(0, 18, 2)] + [(i, i + 2) for i in range(0, 18, 2)]
    at = place(20, edges, lane=[i % 2 for i in range(20)])
    for left in np.unique(at.left):
        main, side = (at.x[np.flatnonzero((at.left == left) & (np.arange(20) % 2 == k))] for k in (0, 1))
        assert main.max() < side.min()


def test_an_edge_over_rows_passes_between_boxes():
    at = place(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    (x,), (y,) = at.bends[:, at.bend_ptr[3] :][:, :1]
    assert y == at.y[1] and abs(x - at.x[1]) >= BOX[0] / 2


def test_no_boxes():
    at = place(0, [])
    assert len(at.x) == len(at.width) == 0


def test_work_grows_with_the_graph(lines):
    rng = np.random.default_rng(0)

    def work(n):
        dst = rng.integers(1, n, 3 * n)
        src = (dst * rng.random(3 * n)).astype(np.int64)
        return lines(lambda: layered(n, src, dst, np.zeros(n, dtype=np.int64)))

    assert work(8000) < 2.5 * work(4000)
