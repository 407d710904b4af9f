"""A forked process, from the side of the keeper that gives it work and looks at what it takes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from armillary.explore.runner.child import Board, serve
from armillary.explore.runner.task import Job, Limits, Outcome
from armillary.explore.sweep.point import Status


@dataclass
class Work:
    """A task on its way: the `places` of those of its points that are not done."""

    number: int
    task: bytes
    places: list[int]


class End(NamedTuple):
    """How a process ended.

    Attributes:
        place: In the task, of the point at which it was; None: between points.
        before: How many points it had begun before.
        seconds: That it was at that point.
        code: Its exit code; of a signal, less than 0.
    """

    place: int | None
    before: int
    seconds: float
    code: int


class Forked:
    """A process that does points, and the work that it has."""

    def __init__(self, job: Job, not_its: Sequence[Connection]) -> None:
        """Fork it; it closes what is `not_its`."""
        forking = multiprocessing.get_context("fork")
        self._board = Board()
        self.pipe, own = forking.Pipe()
        args = ([self.pipe, *not_its], own, self._board, job)
        self._process = forking.Process(target=_begin, args=args, daemon=True)
        self._process.start()
        own.close()
        self.work: Work | None = None
        self._given: list[int] = []

    def give(self, work: Work) -> None:
        """Let it do a task; it must have none."""
        self.work, self._given = work, list(work.places)
        with suppress(BrokenPipeError, ConnectionResetError):  # it is dead, which `take` will find
            self.pipe.send_bytes(work.task)
            self.pipe.send(self._given)

    def take(self) -> list[Outcome] | None:
        """Return what it has sent; None: it is dead."""
        try:
            found: list[Outcome] = self.pipe.recv()
        except (EOFError, ConnectionResetError, pickle.UnpicklingError):
            return None
        assert self.work is not None
        del self.work.places[: len(found)]
        if not self.work.places:
            self.work = None
        return found

    def over(self, limits: Limits) -> tuple[Status, int] | None:
        """Return over which limit it is, and how many points it had begun before that one; None: over none."""
        now = self._board.read()
        if self.work is None or not now.since:
            return None
        if limits.time is not None and time.monotonic() - now.since > limits.time:
            return "timeout", now.before
        if limits.memory is not None and memory_of(self._process.pid or 0) > limits.memory:
            return "memory", now.before
        return None

    def end(self) -> End:
        """Kill it, if it still runs."""
        self._process.kill()
        self._process.join()
        now = self._board.read()
        self._board.close()
        code = self._process.exitcode or 0
        if not now.since:
            return End(None, now.before, 0.0, code)
        return End(self._given[now.place], now.before, time.monotonic() - now.since, code)


def _begin(not_its: Sequence[Connection], own: Connection, board: Board, job: Job) -> None:
    for each in not_its:
        each.close()
    with suppress(BrokenPipeError, ConnectionResetError):
        serve(own, board, job.evaluator)


def memory_of(process: int) -> int:
    """Return the bytes of memory that belong to a process alone; 0 if it is gone."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{process}/statm").read_text().split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        if sys.platform == "linux":
            return 0
    found = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(process)], capture_output=True, text=True, check=False
    )
    return int(found.stdout.strip() or 0) * 1024
