"""A small process around a program of others, which ends it with all that it has started, on Linux.

It is run as a script, by an interpreter without packages: ``python -I -S _supervise.py CONTROL STATUS PROGRAM WORD…``.
All processes below it that lose their parent become its children, so none escapes, whatever session or group it is in.
When the pipe CONTROL is closed, which the end of its parent does, too, it kills them all and ends. To the pipe STATUS
it writes how the program has ended, or why it could not be started.
"""

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

_SUBREAPER = 36
_LOOK = 0.01
_PATIENCE = 5.0


def main() -> None:
    """Start the program, wait for its end and that of CONTROL, and leave nothing behind."""
    control, status = int(sys.argv[1]), int(sys.argv[2])
    path, words = sys.argv[3], sys.argv[4:]
    if ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0):
        os.write(status, b"cannot be supervised on this system")
        return
    for each in (control, status):
        os.set_inheritable(each, False)
    # The end is asked for by CONTROL only.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    try:
        program = os.posix_spawn(
            path, words, os.environ, setsid=True,
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE),
        )  # fmt: skip
    except OSError as error:
        os.write(status, f"cannot be started: {error.strerror}".encode())
        return
    # The program has its own copies: its end must be the end of them.
    nothing = os.open(os.devnull, os.O_RDWR)
    for each in (0, 1, 2):
        os.dup2(nothing, each)
    while not select.select([control], [], [], _LOOK)[0]:
        _reap(program, status)
    _end_all(program, status)


def _reap(program: int, status: int) -> bool:
    """Take what has ended; return whether there may be more."""
    try:
        while True:
            ended, how = os.waitpid(-1, os.WNOHANG)
            if not ended:
                return True
            if ended == program:
                os.write(status, b"%d" % os.waitstatus_to_exitcode(how))
    except ChildProcessError:
        return False
    except OSError:
        # Nobody reads STATUS any more.
        return True


def _end_all(program: int, status: int) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        # Stopped first, until there are no new ones: what starts others faster than they die is held, too.
        stopped: set[int] = set()
        while found := _below() - stopped:
            _send(found, signal.SIGSTOP)
            stopped |= found
        _send(stopped, signal.SIGKILL)
        if not _reap(program, status):
            return
        time.sleep(_LOOK / 10)


def _send(processes: set[int], number: int) -> None:
    for each in processes:
        with suppress(OSError):
            os.kill(each, number)


def _below() -> set[int]:
    """Return the processes below this one."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            # The name of a program, in parentheses, may have anything in it.
            state, parent = (process / "stat").read_bytes().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                children.setdefault(int(parent), []).append(int(process.name))
    found: set[int] = set()
    left = [os.getpid()]
    while left:
        new = [each for each in children.get(left.pop(), ()) if each not in found]
        found.update(new)
        left += new
    return found


if __name__ == "__main__":
    main()
