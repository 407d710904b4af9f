"""Predicted training steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.evidence.calibrate.recipes import RECIPES, Recipe
from armillary.evidence.calibrate.training import fit, half, mean_error, residuals
from armillary.evidence.calibrate.training_files import calibrate
from armillary.evidence.validate.training import selective
from armillary.evidence.validate.training.case import Case, gpt
from armillary.evidence.validate.training.predict import seconds, step_of
from armillary.evidence.validate.training.tables import fold, held_out, row_of, rows_and_halves, rows_of
from armillary.explore.training.constants import Constants
from armillary.explore.training.fitted import constants_of, stack_names
from armillary.explore.training.step import platform_of


def case(batch: int = 16, pp: int = 2, **facts: object) -> Case:
    plan = {
        "batch": batch, "microbatch": 1, "sequence": 512, "attention": "unfused",
        "parallel": {"tp": 2, "pp": pp, "sequence": False}, "pipeline": {"scatter": True},
    }  # fmt: skip
    return Case(
        f"batch {batch} pp {pp}", "g", 100.0, "dgx-a100-80", 8, gpt(4, 512, 8, 512, 1024), plan, "own"
    )


@pytest.mark.parametrize("constants", [Constants(), Constants(launch=20, handshake=300, communication=0.2)])
def test_many_microbatches_by_two_shorter_steps(constants):
    long = case(batch=64)
    assert seconds(long, constants) == pytest.approx(seconds(long, constants, steady=False), rel=1e-3)


def test_constants_are_keys_of_a_platform():
    made = platform_of(
        step_of(case()),
        Constants(sustained=0.9, memory=1.5, launch=30, communication=0.3, overlap_compute=0.2, step=4),
    )
    assert made.compute.options["factors"]["memory"] == 1.5
    assert made.compute.options["factors"]["sustained"] == pytest.approx(0.9)
    terms = made.terms
    assert (terms.launch, terms.communication, terms.overlap_compute, terms.step_time) == (
        30e3,
        0.3,
        0.2,
        4e6,
    )
    plain = {"batch": 1}
    assert Constants().plan(plain) == plain
    assert Constants(handshake=250).plan(plain)["pipeline"] == {"handshake": "250000 ns"}


def test_each_constant_makes_a_step_longer():
    usual = seconds(case())
    for name, value in (
        ("sustained", 0.5),
        ("memory", 2),
        ("launch", 50),
        ("communication", 1),
        ("handshake", 500),
    ):
        assert seconds(case(), Constants().changed({name: value})) > usual


def test_a_fit_finds_the_constants_that_made_the_rows():
    hidden = Constants(memory=1.7, launch=25)
    rows = [case(batch, pp) for batch in (8, 16) for pp in (1, 2)]
    rows = [Case(**{**vars(each), "measured": 1e3 * seconds(each, hidden)}) for each in rows]
    found = fit(rows, lambda row: Constants(launch=20), ("memory", "launch"))
    assert found.mean < 0.01
    assert found.constants["launch"] == pytest.approx(25, rel=0.1)


def test_calibration_holds_halves_back():
    rows = [case(batch, pp) for batch in (4, 8, 12, 16, 20) for pp in (1, 2)]
    rows = [Case(**{**vars(each), "measured": 1e3 * seconds(each, Constants(launch=40))}) for each in rows]
    found = calibrate(rows, Recipe("", ("launch",), Constants(launch=30)))
    assert len({half(row.label) for row in rows}) == 2 and set(found.folds) == {"half 0", "half 1"}
    assert found.constants["launch"] == pytest.approx(40, rel=0.05) and len(found.held_out) == 10
    text = found.document()
    assert text["measured_on"] == "a100-sxm-80" and 0 < text["spread"]["step"] < 0.1
    with pytest.raises(InputError, match="2 plans: expected at least 5 to fit launch"):
        calibrate(rows[:2], Recipe("", ("launch",)))


def test_mean_error():
    assert mean_error(np.log([1.1, 0.9])) == pytest.approx(0.1)


def test_every_recipe_has_constants_in_range():
    assert set(RECIPES) <= set(stack_names())
    for name in stack_names():
        for device in ("a100-sxm-80", "h100-sxm", "gb300", "none-such"):
            found = constants_of(name, device)
            assert 0.3 < found.constants.sustained <= 1
    with pytest.raises(
        InputError, match=r"no constants of 'megatron-lm-2023' \(did you mean 'megatron-lm-2022'\?\)"
    ):
        constants_of("megatron-lm-2023", "h100-sxm")


def test_blind_table_of_a_paper_is_met():
    """22B of arXiv 2205.05198, table 5: constants have seen vTrain's rows only."""
    for each in list(selective.table_5())[:2]:
        row = row_of(each)
        assert abs(row.error) < 0.06
        assert row.low < row.predicted < row.high


def test_runs_of_one_configuration_are_one_prediction_beside_their_own_times():
    run = replace(case(8), stack="megatron-core")
    again, slower = replace(run, label="again", measured=50.0), replace(run, plan={**run.plan, "batch": 16})
    one, other, third = rows_of([run, again, slower], lambda done, of: None)
    assert (other.predicted, other.label, other.measured) == (one.predicted, "again", 50.0)
    assert one == row_of(run) and third == row_of(slower) and third.predicted > one.predicted


def test_halves_keep_the_relative_widths_of_all():
    run = replace(case(8), stack="megatron-core")
    (row,) = rows_of([run], lambda done, of: None)
    ((again,), (held,)) = rows_and_halves([run], [True], lambda done, of: None)
    assert again == row and held == held_out(run, row)
    own = seconds(run, fold(run, f"half {half(run.label)}")) * 1e3
    assert held.predicted == pytest.approx(own) and held.predicted != row.predicted
    assert held.high / held.predicted == pytest.approx(row.high / row.predicted)
    assert held_out(run, replace(row, reason="no")).predicted == row.predicted
    assert rows_and_halves([run, run], [False, True], lambda done, of: None) == ((row, row), (held,))


def test_residuals_are_of_the_constants_of_each_case():
    rows = [case(8), case(16)]
    found = residuals(rows, lambda row: Constants(launch=50 if row.plan["batch"] == 8 else 0))
    assert found[0] == pytest.approx(np.log(seconds(rows[0], Constants(launch=50)) / 0.1))


def test_file_of_steps_is_refused_with_its_line(tmp_path: Path):
    from armillary.evidence.validate.training.formats import read_cases

    with pytest.raises(InputError, match="cannot be read"):
        read_cases(tmp_path / "none.csv")
