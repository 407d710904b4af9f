"""`armillary explain`: text of a saved result, as people read it."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from armillary.cli import main

STUDY = Path(__file__).parents[2] / "examples" / "all_reduce.yaml"


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_a_run_is_explained(tmp_path):
    assert run("run", STUDY, "--save", tmp_path / "r").exit_code == 0
    done = run("explain", tmp_path / "r")
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert lines[0].startswith("Step time ")
    assert lines[1].startswith("Lower bound ")
    assert lines[2].startswith("1. ")
    assert max(map(len, lines)) <= 100


def test_what_is_no_result_is_refused(tmp_path):
    (tmp_path / "r").write_text("no")
    assert run("explain", tmp_path / "r").exit_code == 2
    assert run("explain", tmp_path / "none").exit_code == 2
