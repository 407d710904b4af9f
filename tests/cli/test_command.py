"""Help pages: options under headings where they are many, and examples that can be typed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from armillary.cli import COMMANDS, GROUPS, main
from armillary.cli.command import LONG, Command
from armillary.trace import GraphBuilder, Trace, write_trace

Call = Callable[[str], Result]
Commands = list[tuple[str, click.Command]]
ROOT = Path(__file__).parents[2]
OTHERS = ("chakra ", "astra-sim")
RUN = (
    "demo --out", "run", "generate list", "generate show", "machine list", "machine gemm", "collective show",
    "collective time", "plan cost",
)  # fmt: skip
"""Commands whose examples need no file but those of `examples/` and a trace, and are quick."""


def ours(commands: Commands) -> list[tuple[str, Command]]:
    return [(path, each) for path, each in commands if isinstance(each, Command)]


def test_all_but_other_programs_have_examples(commands: Commands) -> None:
    assert {path for path, each in commands if not isinstance(each, Command)} == {
        path for path, _ in commands if path.startswith(OTHERS)
    }
    assert not [path for path, each in ours(commands) if len(each.examples) < 2]


def test_options_of_long_commands_stand_under_headings(commands: Commands) -> None:
    for path, command in ours(commands):
        headed = command.headed(click.Context(command, help_option_names=["-h", "--help"]))
        if sum(map(len, headed.values())) > LONG + 1:
            assert [each.opts[-1] for each in headed.pop("Options")] == ["--help"], path
            headed.pop("What is assumed", None)  # by a published study, in one list
            assert headed and max(map(len, headed.values())) <= 15, path
        else:
            assert list(headed) == ["Options"], path


def test_examples_parse(commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path, command in ours(commands):
        for example in command.examples:
            words = shlex.split(example.partition(" | ")[0])
            name = ["armillary", *path.split()]
            assert words[: len(name)] == name, example
            context: click.Context = main.make_context("armillary", words[1:])
            while isinstance(context.command, click.Group):
                called, found, rest = context.command.resolve_command(
                    context, [*context._protected_args, *context.args]
                )
                assert found is not None
                context = found.make_context(called, rest, parent=context)
            with context:
                assert context.command.help == command.help, example


def test_examples_run(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    builder = GraphBuilder()
    builder.all_reduce("sum", size="1 MiB")
    write_trace("step", Trace.replicate(builder.graph(), ranks=8))
    ran = 0
    for _, command in ours(commands):
        for example in command.examples:
            if example.removeprefix("armillary ").startswith(RUN):
                ran += 1
                assert call(example.removeprefix("armillary ")).exit_code == 0, example
    assert ran > len(RUN)


def test_questions_of_the_first_page(call: Call) -> None:
    page = call("--help").stdout
    assert [line for line in page.splitlines() if line in GROUPS] == list(GROUPS)
    assert len(COMMANDS) - len(list(GROUPS.values())[-1]) <= 16
    folder = ROOT / "src" / "armillary" / "cli"
    for name in COMMANDS:
        module = folder / name.replace("-", "_")
        assert module.is_dir() or module.with_suffix(".py").exists()
    assert os.linesep in page
