"""The JSON report: exact numbers, units in the keys, files complete or absent."""

from __future__ import annotations

import dataclasses
import json

import pytest

from armillary.base.errors import InputError
from armillary.report import to_json, write_json

UNITS = ("_ticks", "_ns", "_bytes", "_bytes_per_ns", "_ratio", "_count", "_flops", "_flops_per_s")
PLAIN = {"version", "dimension", "slowest_rank", "representative_rank", "finish_ticks_by_rank"}


def test_the_example(timeline):
    found = to_json(timeline)
    assert found["finish_ticks"] == found["finish_ns"] == 700
    assert found["finish_ticks_by_rank"] == [[640, 3], [700, 4], [650, 1]]
    assert [row["ranks_count"] for row in found["classes"]] == [3, 4, 1]
    assert found["slowest_rank"] == 3
    assert found["collectives"][0]["bus_bandwidth_bytes_per_ns"] == pytest.approx(600 / 220 * 14 / 8)
    assert found["dimensions"][1]["utilisation_of_run_ratio"] == pytest.approx(150 / 700)
    assert found["critical_path"]["waiting_ticks"] == 30
    assert found["warnings"] == ["comm_size 0 of node 7 taken as 1"]


def test_every_class_adds_up(timeline):
    for row in to_json(timeline)["classes"]:
        parts = ("compute", "cpu", "communication", "waiting", "memory", "idle")
        assert sum(row[f"{part}_ticks"] for part in parts) == row["finish_ticks"]


def test_every_number_names_its_unit(timeline):
    def check(value, key=""):
        if isinstance(value, dict):
            for name, inner in value.items():
                check(inner, name)
        elif isinstance(value, list):
            for inner in value:
                check(inner, key)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            assert key.endswith(UNITS) or key in PLAIN, key

    check(to_json(timeline))


def test_ticks_that_are_not_a_nanosecond(timeline):
    made = dataclasses.replace(timeline, info={**timeline.info, "tick_ns": 0.5})
    found = to_json(made)
    assert (found["finish_ticks"], found["finish_ns"]) == (700, 350.0)
    assert found["collectives"][0]["algorithm_bandwidth_bytes_per_ns"] == pytest.approx(600 / 110)


def test_the_file_is_strict_json_and_is_replaced_whole(timeline, tmp_path):
    path = tmp_path / "report.json"
    path.write_text("old")
    write_json(timeline, path)
    assert json.loads(path.read_text(encoding="utf-8")) == to_json(timeline)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]


def test_a_folder_that_cannot_be_made_is_named(timeline, tmp_path):
    (tmp_path / "nowhere").touch()
    with pytest.raises(InputError, match=r"nowhere.report\.json: cannot be written"):
        write_json(timeline, tmp_path / "nowhere" / "report.json")
