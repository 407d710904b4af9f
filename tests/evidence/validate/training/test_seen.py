"""Which rows constants were fitted to."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from armillary.evidence.validate.training import vtrain
from armillary.evidence.validate.training.seen import digests, plan_digest, row_digest, states

HEADER = ",".join(vtrain.COLUMNS) + "\n"
ROWS = (
    "8,32,4,1024,16,24,1024,2,2,2,219.7",
    "8,64,4,1024,16,24,1024,2,2,2,400",
    "8,32,4,1024,16,24,1024,4,1,2,300",
)


def cases(tmp_path, *rows):
    path = tmp_path / "rows.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n")
    return list(vtrain.cases(path))


def test_how_a_row_is_written_does_not_count(tmp_path):
    first, second, third = cases(tmp_path, *ROWS)
    again = cases(tmp_path, "", ROWS[2], "", ROWS[0].replace("219.7", "219.700"))
    assert [row_digest(case) for case in again] == [row_digest(third), row_digest(first)]
    assert plan_digest(first) == plan_digest(second) != plan_digest(third)
    assert row_digest(first) != row_digest(replace(first, measured=219.8))


def test_states(tmp_path):
    first, second, third = cases(tmp_path, *ROWS)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"title": "mine", "devices": {}, "seen": digests([first])}))
    mine = [replace(case, stack=str(path)) for case in (first, second, third)]
    assert states(mine) == ["fitted", "twin", "unseen"]
    # A software that adds to another has seen what that has.
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump({"title": "other", "base": str(path)}))
    assert states([replace(first, stack=str(other))]) == ["fitted"]


@pytest.mark.shared
def test_constants_know_the_rows_of_their_set(shared):
    found = list(vtrain.cases(shared / "measured/vtrain/data_ground_truth_multi.csv"))
    assert set(states(found)) == {"fitted"}
