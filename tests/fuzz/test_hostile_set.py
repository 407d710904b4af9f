"""The hostile set through the command line: one clear line, soon, in little memory, and nothing started."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from hostile_set import Hostile, good_files, hostile_set, kinds, place

from armillary.cli import main

SECONDS = 30
"""Of processor time: a busy machine is no reader's fault."""
STUCK_SECONDS = 300
BYTES = 4 << 30
FAST = 80
"""Of so many one is tried in the fast run."""


def warm(folder: Path) -> None:
    """Read a good file of each kind here, so that no child has to import and compile."""
    for kind in kinds().values():
        (folder / kind.file).write_bytes(kind.seed())
        with suppress(Exception):
            CliRunner().invoke(main, kind.words.split())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, in which all good files are."""
    monkeypatch.setenv("COLUMNS", "100")
    good = tmp_path / "good"
    good.mkdir()
    good_files(good)
    (tmp_path / "warm").mkdir()
    good_files(tmp_path / "warm")
    monkeypatch.chdir(tmp_path / "warm")
    warm(tmp_path / "warm")
    return tmp_path


def call(words: list[str], folder: Path) -> tuple[int, str]:
    """Run a command in a process of its own, below the limits; return its status and what it said."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            said = os.open(folder / "said", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
            resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            os.chdir(folder)
            main(words)
        except SystemExit as exit:
            status = int(exit.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    end = time.monotonic() + STUCK_SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), (folder / "said").read_text(errors="replace")
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGALRM, "stuck"


def problem(one: Hostile, folder: Path) -> str:
    """Return what is wrong with how a file of the set is met, or nothing."""
    here = folder / "here"
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(folder / "good", here)
    place(one, here)
    status, said = call(one.words.split(), here)
    errors = [line for line in said.splitlines() if line.startswith("armillary: error:")]
    if "Traceback" in said or status not in (0, 2, 3, 4):
        last = said.strip().splitlines()[-1:]
        return f"status {status}: {last}"
    if status == 2 and len(errors) != 1 and "verdict:" not in said:
        return f"{len(errors)} errors: {said[-300:]}"
    if "Warning" in said:
        return f"a warning of a library: {said[-300:]}"
    if (here / "pwned").exists():
        return "a program was started"
    return ""


def test_the_set_is_large_and_has_all_readers() -> None:
    made = list(hostile_set())
    assert len(made) >= 300
    # Fewer than targets of the fuzzer: several of these are parts of one file, or have no command of their own.
    assert len({one.kind for one in made}) >= 42


@pytest.mark.slow
def test_what_is_broken_was_good(folder: Path) -> None:
    """Of a file that is refused as it is, breaking it further tells nothing."""
    refused = {}
    for name, kind in kinds().items():
        here = folder / name
        shutil.copytree(folder / "good", here)
        (here / kind.file).write_bytes(kind.seed())
        status, said = call(kind.words.split(), here)
        if status:
            refused[name] = f"{status}: {said[-200:]}"
    assert refused == {}


def test_a_part(folder: Path) -> None:
    found = {f"{one.kind}, {one.rule}": problem(one, folder) for one in list(hostile_set())[7::FAST]}
    assert {name: text for name, text in found.items() if text} == {}


@pytest.mark.slow
def test_all(folder: Path) -> None:
    found = {f"{one.kind}, {one.rule}": problem(one, folder) for one in hostile_set()}
    assert {name: text for name, text in found.items() if text} == {}
