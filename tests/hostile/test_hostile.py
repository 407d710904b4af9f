"""Files that want too much end in one line, soon, within 4 GB, and start nothing."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from files import Case, cases, sound

from armillary.cli import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs fork, FIFOs and limits of Linux")
MOST = 4 << 30
SECONDS = 30
"""Of CPU time."""
STUCK = 300
"""By the clock: other tests may take the rest of a core."""


def arguments(case: Case, path: Path, beside: Path) -> list[str]:
    def of(word: str) -> str:
        if word.startswith("+"):
            return str(beside / word[1:])
        if word.startswith("^"):
            return str(path.parent) + word[1:]
        return word.replace("@", str(path)) if word.startswith("@") else word

    return [of(word) for word in case.command]


def outcome(case: Case, folder: Path, beside: Path) -> str:
    """Run a case in a process of its own; return what is wrong with it, "" for nothing."""
    path = folder / case.name.rpartition(" ")[2]
    case.write(path)
    out, pipe = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(pipe, 2)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os._exit(run(arguments(case, path, beside)))
    os.close(pipe)
    begun, said = time.monotonic(), b""
    while piece := os.read(out, 1 << 16):
        said += piece
    os.close(out)
    _, status, used = os.wait4(child, 0)
    text, code = said.decode(errors="replace"), os.waitstatus_to_exitcode(status)
    lines = [line for line in text.splitlines() if line.startswith("armillary: error:")]
    wrong = []
    if code != case.code:
        wrong.append(f"exit code {code}")
    if len(lines) != 1 or "Traceback" in text:
        wrong.append(f"{len(lines)} errors")
    elif case.said not in lines[0]:
        wrong.append(f"without '{case.said}'")
    if used.ru_maxrss * 1024 > MOST:
        wrong.append(f"{used.ru_maxrss / 2**20:.1f} GiB")
    if used.ru_utime + used.ru_stime > SECONDS or time.monotonic() - begun > STUCK:
        wrong.append(f"{time.monotonic() - begun:.0f} s")
    if (folder / "STARTED").exists():
        wrong.append("a program was started")
    return f"{case.name}: {', '.join(wrong)}: {text[-600:]}" if wrong else ""


def run(words: list[str]) -> int:
    """Run a command in this process, which ends after it."""
    resource.setrlimit(resource.RLIMIT_AS, (3 * MOST, 3 * MOST))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(STUCK)
    # What pytest has put there would keep the line to itself.
    sys.stdin = sys.__stdin__
    sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(number, "wb")) for number in (1, 2))
    try:
        main(words)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 99
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    return code


def wrong_of(found: list[Case], folder: Path) -> list[str]:
    sound(folder / "sound")
    wrong = []
    for number, case in enumerate(found):
        own = folder / str(number)
        own.mkdir()
        if problem := outcome(case, own, folder / "sound"):
            wrong.append(problem)
    return wrong


QUICK = ("merges study.yaml", "fifo w.0.et", "device study.yaml", "program run @ study.yaml")


def test_a_few_files_that_want_too_much(tmp_path: Path) -> None:
    found = [case for case in cases() if case.name in QUICK]
    assert len(found) == len(QUICK)
    assert wrong_of(found, tmp_path) == []


def test_options_of_absurd_values(tmp_path: Path) -> None:
    found = [case for case in cases() if case.name.endswith(" option")]
    assert len(found) >= 25
    assert wrong_of(found, tmp_path) == []


@pytest.mark.slow
def test_files_that_want_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    wrong = wrong_of(list(cases()), tmp_path)
    assert not wrong, "\n".join(wrong)
