"""The process that does the points: forked from a keeper, which may end it at any time."""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import struct
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

from armillary.base.pool import die_with
from armillary.explore.runner.task import Evaluates, Outcome, do

# Two 64-bit integers and a double, as `Now` has them.
_NOW = struct.Struct("<qqd")
# Screening is quick: one message serves many points.
TOGETHER = 0.02
"""Seconds of screening after which the outcomes found so far are sent."""


class Now(NamedTuple):
    """What a child does now: points begun before, the place in its work, and since when; 0: nothing."""

    before: int
    place: int
    since: float


class Board:
    """Shared memory on which a child writes what it does, and from which its keeper reads it."""

    def __init__(self) -> None:
        # Anonymous shared memory: it is inherited by the fork, and survives the crash of the child.
        self._memory = mmap.mmap(-1, _NOW.size)

    def write(self, now: Now) -> None:
        """Write the state; the time goes last, so that it never belongs to an older place."""
        # since = 0 in between: a reader sees "nothing", never an old time with a new place.
        _NOW.pack_into(self._memory, 0, now.before, now.place, 0.0)
        _NOW.pack_into(self._memory, 0, *now)

    def read(self) -> Now:
        """Return a consistent state."""
        while True:
            # No lock is shared with a process that may be killed at any moment: two equal reads in a row are
            # consistent.
            first, second = (Now(*_NOW.unpack_from(self._memory)) for _ in range(2))
            if first == second:
                return first

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


def serve(work: Connection, board: Board, evaluator: Evaluates) -> None:
    """Do tasks until the pipe is closed.

    A message is a pickled `Task` and the places in it that are to be done; an answer is pickled outcomes, sent for
    every simulated point at once and for screened ones together.
    """
    die_with(os.getppid())
    # Ctrl-C goes to the whole foreground group; the run decides what ends. SIGTERM gets its default back from
    # the keeper's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    before = 0
    # `kind, points` is the task; the second message says which of its points are left after a crash.
    while True:
        try:
            kind, points = pickle.loads(work.recv_bytes())
            places = pickle.loads(work.recv_bytes())
        except EOFError:
            return
        found: list[Outcome] = []
        sent = time.monotonic()
        for at, place in enumerate(places):
            board.write(Now(before, at, time.monotonic()))
            found.append(Outcome(place, do(evaluator, kind, points[place])))
            # 0.0: between points, so that waiting for work does not count against a limit.
            board.write(Now(before, at, 0.0))
            before += 1
            # A simulated point is sent at once: it took long, and must not be lost in a crash of the next
            # one.
            if kind == "evaluate" or at == len(places) - 1 or time.monotonic() - sent > TOGETHER:
                work.send(found)
                found, sent = [], time.monotonic()
