"""Every reader on broken input: see `run.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import run
from fuzz_readers import Reader, readers
from run import fuzz

CASES = 150
READERS = [reader for reader in readers() if reader.name != "et-twins"]  # the compiled one starts slowly


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_nothing_but_clear_errors(reader: Reader) -> None:
    result = fuzz(reader, 0, cases=CASES)
    assert result["failures"] == []
    assert result["refused"] > 0


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


class Broken(Exception):
    """What no reader may raise."""


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
