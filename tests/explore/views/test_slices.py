import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.explore.sweep.point import Row
from armillary.explore.views.columns import Axis, Columns, Objective
from armillary.explore.views.reasons import reason_classes
from armillary.explore.views.slices import heat, swings, telling_axes

SIZES = (3, 2, 3)
CELLS = list(itertools.product(*map(range, SIZES)))


@st.composite
def grids(draw):
    times = draw(st.lists(st.one_of(st.none(), st.integers(1, 9)), min_size=len(CELLS), max_size=len(CELLS)))
    rows = [
        Row(i, dict(zip("abc", cell, strict=True)), str(i), "ok", "", {"step_time": float(time)})
        if time
        else Row(i, dict(zip("abc", cell, strict=True)), str(i), "rejected", f"kind {'xy'[cell[0] % 2]}")
        for i, (cell, time) in enumerate(zip(CELLS, times, strict=True))
    ]
    axes = tuple(Axis(name, tuple(range(size))) for name, size in zip("abc", SIZES, strict=True))
    return Columns(axes, (Objective("step_time", "less"),), tuple(rows))


@settings(max_examples=40, deadline=None)
@given(grids())
def test_heat_map_is_the_best_over_the_rest(columns):
    found = heat(columns, 0, 2, reason_classes(columns.rows))
    for x, y in itertools.product(range(3), range(3)):
        here = [row for row in columns.rows if row.values["a"] == x and row.values["c"] == y]
        fine = [row for row in here if row.status == "ok"]
        if fine:
            best = min(fine, key=lambda row: (row.measures["step_time"], row.number))
            assert found.best[y, x] == best.number
            assert found.blocked[y, x] == -1
        else:
            assert found.best[y, x] == -1
            assert (
                columns.rows[reason_classes(columns.rows)[found.blocked[y, x]].rows[0]].reason
                == here[0].reason
            )


@settings(max_examples=40, deadline=None)
@given(grids())
def test_swings_are_the_rows_that_differ_in_one_axis(columns):
    if columns.best is None:
        return
    for base in {columns.best, columns.median}:
        for swing in swings(columns, base):
            name = columns.axes[swing.axis].name
            near = {
                row.values[name]: row
                for row in columns.rows
                if all(
                    row.values[other] == columns.rows[base].values[other] for other in "abc" if other != name
                )
            }
            expected = [row.number if row.status == "ok" else -1 for _, row in sorted(near.items())]
            assert list(swing.rows) == expected
            assert swing.blocked == expected.count(-1)
            good, bad = swing.extremes(columns)
            times = [columns.rows[i].measures["step_time"] for i in swing.rows if i >= 0]
            assert columns.rows[good].measures["step_time"] == min(times)
            assert columns.rows[bad].measures["step_time"] == max(times)


def test_an_axis_that_is_not_varied_at_the_neighbour_does_not_matter():
    rows = (
        Row(0, {"pp": 1}, "0", "ok", "", {"step_time": 3.0}),
        Row(1, {"pp": 2, "v": 1}, "1", "ok", "", {"step_time": 2.0}),
        Row(2, {"pp": 2, "v": 2}, "2", "ok", "", {"step_time": 1.0}),
    )
    columns = Columns((Axis("pp", (1, 2)), Axis("v", (1, 2))), (Objective("step_time", "less"),), rows)
    assert [(one.axis, one.rows) for one in swings(columns, 0)] == [(0, (0, 2))]
    assert [(one.axis, one.rows) for one in swings(columns, 2)] == [(0, (0, 2)), (1, (1, 2))]


def test_telling_axes_change_the_objective_most(synthetic):
    from armillary.explore.views.columns import columns_of

    columns = columns_of(synthetic.rows(), synthetic.sweep())
    assert [columns.axes[i].name for i in telling_axes(columns)] == ["tp", "microbatch"]
    assert telling_axes(Columns(columns.axes[:1], columns.objectives, columns.rows)) is None
    assert np.isfinite(columns.cost[columns.best]).all()
