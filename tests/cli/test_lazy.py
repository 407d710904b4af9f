"""Groups: with a command of their own, and where commands went that had another name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from armillary.cli import COMMANDS, ELSEWHERE, main

Call = Callable[[str], Result]
MOVED = {
    "show": "explain",
    "results": "sweep results",
    "search": "plan search",
    "cost": "plan cost",
    "allocate": "plan allocate",
    "whole-run": "plan whole-run",
    "profile": "trace collect",
    "collect": "trace collect",
    "replay": "trace replay",
    "learn": "generate learn",
    "reproduce": "validate reproduce",
    "platform": "machine",
}


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_an_old_name_says_the_new_place(call: Call, old: str, new: str) -> None:
    made = call(f"{old} something --json x")
    assert made.exit_code == 2
    assert made.stdout == "" and made.stderr.count("\n") == 1
    assert f"no command '{old}' (did you mean '{new}'?)" in made.stderr


def test_every_place_that_is_named_exists() -> None:
    places = set(main.places())
    assert {place for meant in ELSEWHERE.values() for place in meant} <= places
    assert not set(ELSEWHERE) & set(COMMANDS)


def test_a_group_is_a_command_too(inputs: Path, call: Call) -> None:
    for words in ("sweep none.yaml", "plan search none.yaml", "plan none.yaml --machine dgx-h100 --batch 8"):
        made = call(words)
        assert made.exit_code == 2 and "none.yaml: no such file" in made.stderr, made.output
    made = call("validate no-such-validation")
    assert made.exit_code == 2 and "no-such-validation" in made.stderr
    for words, missing in (("sweep", "SWEEP"), ("plan --top 1", "MODEL"), ("sweep results", "STORE")):
        made = call(words)
        assert made.exit_code == 2 and f"Missing argument '{missing}" in made.stderr, made.output


def test_a_file_may_be_called_like_a_command(inputs: Path, call: Call) -> None:
    Path("results").write_text("axes: {}")
    assert "results" in call("sweep ./results").stderr
    assert "Missing argument 'STORE" in call("sweep results").stderr


def test_the_page_of_such_a_group_shows_both(call: Call) -> None:
    groups = {"sweep SWEEP": ["results"], "plan MODEL": ["search", "cost", "allocate", "whole-run"]}
    for usage, commands in groups.items():
        group, argument = usage.split()
        page = call(f"{group} --help").stdout
        assert page.startswith(f"Usage: armillary {group} [OPTIONS] {argument}")
        assert "--json FILE" in page and all(f"\n  {each} " in page for each in commands)
    error = call("sweep x.yaml --nonsense").stderr
    assert "(see 'armillary sweep --help')" in error


def test_a_command_below_a_group_is_found(call: Call) -> None:
    assert "did you mean 'generate micro'" in call("micro").stderr
    assert "did you mean 'validate reproduce themis'" in call("themis").stderr
    assert "did you mean 'check'" in call("trace chek x").stderr
