"""`armillary validate reproduce all`: one page, of which every verdict follows from the numbers on it."""

from __future__ import annotations

import json
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from armillary.base.errors import InputError
from armillary.cli import main
from armillary.evidence.reproduce import summary
from armillary.evidence.reproduce.judge import Case, above, stated
from armillary.evidence.reproduce.outcome import Claim, Outcome
from armillary.evidence.reproduce.summary import Saved, judged


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["validate", "reproduce", "all", *words], env={"COLUMNS": "100"})


def verdict(cases: list[dict[str, Any]]) -> str:
    """The printed definition, once more."""
    agree = reach = 0
    for case in cases:
        low, high = (nan if end is None else float(end) for end in case["ours"])
        first, last = case["range"]
        first, last = -inf if first is None else first, inf if last is None else last
        if case["ends"]:
            agree += first <= low and high <= last
            reach += low <= last and high >= first
        else:
            agree += first < low and high < last
            reach += low < last and high > first
    if not cases:
        return "open"
    return "holds" if agree == len(cases) else "partly" if agree or reach else "does not hold"


def test_verdicts_of_the_file_follow_from_its_cases(tmp_path: Path) -> None:
    path, page = tmp_path / "all.json", tmp_path / "all.html"
    result = call("--only", "gemm-share", "--only", "wafer-scaling", "--json", str(path), "--html", str(page))
    assert result.exit_code == 0, result.output
    data = json.loads(path.read_text())
    assert "± 10 %" in data["definition"]
    assert [each["name"] for each in data["studies"]] == ["gemm-share", "wafer-scaling"]
    lines = [line for each in data["studies"] for line in each["lines"]]
    assert [line["verdict"] for line in lines] == [verdict(line["cases"]) for line in lines]
    assert result.output.startswith(
        "4 claims of 2 published studies: holds 2, partly 0, does not hold 2, open 0"
    )
    assert "2.51x ± 10 %" in page.read_text() and "all cases agree" in page.read_text()


class Broken:
    """A study that fails."""

    def __init__(self, error: Exception) -> None:
        self.Assumptions = object
        self.error = error

    def run(self, _: object) -> Outcome:
        """Fail."""
        raise self.error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InputError("no such machine"), "no such machine"),
        (ZeroDivisionError("by\nzero"), r"ZeroDivisionError: by\nzero"),
    ],
)
def test_a_study_that_fails_does_not_lose_the_others(
    error: Exception, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = summary.study
    monkeypatch.setattr(summary, "study", lambda name: Broken(error) if name == "case1" else whole(name))
    path = tmp_path / "all.json"
    result = call("--only", "case1", "--only", "gemm-share", "--json", str(path))
    assert result.exit_code == 1
    assert "1 of 2 studies failed: case1" in result.stderr
    assert f"case1: {text}" in result.output and "GEMM is about 70 %" in result.output
    failed, good = json.loads(path.read_text())["studies"]
    assert (failed["error"], failed["lines"], good["error"]) == (text, [], "")


def test_what_is_kept_is_not_run_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = []

    def run(_: object) -> Outcome:
        runs.append(1)
        cases = (Case("", (2.0, 3.0), stated(2.51)), Case("b", inf, above(1)))
        return Outcome("Title", (), (Claim("It is", "a book", "so", cases),), lambda _: None)

    monkeypatch.setattr(summary, "study", lambda _: SimpleNamespace(Assumptions=object, run=run))
    words = ("--only", "case1", "--out", str(tmp_path))
    first, again = call(*words), call(*words)
    assert first.exit_code == again.exit_code == 0
    assert first.output == again.output and len(runs) == 1
    assert Saved(tmp_path).get("case1") is not None
    # Of another program, damaged, or with keys that are not ours: run again.
    saved = tmp_path / "case1.json"
    data = json.loads(saved.read_text())
    odd = {**data, "lines": [{**data["lines"][0], "verdict": "maybe"}]}
    for text in (
        json.dumps({**data, "program": "another"}),
        "{",
        "[]",
        json.dumps({**data, "more": 1}),
        json.dumps(odd),
    ):
        saved.write_text(text)
        assert Saved(tmp_path).get("case1") is None
    assert call(*words).exit_code == 0 and len(runs) == 2
    assert Saved(tmp_path).get("case1") is not None


def test_a_failure_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(summary, "study", lambda _: Broken(InputError("no")))
    assert call("--only", "case1", "--out", str(tmp_path)).exit_code == 1
    assert not list(tmp_path.iterdir())
    assert judged("case1").error == "no"


def test_a_study_that_is_not_there_is_refused() -> None:
    assert call("--only", "case9").exit_code == 2


@pytest.mark.slow
def test_all(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    result = call("--json", str(path))
    assert result.exit_code == 0, result.output
    for each in json.loads(path.read_text())["studies"]:
        assert each["lines"] and not each["error"]
        for line in each["lines"]:
            assert line["verdict"] == verdict(line["cases"]), line["claim"]
