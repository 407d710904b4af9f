"""The process that does the points: forked from a keeper, which may end it at any time."""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import signal
import struct
import sys
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

from armillary.explore.runner.task import Evaluates, Outcome, do

_NOW = struct.Struct("<qqd")
TOGETHER = 0.02
"""Seconds of screening after which what was found is sent."""


class Now(NamedTuple):
    """What a child does now: how many points it began before, the place in its work, and since when; 0: nothing."""

    before: int
    place: int
    since: float


class Board:
    """A piece of memory on which a child writes what it does, and its keeper reads it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _NOW.size)

    def write(self, now: Now) -> None:
        """Write; the time goes last, so that it never belongs to an older place."""
        _NOW.pack_into(self._memory, 0, now.before, now.place, 0.0)
        _NOW.pack_into(self._memory, 0, *now)

    def read(self) -> Now:
        """Read what holds together."""
        while True:
            first, second = (Now(*_NOW.unpack_from(self._memory)) for _ in range(2))
            if first == second:
                return first

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


def serve(work: Connection, board: Board, evaluator: Evaluates) -> None:
    """Do what comes, until nothing comes any more.

    A message is a pickled `Task` and the places in it that are to be done; an answer is pickled outcomes, sent for
    every simulated point at once and for screened ones together.
    """
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    before = 0
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
            board.write(Now(before, at, 0.0))
            before += 1
            if kind == "evaluate" or at == len(places) - 1 or time.monotonic() - sent > TOGETHER:
                work.send(found)
                found, sent = [], time.monotonic()


def _die_with_parent() -> None:
    """Ask the system to end this process with its keeper, where the system can do that."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
