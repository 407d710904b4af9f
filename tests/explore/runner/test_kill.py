"""A run that is killed, again and again: nothing is lost but the points in flight, and nothing is left behind."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from armillary.explore.runner import Stored
from armillary.explore.sweep import Row

Told = Callable[[list[Row]], list[tuple[Any, ...]]]
MAIN = "from armillary.cli import main; main()"


def start(folder: Path, store: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MAIN, "sweep", "sweep.yaml", "--store", store, "--workers", "2"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows(path: Path) -> int:
    try:
        base = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        with base:
            found: int = base.execute("SELECT count(*) FROM work").fetchone()[0]
        base.close()
        return found
    except sqlite3.OperationalError:  # there is no table yet
        return 0


def left_behind(folder: Path) -> list[str]:
    """Processes that still work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve() == folder and (process / "stat").read_text().split(") ")[1][
                0
            ] != "Z":
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


def writes(run: subprocess.Popen[str], folder: Path) -> bool:
    """Whether it is past its start, or has ended."""
    lock = folder / "store.lock"
    return run.poll() is not None or (lock.exists() and f"process {run.pid} " in lock.read_text())


def disturb(folder: Path, document: dict[str, Any], times: int, seed: int) -> int:
    (folder / "sweep.yaml").write_text(yaml.safe_dump(document))
    chance = random.Random(seed)
    alive = 0
    for number in range(times):
        before = rows(folder / "store")
        run = start(folder, "store")
        wanted = before + chance.choice((0, 1, 1, 2, 3, 5, 8))
        until = time.monotonic() + 600
        while not writes(run, folder) or (rows(folder / "store") < wanted and run.poll() is None):
            assert time.monotonic() < until
            time.sleep(0.005)
        time.sleep(chance.random() * 0.05)
        stop = signal.SIGKILL if number % 2 else signal.SIGINT
        if run.poll() is None:
            run.send_signal(stop)
            alive += 1
        _, errors = run.communicate(timeout=600)
        if stop == signal.SIGINT and run.returncode != 0:
            assert run.returncode == 130, errors
            assert "the same command goes on from there" in errors or errors == "armillary: interrupted\n", (
                errors
            )
        assert rows(folder / "store") >= before
    until = time.monotonic() + 600
    while left_behind(folder) and time.monotonic() < until:
        time.sleep(0.02)
    assert left_behind(folder) == []
    return alive


def compare(folder: Path, told: Told) -> None:
    for store in ("store", "quiet"):
        run = start(folder, store)
        assert run.wait(600) == 0
    with Stored(folder / "store") as disturbed, Stored(folder / "quiet") as quiet:
        assert told(disturbed.rows()) == told(quiet.rows())
        assert len(quiet.rows()) > 20
    base = sqlite3.connect(folder / "store")
    assert base.execute("SELECT count(*) - count(DISTINCT key || rules) FROM work").fetchone() == (0,)
    assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    base.close()


def made(count: int) -> dict[str, Any]:
    latencies = [f"{1 + at} us" for at in range(count // 4)]
    network = [{"name": "ring", "topology": "Ring", "size": 16, "bandwidth": "1 GB/s", "latency": "1 us"}]
    return {
        "study": {
            "workload": {"collective": "all-reduce", "size": "64 MB"},
            "platform": {"network": network},
        },
        "vary": {
            "platform.network.ring.latency": latencies,
            "platform.network.ring.size": {"values": [4, 8, 16, 32], "name": "ring"},
        },
        "where": ["ring <= 16"],
    }


@pytest.mark.slow
def test_killed_and_resumed_it_comes_to_the_same(tmp_path: Path, told: Told) -> None:
    assert disturb(tmp_path, made(120), times=3, seed=1) >= 1
    compare(tmp_path, told)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_twenty_times_and_resumed_it_comes_to_the_same(tmp_path: Path, told: Told, seed: int) -> None:
    assert disturb(tmp_path, made(480), times=20, seed=seed) >= 1
    compare(tmp_path, told)
