"""Tables, JSON, CSV and the picture of a sweep."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from rich.console import Console

from armillary.base.errors import InputError
from armillary.evidence.micro import bandwidth_picture, measure, measure_beside, tables, write_csv, write_json
from armillary.evidence.micro.plot import lines_of
from armillary.platform import Dimension, Platform
from armillary.workload.micro import sweep

PLATFORM = Platform((Dimension("node", "Switch", 8, 100.0, 500.0),))


@pytest.fixture(scope="module")
def results():
    found = measure(
        sweep(["all-reduce", "all-gather", "barrier", "ring"], 8, [1 << 10, 1 << 20], [2, 8]), PLATFORM
    )
    return found + measure_beside(found, [0.5], PLATFORM)


def test_tables(results):
    console = Console(width=120)
    with console.capture() as captured:
        for table in tables(results):
            console.print(table)
    text = captured.get()
    titles = [line for line in text.splitlines() if "ranks" in line]
    assert [title.strip() for title in titles][:2] == [
        "all-reduce, 4 groups of 2 ranks",
        "all-reduce, 8 ranks",
    ]
    assert len(titles) == 8 + 6 and "beside compute" in titles[-1]
    # 2 log2(8) x 2 x 500 ns + 14/8 x 1 MiB / 100 GB/s = 24.35 us
    assert "1 MiB 262,144 float32 24.35 µs 43.06 GB/s 75.36 GB/s" in " ".join(text.split())


def test_files(results, tmp_path):
    write_json(tmp_path / "a.json", results, PLATFORM, "physical")
    write_csv(tmp_path / "a.csv", results)
    facts = json.loads((tmp_path / "a.json").read_text())
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert facts["profile"] == "physical" and facts["platform"]["npus"] == 8
    assert facts["warnings"] == list(dict.fromkeys(text for each in results for text in each.warnings))
    assert len(rows) == len(facts["results"]) == len(results)
    for row, fact in zip(rows, facts["results"], strict=True):
        assert row == {key: "" if value is None else str(value) for key, value in fact.items()}
    assert rows[0] | {"time_ns": ""} == rows[0] | {
        "test": "all-reduce", "members": "2", "groups": "4", "size": "1024", "count": "256", "element": "float32",
        "ratio": "", "time_ns": "", "hidden": "",
    }  # fmt: skip


def test_tests_that_agree_share_a_line(results):
    lines = {(line.members, *line.tests): sorted(line.points) for line in lines_of(results)}
    both = [1 << 10, 1 << 20]
    assert lines == {
        (2, "all-reduce", "all-gather"): both, (8, "all-reduce", "all-gather"): both,
        (2, "ring"): both, (8, "ring"): both,
    }  # fmt: skip


def test_picture(results, tmp_path):
    pytest.importorskip("matplotlib")
    for suffix in (".png", ".svg"):
        bandwidth_picture(results, PLATFORM, tmp_path / f"a{suffix}")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "a.svg").read_text()
    assert "port of node: 100 GB/s" in text and "ring, 8 ranks" in text


def test_nothing_to_draw(results, tmp_path: Path):
    with pytest.raises(InputError, match="nothing to draw"):
        bandwidth_picture(
            [each for each in results if each.case.test == "barrier"], PLATFORM, tmp_path / "a.png"
        )
