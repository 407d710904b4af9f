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
    summary, _, reasons = done.output.partition("\nWhy ")
    assert summary.startswith("Step time ") and "\nLower bound " in summary
    assert reasons.splitlines()[1].startswith("1. ")
    assert max(map(len, done.output.splitlines())) <= 100


def test_files_are_written_of_a_saved_result(tmp_path):
    """What `run` writes at once, it writes of the saved result later."""
    asked = ["--json", "--timeline", "--save"]
    for folder, words in (("one", ["run", STUDY]), ("two", ["explain", tmp_path / "one" / "save"])):
        files = [word for name in asked for word in (name, tmp_path / folder / name[2:])]
        assert run(*words, *files).exit_code == 0
    for name in ("json", "timeline"):
        assert (tmp_path / "one" / name).read_text() == (tmp_path / "two" / name).read_text()


def test_what_is_no_result_is_refused(tmp_path):
    (tmp_path / "r").write_text("no")
    assert run("explain", tmp_path / "r").exit_code == 2
    assert run("explain", tmp_path / "none").exit_code == 2
