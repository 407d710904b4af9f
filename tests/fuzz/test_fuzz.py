"""Every reader on broken input: see `run.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import fuzz_coverage
import fuzz_files
import pytest
import run
from fuzz_mutations import BYTES
from fuzz_readers import Reader, readers
from run import attempt, corpus, fuzz, guided

from armillary.base.errors import InputError

CASES = 150
FEW = 8
"""Cases of a reader of small files in the fast run."""
CASES_OF_MAZE = 10_000
READERS = [reader for reader in readers() if reader.name != "et-twins"]  # the compiled one starts slowly


FILES = {row[0] for row in fuzz_files.rows()}


@pytest.mark.parametrize(
    "reader", [reader for reader in READERS if not reader.slow], ids=lambda reader: reader.name
)
def test_nothing_but_clear_errors(reader: Reader) -> None:
    result = fuzz(reader, 0, cases=FEW if reader.name in FILES else CASES)
    assert result["failures"] == []
    assert result["refused"] > 0 or reader.name in FILES


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_many_cases_of_small_files_and_programs(reader: Reader) -> None:
    assert fuzz(reader, 200, cases=3 if reader.slow else CASES)["failures"] == []


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_seeds_and_the_corpus(reader: Reader, tmp_path: Path) -> None:
    """What is given is read or refused; of the seeds of small files each is read, or breaking it shows nothing."""
    for data in corpus(reader):
        assert attempt(reader, data, tmp_path, 6) in ("read", "refused")
    if reader.name in FILES:
        assert attempt(reader, reader.seeds()[0], tmp_path, 6) == "read"


class Broken(Exception):
    """What no reader may raise."""


def maze(path: Path, deepest: list[int]) -> None:
    """Go on where a byte is right, seven times; each has a line of its own."""
    data, depth = path.read_bytes().ljust(7), 0
    if data[0] & 7 == 5:
        depth = 1
        if data[1] & 7 == 2:
            depth = 2
            if data[2] & 7 == 6:
                depth = 3
                if data[3] & 7 == 1:
                    depth = 4
                    if data[4] & 7 == 4:
                        depth = 5
                        if data[5] & 7 == 3:
                            depth = 6
                            if data[6] & 7 == 7:
                                depth = 7
    deepest.append(depth)
    raise InputError("no way out")


@pytest.mark.parametrize("monitored", [True, False])
def test_guidance_reaches_what_chance_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, monitored: bool
) -> None:
    """By chance each byte takes eight times as many cases as the one before."""
    if monitored and not hasattr(sys, "monitoring"):
        pytest.skip("Python 3.12 has sys.monitoring")
    if not monitored:
        monkeypatch.delattr(sys, "monitoring", raising=False)
        # Otherwise one of 40 calls of a function that showed nothing new is looked at, and guides hardly.
        monkeypatch.setattr(fuzz_coverage, "_RARELY", 1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "WATCHED", 1)
    monkeypatch.setattr(run, "CORPUS", tmp_path)
    monkeypatch.setattr(fuzz_coverage, "_ROOT", str(Path(__file__).parent))
    by_chance, led = list[int](), list[int]()
    for search, deepest in ((fuzz, by_chance), (guided, led)):
        reader = Reader("maze", "w", lambda: [bytes(7)], BYTES, partial(maze, deepest=deepest))
        for first in (0, 100_000):
            assert search(reader, first, cases=CASES_OF_MAZE)["failures"] == []
    assert max(led) > max(by_chance) and max(led) >= 4, (max(led), max(by_chance))


def test_guided_cases_go_towards_new_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "CORPUS", tmp_path / "corpus")
    reader = next(reader for reader in READERS if reader.name == "costs")
    result = guided(reader, 0, 1.5, keep=True)
    assert result["failures"] == [] and result["lines"] > 0 and result["pool"] >= 1
    assert (
        sum(path.stat().st_size for path in (tmp_path / "corpus").rglob("*") if path.is_file())
        <= run.KEPT_BYTES
    )


def test_the_corpus_is_small() -> None:
    files = [path for path in run.CORPUS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_000_000


@pytest.mark.slow
def test_nothing_but_clear_errors_for_ten_minutes() -> None:
    minutes = float(os.environ.get("FUZZ_SECONDS", "600")) / 60
    command = [
        sys.executable,
        str(Path(__file__).with_name("run.py")),
        "--minutes",
        str(minutes),
        "--first",
        "1000",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_harness_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CASE_SECONDS", 0.1)

    def read(path: Path) -> None:
        data = path.read_bytes()
        if data[:1] == b"x":
            raise Broken
        while data[:1] == b"y":
            pass

    seeds = [b"x", b"y", b"z"]
    reader = Reader("broken", "w", lambda: seeds, [lambda data, rng: data], read)
    result = fuzz(reader, 0, cases=12)
    assert {failure["error"].partition(" at ")[0] for failure in result["failures"]} == {
        "Broken: ",
        "more than 0.1 s",
    }
    assert result["cases"] == 12 == result["read"] + result["failed"]
