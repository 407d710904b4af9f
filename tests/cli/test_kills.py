"""Commands that are killed at random moments: what they write is whole or not there, and nobody stays behind.

``KILLS=200`` in the environment says how many kills there are in all.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

KILLS = int(os.environ.get("KILLS", "40"))
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PATIENCE = 300.0
"""Seconds after which a process that should end hangs: far more than one takes on any machine."""
SWEEP = """\
study:
  workload: {collective: all-reduce, size: 16 MB}
  platform: {network: [{name: ring, topology: Ring, size: 8, bandwidth: 1 GB/s, latency: 1 us}]}
vary:
  platform.network.ring.latency: [1 us, 2 us, 3 us, 4 us, 5 us, 6 us, 7 us, 8 us, 9 us, 10 us]
  platform.network.ring.size: {values: [2, 4, 8, 16], name: ring}
"""
TEXT = """\
HYBRID_DATA_MODEL
2
mlp0  -1  32291 ALLGATHER 37632  32291 ALLREDUCE 37632  32291 ALLREDUCE 37632  3229
mlp1  -1   7488 ALLGATHER 65536   7488 ALLREDUCE 65536   7488 ALLREDUCE 65536   749
"""
PLAN = """\
count: 24
seed: 0
nodes: 5000
choices:
  layers: [4, 8, 12]
  hidden: [2048, 4096, 5120]
  ffn: [8192, 11008, 14336]
  vocabulary: [50304, 128256]
  kv_heads: [4, 8, 16]
  tp: [1, 2, 4]
  dp: [1, 2, 4]
"""


@dataclass(frozen=True)
class Case:
    """A command, the files that it needs, and those that it makes; `keeps`: what is there when it begins is used."""

    words: tuple[str, ...]
    files: dict[str, str]
    makes: tuple[str, ...]
    keeps: bool = False


CASES = {
    "sweep": Case(
        ("sweep", "sweep.yaml", "--store", "store", "--workers", "2", "--csv", "rows.csv"),
        {"sweep.yaml": SWEEP},
        ("rows.csv",),
        keeps=True,
    ),
    "generate": Case(
        (
            "generate",
            "train",
            "llama-2-7b",
            "--ranks",
            "128",
            "--batch",
            "64",
            "--tp",
            "4",
            "--pp",
            "2",
            "--out",
            "made",
        ),
        {},
        ("made",),
    ),
    "convert": Case(
        (
            "trace",
            "convert",
            "--from",
            "text",
            "mlp.txt",
            "--ranks",
            "1024",
            "--model-parallel",
            "8",
            "-o",
            "out",
        ),
        {"mlp.txt": TEXT},
        ("out.*",),
    ),
    "learn": Case(
        ("generate", "learn", "corpus", "corpus", "--generate", "plan.yaml", "--workers", "2"),
        {"plan.yaml": PLAN},
        ("corpus/*.npz",),
        keeps=True,
    ),
    "validate": Case(
        ("validate", "astra-sim-hgx-h100", "--json", "v.json", "--plot", "v.svg"), {}, ("v.json", "v.svg")
    ),
}


def start(case: Case, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "armillary", *case.words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def made(case: Case, folder: Path) -> dict[str, bytes]:
    """What the command has made; files of other names (``.part``, a log of SQLite) are not looked at."""
    found = {}
    for pattern in case.makes:
        for path in folder.glob(pattern):
            inside = sorted(path.rglob("*")) if path.is_dir() else [path]
            for each in inside:
                if each.is_file() and ".part" not in str(each.relative_to(folder)):
                    found[str(each.relative_to(folder))] = each.read_bytes()
    return found


def left_behind(folder: Path) -> list[str]:
    """Processes that still work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == folder and (process / "stat").read_text().rpartition(") ")[2][
                0
            ] != "Z":
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


def gone(folder: Path) -> bool:
    until = time.monotonic() + PATIENCE
    while left := left_behind(folder):
        if time.monotonic() > until:
            pytest.fail(f"left behind: {left}")
        time.sleep(0.02)
    return True


def timeless(csv: bytes) -> list[bytes]:
    """Rows of a sweep without the seconds that they took."""
    head, *rows = csv.splitlines()
    at = head.split(b",").index(b"seconds") if b"seconds" in head.split(b",") else -1
    return [
        head,
        *(b",".join(word for place, word in enumerate(row.split(b",")) if place != at) for row in rows),
    ]


def same(name: str) -> Callable[[bytes], object]:
    return timeless if name.endswith(".csv") else bytes


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_command_that_is_killed_leaves_what_is_whole_and_nobody(name: str, tmp_path: Path) -> None:
    case, chance = CASES[name], random.Random(name)
    for place in ("quiet", "killed"):
        (tmp_path / place).mkdir()
        for file, text in case.files.items():
            (tmp_path / place / file).write_text(text)
    quiet, folder = tmp_path / "quiet", tmp_path / "killed"
    # The first run compiles; the second says how long a run takes.
    for _ in range(2):
        for each in [path for pattern in case.makes for path in quiet.glob(pattern)]:
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        (quiet / "store").unlink(missing_ok=True)
        begun = time.monotonic()
        run = start(case, quiet)
        assert run.communicate(timeout=PATIENCE * 2) and run.returncode == 0
        lasts = time.monotonic() - begun
    good = made(case, quiet)
    assert good
    ended = 0
    rows = 0
    for _ in range(max(1, KILLS // len(CASES))):
        run = start(case, folder)
        try:
            run.wait(chance.random() * lasts)
        except subprocess.TimeoutExpired:
            stop = chance.choice(SIGNALS)
            run.send_signal(stop)
            ended += 1
        _, errors = run.communicate(timeout=PATIENCE)
        assert run.returncode in {0, *(-each for each in SIGNALS), *(128 + each for each in SIGNALS)}, errors
        # Python itself has one where Ctrl-C comes before our first line, or after our last.
        if "Traceback" in errors:
            assert run.returncode in (-signal.SIGINT, 130) and "KeyboardInterrupt" in errors, errors
        assert gone(folder)
        for file, data in made(case, folder).items():
            assert same(file)(data) == same(file)(good[file]), file
        if name in ("generate", "validate") and made(case, folder):
            if name == "generate":
                assert made(case, folder).keys() == good.keys()
            for each in [path for pattern in case.makes for path in folder.glob(pattern)]:
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        if name == "convert" and (folder / "out.0.et").exists():
            assert {file for file in made(case, folder) if file.endswith(".et")} == {
                file for file in good if file.endswith(".et")
            }
        if name == "sweep" and (folder / "store").exists():
            with closing(sqlite3.connect(folder / "store")) as base:
                assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
                tables = {each for (each,) in base.execute("SELECT name FROM sqlite_master")}
                now = base.execute("SELECT count(*) FROM work").fetchone()[0] if "work" in tables else 0
            assert now >= rows
            rows = now
    # It goes on where it was, or does it anew; and what the killed ones had begun is gone.
    run = start(case, folder)
    _, errors = run.communicate(timeout=PATIENCE * 2)
    assert run.returncode == 0, errors
    found = made(case, folder)
    assert found.keys() == good.keys()
    assert all(same(file)(found[file]) == same(file)(good[file]) for file in good)
    assert not list(folder.rglob("*.part")) and ended
