"""The table, the JSON, the timeline and the picture of several jobs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary import Timeline, report
from armillary.cli import main

STUDY = """
jobs:
  - {name: first, workload: {collective: all-reduce, size: 64 MiB}, npus: 0-7}
  - {name: second, workload: {collective: all-reduce, size: 64 MiB}, npus: 4-11}
  - {name: third, workload: {collective: all-reduce, size: 64 MiB}, npus: 4, arrival: 1 ms}
platform:
  network: [{topology: Switch, size: 16, bandwidth: 100 GB/s, latency: 500 ns}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "s.yaml").write_text(STUDY)
    names = {"json": "o.json", "timeline": "t.json", "plot": "p.png", "save": "r"}
    files = [f"--{option}={folder / name}" for option, name in names.items()]
    done = CliRunner().invoke(main, ["run", str(folder / "s.yaml"), *files], catch_exceptions=False)
    (folder / "out.txt").write_text(done.output)
    assert done.exit_code == 0, done.output
    return folder


def test_table(folder: Path) -> None:
    lines = (folder / "out.txt").read_text().splitlines()
    rows = {
        line.split()[0]: line
        for line in lines
        if line.startswith(("first ", "second ", "third ")) and " x " in line
    }
    assert lines[0].startswith("3 jobs end after ") and lines[0].endswith(" on 16 NPUs")
    assert "2.00 x" in rows["first"] and rows["first"].endswith("second")
    assert "1.00 x" in rows["third"] and rows["third"].endswith("-")
    assert max(map(len, lines)) <= 100


def test_json(folder: Path) -> None:
    found = json.loads((folder / "o.json").read_text())
    first, _, third = found["jobs"]
    assert (found["schema"], found["npus_count"]) == ("armillary-report", 16)
    assert first["duration_ns"] == first["end_ns"] == found["jobs"][1]["end_ns"]
    assert first["slowdown_ratio"] == first["duration_ticks"] / first["alone_ticks"]
    assert first["shares_npus"] == [{"job": "second", "npus_count": 4}]
    assert third["npus"] == [12, 13, 14, 15] and third["arrival_ns"] == third["start_ns"] == 1_000_000
    assert found["finish_ticks"] == max(job["end_ticks"] for job in found["jobs"])


def test_timeline_has_a_process_for_the_ranks_of_each_job(folder: Path) -> None:
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {name.split(",")[0] for name in names.values()} == {"first", "second", "third"}
    slices = [
        e
        for e in events
        if e["ph"] == "X" and e["cat"] == "collective" and names[e["pid"]].startswith("third")
    ]
    assert [e["ts"] for e in slices] == [1000.0] and slices[0]["name"] == "all-reduce"
    threads = [e["tid"] for e in events if e["name"] == "thread_name"]
    assert len(set(threads)) == len(threads)


def test_picture_and_saved_machine(folder: Path) -> None:
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")
    machine = Timeline.load(folder / "r")
    assert machine.n_ranks == 16
    assert {str(name) for name in machine.table(int(machine.rank_class[5])).name} == {
        "first: all-reduce",
        "second: all-reduce",
    }
    assert report.headline(machine).endswith("on 16 NPUs")


def test_another_profile_is_refused(folder: Path) -> None:
    done = CliRunner().invoke(main, ["run", str(folder / "s.yaml"), "--profile", "astra-sim"])
    assert done.exit_code == 2 and "several jobs are for profile physical" in done.output
