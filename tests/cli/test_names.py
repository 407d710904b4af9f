"""One name for one thing: every option of every command, held to one table."""

from __future__ import annotations

import re
from collections.abc import Callable

import click
import pytest
from click.testing import Result

from armillary.cli.options import OTHER_NAMES
from armillary.cli.values import OutputFile, OutputFolder, OutputPrefix
from armillary.convert import names

Commands = list[tuple[str, click.Command]]

FORM = {
    "--json": {"FILE"},
    "--plot": {"FILE"},
    "--html": {"FILE"},
    "--csv": {"FILE"},
    "--save": {"FILE"},
    "--timeline": {"FILE"},
    "--links": {"FILE"},
    "--store": {"FILE"},
    "--out": {"DIR", "FILE", "PREFIX", "OUT"},
    "--machine": {"FILE|PRESET"},
    "--system": {"JSON"},
    "--network": {"YAML"},
    "--comm-groups": {"JSON"},
    "--ranks": {"N"},
    "--workers": {"N"},
    "--seed": {"N"},
    "--top": {"N"},
}
"""Option -> what it takes, in whatever command. OUT is a file or a prefix, as the input is."""
KEPT = {("generate train", "--write"), ("trace convert", "--npus"), ("trace convert", "--groups")} | {
    ("generate micro", "--groups")
}
"""Old names that other programs call, and what has such a name but means sizes of groups."""
OTHERS = ("chakra ", "astra-sim")
"""Commands that take the flags of other programs."""


def of_formats(command: click.Command) -> list[click.Parameter]:
    """Return the options of all formats that ``trace convert`` reads."""
    contexts = [
        command.make_context(
            "convert",
            ["--from", name, "x", "-o", "y"],
            resilient_parsing=True,
            help_option_names=["-h", "--help"],
        )
        for name in names()
    ]
    found = [option for context in contexts for option in command.get_params(context)]
    # Click keeps the names of --help from whatever context came first.
    return [option for option in found if "--help" not in option.opts]


def options(commands: Commands) -> list[tuple[str, click.Option]]:
    """Return the options that we name: not other programs', nor what a published study assumes."""
    return [
        (path, option)
        for path, command in commands
        for option in [*command.params, *(of_formats(command) if path == "trace convert" else ())]
        if isinstance(option, click.Option)
        and not path.startswith(OTHERS)
        and getattr(option, "heading", "") != "What is assumed"
    ]


def test_what_means_the_same_is_called_the_same(commands: Commands) -> None:
    wrong = [
        f"{path} {name}: expected {OTHER_NAMES[name.lstrip('-')]}"
        for path, option in options(commands)
        for name in option.opts
        if name.lstrip("-") in OTHER_NAMES and (path, name) not in KEPT
    ]
    assert not wrong


def test_what_is_called_the_same_takes_the_same(commands: Commands) -> None:
    checked = set()
    for path, option in options(commands):
        for name in set(option.opts) & set(FORM):
            assert not option.is_flag and option.metavar in FORM[name], (path, name, option.metavar)
            checked.add(name)
    assert checked == set(FORM)


def test_a_file_of_a_kind_is_written_by_the_option_of_that_kind(commands: Commands) -> None:
    """Whatever its help says it writes, an option that writes JSON is ``--json``, and so on."""
    kinds = {
        r"\bas JSON": "--json",
        r"^Draw ": "--plot",
        r"\bpage\b": "--html",
        r"all rows as a table": "--csv",
    }
    drawn_as_page = {("machine show", "--html")}
    for path, option in options(commands):
        if not isinstance(option.type, OutputFile):
            continue
        for pattern, name in kinds.items():
            if re.search(pattern, option.help or "") and (path, option.opts[-1]) not in drawn_as_page:
                assert name in option.opts, (path, option.opts, option.help)


def test_every_folder_and_prefix_is_out(commands: Commands) -> None:
    for path, option in options(commands):
        # A captured step goes to --out, and on demand to a trace, too.
        if isinstance(option.type, (OutputFolder, OutputPrefix)) and option.opts != ["--traces"]:
            assert option.opts[:2] == ["-o", "--out"], (path, option.opts)


def test_a_short_name_has_one_meaning(commands: Commands) -> None:
    found = {
        (short, next(name for name in option.opts if name.startswith("--")))
        for _, option in options(commands)
        for short in option.opts
        if not short.startswith("--")
    }
    assert found == {("-o", "--out"), ("-m", "--module")}


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (
            "trace convert --from text work.txt --npus 4 -o x",
            "trace convert --from text work.txt --ranks 4 --out x",
        ),
        ("generate train m --ranks 8 --batch 8 --write x", "generate train m --ranks 8 --batch 8 --out x"),
    ],
)
def test_names_that_other_programs_call_stay(words: str, same: str, commands: Commands) -> None:
    parsed = []
    for line in (words, same):
        path = next(path for path, _ in commands if line.startswith(f"{path} "))
        rest = line.removeprefix(path).split()
        parsed.append(
            dict(commands)[path]
            .make_context(path, rest, resilient_parsing=True, help_option_names=["-h", "--help"])
            .params
        )
    assert parsed[0] == parsed[1]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("run study.yaml --picture a.png", "No such option '--picture' (did you mean '--plot'?)"),
        ("generate train m --on hgx-h100", "'--on' (did you mean '--machine'?)"),
        ("trace convert --from text x --output y", "'--output' (did you mean '--out'?)"),
        ("trace replay step --nproc 2", "'--nproc' (did you mean '--ranks'?)"),
        ("sweep s.yaml --jobs 2", "'--jobs' (did you mean '--workers'?)"),
        ("sweep s.yaml --worker 2", "'--worker' (did you mean '--workers'?)"),
        ("trace info x -n 2", "No such option '-n'"),
        ("run study.yaml --zzzz", "No such option '--zzzz' (see"),
    ],
)
def test_another_name_says_ours(call: Callable[[str], Result], words: str, hint: str) -> None:
    made = call(words)
    assert made.exit_code == 2 and hint in made.stderr, made.stderr
