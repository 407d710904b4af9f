"""Signals that end a command let it clean up first, and end it all the same where it cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from armillary.cli import main
from armillary.cli.command import Ended

BEGIN = """\
import hashlib, multiprocessing, os, signal, sys, time
from armillary.base.files import replacing
from armillary.base.pool import process_pool
from armillary.cli import command
from armillary.cli.command import Ended, ended_cleanly

def work():
{work}

if __name__ == "__main__":
    {before}
    try:
        with ended_cleanly():
            work()
    except Ended as stop:
        sys.exit(Ended.status(stop))
"""
WRITES = """\
    with replacing("out") as temporary:
        temporary.write_text("half")
        print("ready", flush=True)
        time.sleep(300)
"""
COMPUTES = """\
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", (1 << 31) - 1)
"""
SWALLOWS = """\
    import ctypes

    def called():
        print("ready", flush=True)
        time.sleep(300)
        return 0

    ctypes.CFUNCTYPE(ctypes.c_int)(called)()
    time.sleep(300)
"""
FORKS = """\
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,))
    child.start()
    time.sleep(0.2)
    child.terminate()
    child.join()
    print("ready", flush=True)
    time.sleep(1)
    print(child.exitcode, flush=True)
"""
POOL = """\
    with process_pool(2) as pool:
        [pool.submit(time.sleep, 300) for _ in range(8)]
        while len(pool._processes) < 2:
            time.sleep(0.01)
        time.sleep(0.3)
        print("ready", *pool._processes, flush=True)
        time.sleep(300)
"""


def started(folder: Path, work: str, before: str = "pass") -> tuple[subprocess.Popen[str], list[int]]:
    (folder / "it.py").write_text(BEGIN.format(work=work, before=before))
    run = subprocess.Popen([sys.executable, "it.py"], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert run.stdout
    ready, *others = run.stdout.readline().split()
    assert ready == "ready"
    return run, [int(each) for each in others]


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGHUP])
def test_what_is_half_written_is_removed(tmp_path: Path, stop: signal.Signals) -> None:
    # Tests that run behind nohup pass on that SIGHUP is ignored.
    run, _ = started(tmp_path, WRITES, f"signal.signal({int(stop)}, signal.SIG_DFL)")
    assert (tmp_path / "out.part").exists()
    run.send_signal(stop)
    assert run.wait(100) == 128 + stop
    assert [each.name for each in tmp_path.iterdir()] == ["it.py"]


def test_what_computes_and_does_not_listen_ends_all_the_same(tmp_path: Path) -> None:
    run, _ = started(tmp_path, COMPUTES, "command.PATIENCE = 0.1")
    run.terminate()
    assert run.wait(100) == 143


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_c_swallows_comes_again(tmp_path: Path, stop: signal.Signals) -> None:
    # A shell in the background hands down that interrupts are ignored.
    python = "signal.signal(signal.SIGINT, signal.default_int_handler)"
    run, _ = started(tmp_path, SWALLOWS, f"command.PATIENCE = 300; {python}")
    run.send_signal(stop)
    # SIGINT stays an error of Python's own, whose process ends by the signal.
    assert run.wait(100) == (143 if stop is signal.SIGTERM else -signal.SIGINT)


def test_a_signal_that_is_ignored_stays_so_and_one_to_a_child_is_its_own(tmp_path: Path) -> None:
    run, _ = started(tmp_path, FORKS, "command.PATIENCE = 0.1; signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    run.send_signal(signal.SIGHUP)
    assert run.wait(100) == 0 and run.stdout and run.stdout.read() == "-15\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_a_pool_ends_with_its_parent(tmp_path: Path, stop: signal.Signals) -> None:
    run, workers = started(tmp_path, POOL)
    run.send_signal(stop)
    assert run.wait(100) == (-9 if stop == signal.SIGKILL else 143)
    until = time.monotonic() + 100
    while left := [each for each in workers if lives(each)]:
        assert time.monotonic() < until, left
        time.sleep(0.02)


def lives(process: int) -> bool:
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.mark.parametrize(
    ("stop", "made"),
    [
        (signal.SIGTERM, "ValueError"),
        (signal.SIGTERM, "OSError"),
        (signal.SIGINT, "ValueError"),
        (signal.SIGINT, "OSError"),
    ],
)
def test_a_library_may_make_another_error_of_it(tmp_path: Path, stop: signal.Signals, made: str) -> None:
    """As pydantic does if the signal comes while it builds a model."""
    program = tmp_path / "made.py"
    program.write_text(
        "import os, signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from unittest.mock import patch\n"
        "from armillary.cli import LazyGroup, main\n"
        "def invoke(*_):\n"
        "    try:\n"
        f"        os.kill(os.getpid(), {int(stop)})\n"
        "        time.sleep(10)\n"
        "    except BaseException as error:\n"
        f"        raise {made}('Error building validator') from error\n"
        "with patch.object(LazyGroup, 'invoke', invoke):\n"
        "    main(['check'])\n"
    )
    found = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    said = "interrupted" if stop is signal.SIGINT else "ended by SIGTERM"
    assert (found.returncode, found.stderr) == (128 + stop, f"armillary: {said}\n")


def test_a_signal_of_an_earlier_command_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ended, "last", Ended(signal.SIGTERM))
    done = CliRunner().invoke(main, ["train", "no-such-model", "--machine", "8xh100", "--batch", "8"])
    assert done.exit_code == 2 and "no-such-model" in done.output and "ended by" not in done.output
