"""In processes of this machine."""

from __future__ import annotations

import os
import pickle

from armillary.explore.runner.executor import Arrived, Executor
from armillary.explore.runner.seat import KeeperError, Seat
from armillary.explore.runner.task import Job, Task

RESTARTS = 3
"""So often may a keeper end without any result in between."""


class Processes(Executor):
    """One keeper, which forks all processes."""

    def __init__(self, workers: int | None = None) -> None:
        self.slots = workers or len(
            os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
        )
        self._seat: Seat | None = None
        self._open: dict[int, tuple[Task, list[int]]] = {}
        self._restarts = 0

    def start(self, job: Job) -> None:
        """Start the keeper; it warms up while the first tasks are made."""
        self._job = pickle.dumps(job)
        self._begin()

    def _begin(self) -> None:
        self._seat = Seat(self._job, self.slots)
        self._ready = False

    def submit(self, number: int, task: Task) -> None:
        """Send a task to the keeper."""
        assert self._seat is not None
        self._open[number] = (task, list(range(len(task.points))))
        self._seat.submit(number, pickle.dumps(task), range(len(task.points)))

    def wait(self, seconds: float) -> list[Arrived]:
        """Take what the keeper has sent; if it is gone, start another, and let it do what is not done."""
        assert self._seat is not None
        found: list[Arrived] = []
        while self._seat.pipe.poll(0 if found else seconds) and len(found) < 1000:
            if not self._ready:
                self._seat.ready()
                self._ready = True
                break
            try:
                number, outcomes = self._seat.receive()
            except KeeperError:
                self._again()
                break
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
        self._begin()
        for number, (task, left) in self._open.items():
            self._seat.submit(number, pickle.dumps(task), left)

    def close(self) -> None:
        """End the keeper and its processes."""
        if self._seat:
            self._seat.close()
            self._seat = None
