"""Options of all commands: how they are called, and that their metavars say what they take."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest
from click.testing import Result

Call = Callable[[str], Result]
Commands = list[tuple[str, click.Command]]
EXAMPLES = {"SIZE": "1GiB", "TIME": "5ms", "BANDWIDTH": "1GB/s"}


def test_no_option_has_an_underscore(commands: Commands) -> None:
    """But those of `chakra`, which takes the flags of other programs."""
    wrong = [
        f"{path} {name}"
        for path, command in commands
        for option in command.params
        for name in (*option.opts, *option.secondary_opts)
        if isinstance(option, click.Option) and "_" in name and not path.startswith("chakra")
    ]
    assert not wrong


@pytest.mark.parametrize("command", ["train", "memory"])
def test_metavars_of_a_plan_say_the_unit(call: Call, commands: Commands, command: str) -> None:
    found = dict(commands)[f"generate {command}"]
    checked = 0
    for option in found.params:
        if isinstance(option, click.Option) and option.metavar in EXAMPLES and option.opts[0] != "--capacity":
            checked += 1
            words = f"generate {command} llama-3-8b --ranks 8 --batch 8 {option.opts[0]}"
            for kind, text in EXAMPLES.items():
                output = call(f"{words} {text}").output
                assert ("unknown unit" in output) == (kind != option.metavar), (option.opts, text, output)
    assert checked >= 2


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("simulate x", "did you mean 'run'"),
        ("Trace x", "did you mean 'trace'"),
        ("convert x", "did you mean 'trace convert'"),
        ("evaluate x", "did you mean 'generate learn evaluate'"),
        ("generate train llama-3-8b --sequence 4k", "write 4000, or 4096"),
        ("generate train llama-3-8b --early_stop", "--early-stop"),
    ],
)
def test_what_others_write(call: Call, words: str, hint: str) -> None:
    made = call(words)
    assert made.exit_code == 2 and hint in made.stderr
