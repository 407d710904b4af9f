"""Processes that share work, none of which outlives the run."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager


@contextmanager
def process_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Yield an executor with this number of processes; an error stops their work, and they end with this process."""
    pool = ProcessPoolExecutor(workers, initializer=_begin, initargs=(os.getpid(),))
    try:
        yield pool
    except BaseException:
        # Its own `shutdown` would wait for everything that runs, and a second Ctrl-C would be a traceback.
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()


def _begin(parent: int) -> None:
    # Ctrl-C goes to the whole foreground group; the parent decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(number, signal.SIG_DFL)
    die_with(parent)


def die_with(parent: int) -> None:
    """Ask the system to end this process with its parent, where the system can do that."""
    if sys.platform == "linux":
        # PR_SET_PDEATHSIG.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        # The parent may have died before prctl: then no signal will come.
        if os.getppid() != parent:
            os._exit(1)
