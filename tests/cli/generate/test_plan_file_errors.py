"""A wrong key of a plan file is told by file and line, one of an option by its name, whatever the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Call = Callable[[str], Result]

COMMANDS = (
    "train llama-3-8b --machine 8xh100",
    "plan llama-3-8b --machine 8xh100",
    "machine compare 8xh100 8xh200 --workload llama-3-8b",
)
WRONG = (
    ("batch: 64\nparallel: {tp: 8, pq: 2}\n", "plan.yaml:2: parallel.pq: unknown key"),
    ("batch: 64\nparallel: {tp: eight}\n", "plan.yaml:2: parallel.tp: got 'eight', expected a whole number"),
    ("batch: 64\ntp: eight\n", "plan.yaml:2: tp: got 'eight', expected a whole number"),
    ("batch: 64\nparallel: 3\ntp: 8\n", "plan.yaml:2: parallel: got 3, expected a mapping"),
    ("batch: 64\nsoftware: nemo\n", "plan.yaml:2: software: unknown key"),
    ("batch: 64\n1: 2\n", "plan.yaml:2: [1]: unknown key"),
    ("parallel: {tp: 8}\n", "plan.yaml:1: missing key 'batch'"),
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize(("text", "problem"), WRONG)
def test_file_line_and_key_are_named(call: Call, words: str, text: str, problem: str) -> None:
    Path("plan.yaml").write_text(text)
    result = call(f"{words} --plan plan.yaml")
    assert result.exit_code == 2 and result.output.startswith(f"armillary: error: {problem}"), result.output
    assert result.output.count("\n") == 1


@pytest.mark.parametrize("words", COMMANDS)
def test_an_option_is_named(call: Call, words: str) -> None:
    Path("plan.yaml").write_text("batch: 64\nmicrobatch: 2\n")
    result = call(f"{words} --plan plan.yaml --microbatch 0")
    assert result.exit_code == 2 and "--microbatch: got 0, expected 1 or more" in result.output


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("", "Missing option '--batch'"),
        ("--batch 64 --lora-targets qkv", "Missing option '--lora-rank'"),
        (
            "--batch 64 --precision fp4",
            "--precision: got 'fp4', but h100-sxm has no peak of it; expected one of",
        ),
    ],
)
def test_a_missing_or_impossible_option_is_named(call: Call, words: str, options: str, problem: str) -> None:
    result = call(f"{words} {options}")
    assert result.exit_code == 2 and problem in result.output, result.output
