"""`armillary sweep` from the command line, and `armillary.sweep` from Python."""

from __future__ import annotations

import contextlib
import csv
import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import armillary
from armillary.base.errors import InputError
from armillary.cli import main

SWEEP = """
study:
  workload: {collective: all-reduce, size: 1 MB}
  platform: {network: [{name: ring, topology: Ring, size: 4, bandwidth: 1 GB/s, latency: 1 us}]}
vary:
  workload.size: [1 MB, 2 MB]
  platform.network.ring.size: {values: [2, 4, 8, 16], name: ring}
where: [npus <= 8]
objectives: [minimize step_time]
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "rings.yaml"
    path.write_text(SWEEP)
    return path


def call(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["sweep", *map(str, words), "--executor", "serial"])
    return done.exit_code, done.output


def test_the_best_points_stand_in_a_table_and_all_in_files(sweep: Path) -> None:
    folder = sweep.parent
    code, text = call(sweep, "--top", 2, "--csv", folder / "a.csv", "--json", folder / "a.json")
    assert code == 0, text
    lines = text.splitlines()
    assert lines[0].startswith("8 of 8 points done now, in ")
    assert lines[0].endswith(f" kept in {folder / 'rings.sqlite'}")
    assert lines[2] == "Best 2 of 6 points: least step time"
    assert lines[3].split() == ["#", "size", "ring", "step", "time", "NPUs", "communication"]
    assert [line.split()[:4] for line in lines[5:7]] == [["1", "1", "MB", "2"], ["2", "1", "MB", "4"]]
    assert "8 points: 6 ok, 2 rejected" in lines
    assert lines[-3].split()[:5] == ["2", "rejected", "not", "npus", "<="]
    table = list(csv.DictReader((folder / "a.csv").open()))
    assert [row["number"] for row in table] == [str(number) for number in range(8)]
    assert (table[3]["status"], table[3]["step_time"], table[3]["ring"]) == ("rejected", "", "16")
    document = json.loads((folder / "a.json").read_text())
    assert document["units"]["step_time"] == "s" and len(document["rows"]) == 8
    assert float(table[0]["step_time"]) == document["rows"][0]["measures"]["step_time"]
    assert "0 of 8 points done now" in call(sweep)[1]


def test_a_dry_run_counts_and_leaves_nothing(sweep: Path) -> None:
    code, text = call(sweep, "--dry-run")
    assert code == 0
    assert text == "8 points: 6 to simulate, 2 rejected\n2  rejected  not npus <= 8: npus 16 NPUs\n"
    assert [path.name for path in sweep.parent.iterdir()] == ["rings.yaml"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--executor", "rya"], "got 'rya', expected"),
        (["--workers", "0"], "'--workers': 0 is not in the range x>=1"),
        (["--dry-run", "--csv", "a.csv"], "--dry-run writes nothing"),
        (["--csv", "rings.yaml/where.csv"], "rings.yaml' is not a folder"),
        (["--store", "rings.yaml"], "rings.yaml: is another kind of file, expected a store of sweeps"),
    ],
)
def test_what_cannot_be_is_said(
    sweep: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sweep.parent)
    done = CliRunner().invoke(main, ["sweep", "rings.yaml", *words])
    assert done.exit_code == 2 and message in done.output, done.output
    assert sweep.read_text() == SWEEP


def rows(path: Path) -> int:
    """Count the points that are kept; 0 while there is no table yet."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as base:
            return int(base.execute("SELECT count(*) FROM work").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def test_ctrl_c_says_what_is_done_and_how_to_go_on(tmp_path: Path) -> None:
    sizes = ", ".join(f"{size} MB" for size in range(1, 2000))
    (tmp_path / "s.yaml").write_text(SWEEP.replace("1 MB, 2 MB", sizes))
    # A shell that runs the tests in the background has them, and what they start, ignore the signal.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heard}; from armillary.cli import main; main()"
    words = [sys.executable, "-c", code, "sweep", "s.yaml", "--executor", "serial"]
    run = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while rows(tmp_path / "s.sqlite") < 1:
        assert run.poll() is None
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=600)
    assert run.returncode == 130
    assert " of 7,996 points are done and kept in s.sqlite; the same command goes on from there" in errors
    assert not (tmp_path / "s.lock").exists()


def test_from_python_without_a_store_nothing_is_kept(sweep: Path) -> None:
    pandas = pytest.importorskip("pandas")
    results = armillary.sweep(sweep, executor="serial")
    assert [path.name for path in sweep.parent.iterdir()] == ["rings.yaml"]
    assert results.best is not None and results.best.number == 0
    assert [row.number for row in results.ranked] == [0, 1, 4, 2, 5, 6] or len(results.ranked) == 6
    frame = results.frame()
    assert isinstance(frame, pandas.DataFrame) and frame.shape[0] == 8
    assert list(frame.columns[:5]) == ["number", "size", "ring", "status", "reason"]
    assert frame.step_time.min() == results.best.measures["step_time"]


def test_a_missing_extra_is_named(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    results = armillary.sweep(sweep, executor="serial")
    with pytest.raises(InputError, match=r"pip install armillary\[data\]"):
        results.frame()
    with pytest.raises(InputError, match=r"pip install armillary\[ray\]"):
        armillary.sweep(sweep, executor="ray")


SENDS = """
study:
  workload:
    generate: {model: mixtral-8x7b, batch: 8, sequence: 128, parallel: {tp: 4, etp: 1}, experts: {dispatcher: deepep}}
  platform:
    network: [{topology: Switch, size: 4, bandwidth: 100 GB/s, latency: 1 us}]
    npu: {peak: 100 TFLOP/s, memory: {bandwidth: 1 TB/s}}
    compute: {roofline: true}
vary:
  workload.generate.parallel.ep: [1, 4]
objectives: [minimize step_time]
"""


def test_what_has_no_effect_in_some_points_is_said(tmp_path: Path) -> None:
    path = tmp_path / "experts.yaml"
    path.write_text(SENDS)
    code, text = call(path)
    assert code == 0 and "warning: experts.dispatcher deepep has no effect: with ep 1" in text, text
    assert "(1 of the 2 points above)" in text
    code, text = call(path, "--dry-run")
    assert code == 0 and "experts.dispatcher deepep has no effect: with ep 1" in text, text
    assert "(1 of the first 2 points)" in text


def test_a_dry_run_says_that_a_collective_has_no_kernels(tmp_path: Path) -> None:
    path = tmp_path / "peak.yaml"
    path.write_text(
        "study: {platform: {preset: dgx-h100}, workload: {collective: all-reduce, size: 1 MiB}}\n"
        "vary: {platform.npu.peak: [1 PFLOP/s, 2 PFLOP/s]}\n"
    )
    code, text = call(path, "--dry-run")
    assert (
        code == 0
        and "platform.npu.peak has no effect on time: a collective alone has no kernels (2 of" in text
    )
