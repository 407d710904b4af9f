"""Every file that a command writes: where it may be, and that nothing else is touched."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from armillary.cli.values import PAGE, OutputFile, OutputFolder, OutputPrefix

Call = Callable[[str], Result]
Commands = list[tuple[str, click.Command]]


def test_every_option_that_writes_is_an_output(commands: Commands) -> None:
    words = ("Write", "Draw ", "Save ", "Where to write", "Where the traces go", "to write.")
    outputs = (OutputFile, OutputFolder, OutputPrefix)
    missed = [
        f"{path} {option.opts[-1]}"
        for path, command in commands
        for option in command.params
        if isinstance(option, click.Option)
        and not option.is_flag
        and ("--out" in option.opts or any(word in (option.help or "") for word in words))
        and option.metavar not in (None, "N")
        and not isinstance(option.type, outputs)
    ]
    assert not missed


def test_missing_folders_are_made(inputs: Path, call: Call) -> None:
    assert call("run study.yaml --json a/b/c.json --timeline a/d/t.json --save a/e/r.npz").exit_code == 0
    assert json.loads(Path("a/b/c.json").read_text())["finish_ns"] > 0
    assert Path("a/d/t.json").exists() and Path("a/e/r.npz").exists()


def test_a_file_in_the_way_is_refused_before_the_work(inputs: Path, call: Call) -> None:
    Path("a").write_text("")
    made = call("run study.yaml --json a/b/c.json")
    assert made.exit_code != 0 and "--json a/b/c.json" in made.stderr
    assert "total" not in made.stdout


def test_a_symlink_stays_one(inputs: Path, call: Call) -> None:
    Path("real").mkdir()
    Path("real/x.json").write_text("old")
    Path("real/x.json").chmod(0o640)
    Path("x.json").symlink_to("real/x.json")
    assert call("run study.yaml --json x.json").exit_code == 0
    assert Path("x.json").is_symlink()
    assert json.loads(Path("real/x.json").read_text())
    assert stat.S_IMODE(Path("real/x.json").stat().st_mode) == 0o640
    assert [each.name for each in Path("real").iterdir()] == ["x.json"]


def test_a_symlink_to_nothing_gets_its_file(inputs: Path, call: Call) -> None:
    Path("x.json").symlink_to("new/y.json")
    assert call("run study.yaml --json x.json").exit_code == 0
    assert Path("x.json").is_symlink() and json.loads(Path("new/y.json").read_text())


def test_a_pipe_is_written_and_stays(inputs: Path, call: Call) -> None:
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(Path("pipe").read_text()), daemon=True)
    reader.start()
    assert call("run study.yaml --json link").exit_code == 0
    reader.join(60)
    assert json.loads(got[0])
    assert Path("pipe").is_fifo() and Path("link").is_symlink()
    assert not list(Path().glob("*.part"))


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "link"])
def test_standard_output_holds_nothing_else(inputs: Path, call: Call, name: str) -> None:
    Path("link").symlink_to("/dev/stdout")
    made = call(f"run study.yaml --json {name}")
    assert made.exit_code == 0
    assert json.loads(made.stdout)["finish_ns"] > 0
    assert "all-reduce" in made.stderr
    assert not Path("-").exists() and Path("link").is_symlink()


@pytest.mark.parametrize("kept", [False, True])
def test_standard_output_of_a_process(inputs: Path, kept: bool) -> None:
    """Into a pipe, and into a file that the shell has open, which keeps what stood in it."""
    words = [sys.executable, "-m", "armillary", "run", "study.yaml", "--json", "-"]
    if not kept:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
        assert json.loads(done.stdout)
        return
    with Path("log").open("w") as log:
        log.write("first\n")
        log.flush()
        subprocess.run(words, stdout=log, stderr=subprocess.DEVNULL, check=True, timeout=300)
    first, rest = Path("log").read_text().split("\n", 1)
    assert first == "first" and json.loads(rest)


def test_two_outputs_do_not_share_a_file(inputs: Path, call: Call) -> None:
    Path("b.json").symlink_to("a.json")
    for one, two in (("a.json", "b.json"), ("-", "/dev/stdout")):
        made = call(f"run study.yaml --json {one} --timeline {two}")
        assert made.exit_code != 0 and "writes the same file" in made.stderr
    assert call("run study.yaml --json /dev/null --timeline /dev/null").exit_code == 0
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_prefix_is_not_standard_output(inputs: Path, call: Call) -> None:
    for words in ("trace slice step -o -", "trace convert --from pytorch x.json -o -"):
        made = call(words)
        assert made.exit_code != 0 and "several files" in made.stderr


def test_one_trace_may_go_to_standard_output(inputs: Path, call: Call) -> None:
    made = call("trace slice step.0.et -o - --name work")
    assert made.exit_code == 0 and call("trace slice step.0.et -o same.et --name work").exit_code == 0
    assert made.stdout_bytes == Path("same.et").read_bytes()


def test_a_store_is_a_file(inputs: Path, call: Call) -> None:
    made = call("sweep sweep.yaml --store -")
    assert made.exit_code != 0 and "expected a file" in made.stderr


def test_extras_are_missed_before_the_work(
    inputs: Path, call: Call, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever command: without its extra, an output is refused before the input is even read."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for path, command in commands:
        for option in command.params:
            if not isinstance(option, click.Option) or not isinstance(option.type, OutputFile):
                continue
            name = option.opts[-1]
            if f"{path} {name}" in ("validate reproduce all --html", "machine show --html"):
                continue  # they need neither
            if option.type is PAGE:
                continue  # its scripts come with the package
            if ".png" in (option.help or "") or name == "--html":
                words = f"{path.strip()} {name} x.{'html' if name == '--html' else 'png'}"
                made = call(words)
                assert "pip install armillary" in made.stderr, (words, made.output)
