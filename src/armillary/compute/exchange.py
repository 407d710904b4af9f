"""One exchange with a program of others: a text goes in, what it writes comes out, within a time and a size.

Whoever calls it has made sure of the user's consent (`armillary.base.programs`). The program is ended with all that it
has started, on Linux also what has left its session, and also if this process is killed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import IO

from armillary.base.units import format_time
from armillary.compute._supervised import Supervised

QUOTED = 200
"""Characters of a program that errors quote."""
_PATIENCE = 10.0
"""Seconds for which threads may go on once the program is dead; they end at once."""
_BLOCK = 1 << 16
"""Bytes that are read at a time."""


class ExchangeError(Exception):
    """A program gave no answer: what it did, to follow its name."""


class TooMuchError(ExchangeError):
    """It wrote more than it may."""


@dataclass(frozen=True)
class Answer:
    """What a program wrote, and its exit code."""

    out: bytes
    err: bytes
    code: int

    @property
    def problem(self) -> str:
        """How it ended, with the last line that it wrote to its error output; "": as it should."""
        if not self.code:
            return ""
        lines = self.err.decode(errors="replace").strip().splitlines()
        return f"ended with exit code {self.code}{f': {lines[-1][:QUOTED]}' if lines else ''}"


def exchange(
    path: Path, words: Sequence[str], folder: Path, text: str, *, most: int, seconds: float
) -> Answer:
    """Run a program and return its answer.

    Args:
        path: Its file.
        words: Its name and arguments.
        folder: Where it runs.
        text: What it reads.
        most: Bytes that it may write, to either output.
        seconds: Within which it ends.

    Raises:
        ExchangeError: it cannot be started, writes too much, or does not end.
    """
    try:
        process = Supervised(path, words, folder)
    except (OSError, ValueError) as error:
        raise ExchangeError(f"cannot be started: {error}") from error
    out, err = bytearray(), bytearray()
    # Three threads: a program that writes before it has read all would block on a full pipe otherwise.
    threads = [
        Thread(target=_feed, args=(process, text.encode()), daemon=True),
        Thread(target=_drain, args=(process, process.stdout, out, most), daemon=True),
        Thread(target=_drain, args=(process, process.stderr, err, most), daemon=True),
    ]
    try:
        until = monotonic() + seconds
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(until - monotonic(), 0))
        if max(len(out), len(err)) > most:
            # The reader stops at the limit and kills the program, so this is checked before the exit code.
            raise TooMuchError(f"wrote more than {most} bytes")
        said = process.wait(max(until - monotonic(), 0))
        # A child that inherited the pipes may keep them open after the program has ended.
        if said is None or any(thread.is_alive() for thread in threads):
            raise ExchangeError(f"gave no answer within {format_time(seconds * 1e9)}")
        if not isinstance(said, int):
            raise ExchangeError(said)
    finally:
        process.stop()
        # With every process that held the other ends gone, none of these can wait for long.
        for thread in threads:
            if thread.ident is not None:
                thread.join(_PATIENCE)
        process.close()
    return Answer(bytes(out), bytes(err), said)


def _feed(process: Supervised, text: bytes) -> None:
    """Write to a program, which may have ended before it has read all."""
    with contextlib.suppress(OSError):
        process.stdin.write(text)
    with contextlib.suppress(OSError):
        process.stdin.close()


def _drain(process: Supervised, pipe: IO[bytes], kept: bytearray, most: int) -> None:
    """Read what a program writes; it is killed if that is more than `most` bytes."""
    # `os.read` returns what is there: a read of whole blocks would wait for more.
    with contextlib.suppress(OSError):
        while len(kept) <= most and (block := os.read(pipe.fileno(), _BLOCK)):
            kept += block
    if len(kept) > most:
        process.stop()
