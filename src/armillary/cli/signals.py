"""Signals that end a command act like Ctrl-C: incomplete files are removed, and its processes are stopped."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

PATIENCE = 20.0
"""Seconds after which a command that has not noticed ends all the same: a compiled kernel lets no Python run."""
_LATER = 0.1
"""Seconds after which a signal comes again whose error was lost."""
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Ended(KeyboardInterrupt):
    """A signal that ends a command has arrived; the cleanup is that of Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    @staticmethod
    def status(stop: BaseException | None) -> int:
        """Return the exit status, as a shell has it: 128 and the number of the signal."""
        return 128 + (stop.number if isinstance(stop, Ended) else signal.SIGINT)

    @staticmethod
    def words(stop: BaseException | None) -> str:
        """Return what happened."""
        return f"ended by {signal.Signals(stop.number).name}" if isinstance(stop, Ended) else "interrupted"


@contextmanager
def ended_cleanly() -> Iterator[None]:
    """Raise `Ended` when SIGTERM or SIGHUP would end this process; an ignored signal (``nohup``) stays ignored."""
    ours = [number for number in _SIGNALS if _ends(number)]
    if os.name != "posix" or not ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    reads, writes = os.pipe()
    for end in (reads, writes):
        os.set_blocking(end, end == reads)
    done = threading.Event()
    threading.Thread(target=_watch, args=(reads, done, frozenset(ours)), daemon=True).start()
    before = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    for number in ours:
        signal.signal(number, _raise)
    hook = sys.unraisablehook
    sys.unraisablehook = _once_more(hook)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(before)
        done.set()
        # Ends the thread, which closes its own end.
        os.close(writes)


def _after_fork() -> None:
    ours = [number for number in _SIGNALS if signal.getsignal(number) is _raise]
    for number in ours:
        signal.signal(number, signal.SIG_DFL)
    if ours:
        # The pipe is shared: a signal to the child would end the parent.
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _ends(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_DFL


def _raise(number: int, _: FrameType | None) -> NoReturn:
    # Once: a second one must not interrupt the cleaning up.
    for each in _SIGNALS:
        if signal.getsignal(each) is _raise:
            signal.signal(each, signal.SIG_IGN)
    raise Ended(number)


def _once_more(hook: Callable[[Any], object]) -> Callable[[Any], None]:
    """Return a hook for errors that nobody can catch: an error of a signal is raised again, a little later.

    If C calls Python, as LLVM does while it compiles, such an error is printed and lost.
    """

    def lost(found: Any) -> None:
        if not isinstance(found.exc_value, KeyboardInterrupt):
            hook(found)
            return
        number = found.exc_value.number if isinstance(found.exc_value, Ended) else signal.SIGINT
        if isinstance(found.exc_value, Ended):
            signal.signal(number, _raise)
        timer = threading.Timer(_LATER, os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()

    return lost


def _watch(reads: int, done: threading.Event, ours: frozenset[int]) -> None:
    """End the process if a signal has come and the command has not ended after `PATIENCE`."""
    with os.fdopen(reads, "rb", buffering=0) as pipe:
        while found := pipe.read(64):
            if (number := next((each for each in found if each in ours), 0)) and not done.wait(PATIENCE):
                os._exit(128 + number)
