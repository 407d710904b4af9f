"""A program of others that runs: started, waited for, and ended with all that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import IO

_LINUX = sys.platform.startswith("linux")
_SCRIPT = Path(__file__).with_name("_supervise.py")
_PATIENCE = 10.0
"""Seconds for the supervisor to end all; it takes milliseconds, and 5 s at most."""
_LOOK = 0.005


class Supervised:
    """A program below a supervisor, see `_supervise`; elsewhere than on Linux in a session of its own."""

    def __init__(self, path: Path, words: Sequence[str], folder: Path) -> None:
        """Start it in `folder`.

        Raises:
            OSError: that is not possible.
        """
        self._lock = Lock()
        self._status: str | None = None
        self._control = self._reads = -1
        command: list[str] = list(words)
        theirs: tuple[int, ...] = ()
        if _LINUX:
            control, self._control = os.pipe()
            self._reads, status = os.pipe()
            theirs = control, status
            command = [sys.executable, "-I", "-S", str(_SCRIPT), str(control), str(status), str(path), *words]
        try:
            self._process = subprocess.Popen(
                command, executable=None if _LINUX else path, cwd=folder, pass_fds=theirs,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                # So that Ctrl-C does not end the supervisor first; and where there is none, to end children, too.
                start_new_session=True,
            )  # fmt: skip
        except BaseException:
            for each in (self._control, self._reads):
                if each >= 0:
                    os.close(each)
            raise
        finally:
            for each in theirs:
                os.close(each)
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self.stdin: IO[bytes] = self._process.stdin
        self.stdout: IO[bytes] = self._process.stdout
        self.stderr: IO[bytes] = self._process.stderr

    def wait(self, seconds: float) -> int | str | None:
        """Return the exit code of the program, or why it could not be started; None: it still runs after `seconds`."""
        if not _LINUX:
            try:
                return self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return None
        import select

        # poll, not select: a process may have more than 1024 files open.
        poll = select.poll()
        poll.register(self._reads, select.POLLIN)
        if not poll.poll(max(seconds, 0) * 1000):
            return None
        said = os.read(self._reads, 1 << 10).decode(errors="replace")
        if not said:
            return "ended with its supervisor"
        # Text or a number: the supervisor alone writes there.
        return int(said) if said.lstrip("-").isdigit() else said

    def stop(self) -> None:
        """End the program and all that it has started, now."""
        with self._lock:
            if self._control >= 0:
                os.close(self._control)
                self._control = -1
            elif not _LINUX:
                self._kill_group()
        until = monotonic() + _PATIENCE
        while self._process.poll() is None and monotonic() < until:
            sleep(_LOOK)
        if self._process.poll() is None:
            self._kill_group()
            self._process.wait()

    def _kill_group(self) -> None:
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def close(self) -> None:
        """Close the pipes."""
        for pipe in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                pipe.close()
        if self._reads >= 0:
            os.close(self._reads)
            self._reads = -1
