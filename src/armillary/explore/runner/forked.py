"""A forked process, from the side of the keeper that gives it work and watches its limits."""

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
    """A task in flight: `places` are those of its points that are not done yet."""

    number: int
    task: bytes
    places: list[int]


class End(NamedTuple):
    """How a process ended.

    Attributes:
        place: In the task, of the point at which it was; None: between points.
        before: Points that it had begun before.
        seconds: Time it spent on that point.
        code: Its exit code; negative for a signal.
    """

    place: int | None
    before: int
    seconds: float
    code: int


class Forked:
    """A process that does points, and the work that it has."""

    def __init__(self, job: Job, not_its: Sequence[Connection]) -> None:
        """Fork it; the child closes the connections `not_its`."""
        # Fork, not spawn: kernels are compiled already, and the job needs no pickling.
        forking = multiprocessing.get_context("fork")
        self._board = Board()
        self.pipe, own = forking.Pipe()
        # The child inherits the parent's ends of pipes; open there, the keeper would never see EOF.
        args = ([self.pipe, *not_its], own, self._board, job)
        self._process = forking.Process(target=_begin, args=args, daemon=True)
        self._process.start()
        # Only the child may hold its end, so that its death closes the pipe.
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
        """Return the outcomes that it has sent; None: it is dead."""
        try:
            found: list[Outcome] = self.pipe.recv()
        except (EOFError, ConnectionResetError, pickle.UnpicklingError):
            return None
        assert self.work is not None
        # Outcomes come in the order of places, so that those in front are done.
        del self.work.places[: len(found)]
        if not self.work.places:
            self.work = None
        return found

    def over(self, limits: Limits) -> tuple[Status, int] | None:
        """Return the limit that it exceeds, and the points it had begun before that one; None if none."""
        # Read without stopping the child: it may be one point further by now, which `Keeper._replace` finds
        # out.
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
        # since = 0: it ended between two points, and none is to blame.
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
        # statm counts pages; shared ones belong to files (the program, libraries) and not to the point.
        _, resident, shared, *_ = Path(f"/proc/{process}/statm").read_text().split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        # Not on Linux: no /proc, ask ps, which knows resident memory only, in KiB.
        if sys.platform == "linux":
            return 0
    found = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(process)], capture_output=True, text=True, check=False
    )
    return int(found.stdout.strip() or 0) * 1024
