"""Runs tasks in processes of this machine."""

from __future__ import annotations

import os
import pickle

from armillary.explore.runner.executor import Arrived, Executor
from armillary.explore.runner.seat import KeeperError, Seat
from armillary.explore.runner.task import Job, Task

RESTARTS = 3
"""Times that a keeper may end without any result in between."""


class Processes(Executor):
    """One keeper, which forks all processes."""

    # Cores that this process may use, which a batch system may limit; macOS cannot say.
    def __init__(self, workers: int | None = None) -> None:
        self.slots = workers or len(
            os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
        )
        self._seat: Seat | None = None
        self._open: dict[int, tuple[Task, list[int]]] = {}
        # Since the last result.
        self._restarts = 0

    def start(self, job: Job) -> None:
        """Start the keeper; it warms up while the first tasks are made."""
        # Pickled here, so that an evaluator that cannot be sent fails before a process is started.
        self._job = pickle.dumps(job)
        self._begin()

    def _begin(self) -> None:
        self._seat = Seat(self._job, self.slots)
        self._ready = False

    def submit(self, number: int, task: Task) -> None:
        """Send a task to the keeper."""
        assert self._seat is not None
        # Also kept here: a keeper that dies takes its queue with it.
        self._open[number] = (task, list(range(len(task.points))))
        self._seat.submit(number, pickle.dumps(task), range(len(task.points)))

    def wait(self, seconds: float) -> list[Arrived]:
        """Take what the keeper has sent; if it is gone, start another, and let it do what is not done."""
        assert self._seat is not None
        found: list[Arrived] = []
        # Waits for the first message only, then takes what is there; 1000 at most, so that progress is told.
        while self._seat.pipe.poll(0 if found else seconds) and len(found) < 1000:
            # The first message of a keeper is its readiness, see `Seat`.
            if not self._ready:
                self._seat.ready()
                self._ready = True
                break
            try:
                number, outcomes = self._seat.receive()
            except KeeperError:
                self._again()
                break
            # A result shows that the keeper works: deaths are counted afresh.
            self._restarts = 0
            task, left = self._open[number]
            done = {outcome.place for outcome in outcomes}
            if rest := [place for place in left if place not in done]:
                self._open[number] = task, rest
            else:
                del self._open[number]
            found.append(Arrived(number, outcomes))
        return found

    def _again(self) -> None:
        assert self._seat is not None
        self._seat.close()
        self._restarts += 1
        if self._restarts > RESTARTS:
            raise KeeperError(
                "the keeper of the processes was ended again and again (is the system out of memory?)"
            )
        # A new keeper gets what is left of all tasks.
        self._begin()
        for number, (task, left) in self._open.items():
            self._seat.submit(number, pickle.dumps(task), left)

    def close(self) -> None:
        """End the keeper and its processes."""
        if self._seat:
            self._seat.close()
            self._seat = None
