from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.explore.sweep.point import Row
from armillary.explore.views.columns import Axis, Objective, columns_of, measure_text, title_of
from armillary.explore.views.reasons import reason_classes, status_line


def row(number, status="ok", reason="", values=None, **measures):
    return Row(number, values or {}, str(number), status, reason, measures)


STEP_TIME = (Objective("step_time", "less"),)


def made(rows, axes=(), objectives=STEP_TIME):
    return columns_of(
        rows, SimpleNamespace(space=SimpleNamespace(axes=axes), objectives=objectives, path=None)
    )


def test_best_is_first_by_pareto_rank_then_objective_then_number():
    goals = (Objective("step_time", "less"), Objective("mfu", "more"))
    rows = [
        row(0, step_time=2.0, mfu=0.9),
        row(1, step_time=1.5, mfu=0.4),
        row(2, step_time=1.0, mfu=0.5),
        row(3, step_time=1.0, mfu=0.5),
        row(4, "rejected", "no", step_time=0.1, mfu=0.99),
        row(5, step_time=0.5),
    ]
    columns = made(rows, objectives=goals)
    assert columns.order.tolist() == [2, 3, 0, 1]
    assert columns.pareto.tolist() == [0, 1, 0, 0, -1, -1]
    assert columns.ok.tolist() == [True, True, True, True, False, False]


def test_numbers_ascend_and_values_that_only_rows_have_are_kept():
    axes = (Axis("tp", (8, 1)), Axis("schedule", ("z", "a")), Axis("flag", (1, True)))
    rows = [row(0, values={"tp": 4, "schedule": "b", "flag": True}, step_time=1.0)]
    columns = made(rows, axes)
    assert [axis.values for axis in columns.axes] == [(1, 4, 8), ("z", "a", "b"), (1, True)]
    assert columns.codes.tolist() == [[1, 2, 1]]


def test_where_a_condition_does_not_hold_an_axis_is_not_varied():
    axis = SimpleNamespace(name="virtual", values=(1, 2), when="pp > 1")
    space = SimpleNamespace(axes=(axis,), active=lambda _, values: values["pp"] > 1)
    rows = [row(i, values={"pp": i + 1, "virtual": 1}, step_time=1.0) for i in range(2)]
    columns = columns_of(rows, SimpleNamespace(space=space, objectives=(), path=None))
    assert columns.codes[:, 0].tolist() == [-1, 0]
    assert columns.objectives == (Objective("step_time", "less"),)


def test_median_is_the_better_of_the_two_in_the_middle():
    columns = made([row(i, step_time=float(time)) for i, time in enumerate((4, 1, 3, 2))])
    assert columns.median == 3
    assert made([row(0, "failed")]).median is None
    assert made([row(0, "failed")]).best is None


def test_unknown_axis_names_the_nearest():
    with pytest.raises(InputError, match=r"axis 'microbatches'.*microbatch"):
        made([], (Axis("microbatch", (1,)), Axis("tp", (1,)))).axis("microbatches")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("step_time", 5.98312345, "5.983 s"),
        ("tokens_per_second", 123456.789, "123,500 tokens/s"),
        ("headroom", -3 * 2**30, "-3 GiB"),
        ("mfu", 0.4321, "43.2 %"),
        ("price", 12345.678, "$12,345.68"),
        ("npus", 64.0, "64 NPUs"),
        ("step_time", float("nan"), "-"),
    ],
)
def test_measures_are_written_with_units(name, value, text):
    assert measure_text(name, value) == text


def test_titles():
    assert [title_of(name) for name in ("mfu", "flops_per_npu")] == ["MFU", "FLOP/s per NPU"]


def test_reasons_that_differ_in_numbers_only_are_one_class():
    rows = [
        row(0, "rejected", "memory: needs 93.1 GiB of 80 GiB"),
        row(1, "rejected", "memory: needs 1,024 GiB of 80 GiB"),
        row(2, "rejected", "heads % tp == 0: heads 8, tp 16"),
        row(3, "failed", "memory: needs 1 GiB of 80 GiB"),
        row(4, step_time=1.0),
    ]
    found = reason_classes(rows)
    assert [(one.status, one.text, one.rows) for one in found] == [
        ("rejected", "memory: needs … of 80 GiB", (0, 1)),
        ("failed", "memory: needs 1 GiB of 80 GiB", (3,)),
        ("rejected", "heads % tp == 0: heads 8, tp 16", (2,)),
    ]
    assert status_line(rows) == "5 points: 1 ok, 3 rejected, 1 failed"
    assert status_line([replace(rows[4], status="timeout")]) == "1 point: 0 ok, 1 over the time limit"


def test_columns_of_many_rows(synthetic):
    columns = columns_of(synthetic.rows(), synthetic.sweep(2))
    assert len(columns.rows) == 11_520
    assert np.isnan(columns.cost[~columns.ok]).all()
    step = columns.measures["step_time"][columns.ok]
    assert columns.measures["step_time"][columns.best] == step.min()
