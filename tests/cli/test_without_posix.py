"""What a system without ``fcntl`` and ``fork`` can do, and that it says the rest in one line: Windows, acted out.

The standard library of this system is kept, so this shows what our own modules need, not that Windows runs them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PLAYED = """
import sys
import asyncio, multiprocessing.connection, numpy, rich.console, click, selectors, signal, socket, subprocess, tempfile
import concurrent.futures, ctypes, logging, pathlib, pydantic, shutil, sqlite3, threading, uuid, yaml, zipfile
import os, sysconfig, zoneinfo
import click._termui_impl
from pydantic import BaseModel

sysconfig.get_config_vars()
ABSENT = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog", "_posixsubprocess")
for name in ABSENT:
    sys.modules.pop(name, None)

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
for name in (
    "fork", "forkpty", "killpg", "getpgid", "setpgid", "setsid", "getsid", "getuid", "geteuid", "getgid",
    "getegid", "mkfifo", "mknod", "sched_getaffinity", "sched_setaffinity", "uname", "statvfs",
    "fstatvfs", "fchmod", "fchown", "chown",
    "pread", "pwrite", "nice", "getloadavg", "sysconf", "register_at_fork", "wait3", "wait4",
    "WNOHANG", "O_NONBLOCK",
    "O_CLOEXEC", "O_NOFOLLOW", "O_DIRECTORY", "posix_fallocate", "sendfile", "getrusage",
):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGPIPE", "setitimer", "alarm", "pthread_sigmask"):
    if hasattr(signal, name):
        delattr(signal, name)
sys.platform = "win32"

from armillary.cli import main
main(sys.argv[1:])
"""
SWEEP = """
study:
  platform: {preset: hgx-h100}
  workload: {generate: {model: llama-2-7b, batch: 8, sequence: 512}}
vary: {workload.generate.parallel.tp: [4, 8]}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "played.py").write_text(PLAYED)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    (tmp_path / "script.py").write_text("print(1)\n")
    study = "workload: {collective: all-reduce, size: 1 MiB}\nplatform:\n"
    network = "  network: [{topology: Ring, size: 4, bandwidth: 50 GB/s, latency: 1 us}]\n"
    (tmp_path / "study.yaml").write_text(study + network)
    return tmp_path


def played(here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "played.py", *words], cwd=here, capture_output=True, text=True, check=False
    )


def test_a_study_runs_and_its_trace_is_read(here: Path) -> None:
    for command in (
        "run study.yaml --json report.json --save report.npz",
        "generate train llama-2-7b --ranks 2 --batch 2 --sequence 512 --tp 2 --out traces",
        "trace check traces/rank",
        "trace stats traces/rank",
        "explain report.npz",
    ):
        done = played(here, *command.split())
        assert done.returncode == 0, done.stderr
    assert (here / "report.json").stat().st_size


@pytest.mark.slow
def test_a_training_step_is_predicted_and_planned(here: Path) -> None:
    for command in (
        "train llama-2-7b --machine dgx-h100 --batch 8 --sequence 512",
        "plan llama-2-7b --machine dgx-h100 --batch 8 --sequence 512 --tp 8 --pp 1",
        "generate memory llama-2-7b --ranks 8 --batch 8",
        "machine show hgx-h100",
        "plan search sweep.yaml",  # in this process
    ):
        done = played(here, *command.split())
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "sweep sweep.yaml --workers 1",
        "plan search sweep.yaml --workers 2",
        "trace collect script.py",
        "capture --out made script.py",
    ],
)
def test_what_needs_processes_says_so_in_one_line(here: Path, command: str) -> None:
    done = played(here, *command.split())
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("armillary: error: ")
    assert line.endswith(
        "needs Linux or macOS, which fork processes and lock files; on Windows, run it in WSL"
    )
