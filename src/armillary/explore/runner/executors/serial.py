"""Runs tasks in this process, one point after the other: for a debugger, and for work too small for a process."""

from __future__ import annotations

from collections import deque

from armillary.base.errors import InputError
from armillary.explore.runner.executor import Arrived, Executor
from armillary.explore.runner.task import Job, Outcome, Task, do


class Serial(Executor):
    """Enforces no limits: nothing could end a point that runs in this process."""

    def __init__(self, workers: int | None = None) -> None:
        # 1 is what it does, and harmless to ask for.
        if workers not in (None, 1):
            raise InputError(f"executor serial: got {workers} workers, expected 1")
        self._queue: deque[tuple[int, Task, int]] = deque()

    def start(self, job: Job) -> None:
        """Take the evaluator as it is.

        Raises:
            InputError: points have limits.
        """
        # An empty text is no limits.
        if str(job.limits):
            raise InputError(
                f"limits ({job.limits}): executor serial cannot keep them, expected processes or ray"
            )
        self._evaluator = job.evaluator

    def submit(self, number: int, task: Task) -> None:
        """Queue a task."""
        self._queue.extend((number, task, place) for place in range(len(task.points)))

    def wait(self, seconds: float) -> list[Arrived]:
        """Do the next point, however long it takes."""
        if not self._queue:
            # A point per call, so that progress is told after each.
            return []
        number, task, place = self._queue.popleft()
        return [Arrived(number, [Outcome(place, do(self._evaluator, task.kind, task.points[place]))])]

    def close(self) -> None:
        """Forget what is queued."""
        self._queue.clear()
