"""The protocol of executors, which say where points are done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from armillary.base.errors import ArmillaryError
from armillary.explore.runner.task import Job, Outcome, Task


class CutShortError(ArmillaryError):
    """A run cannot go on, by no fault of its points: what was done is kept, and it can be resumed."""

    exit_code = 2


class Arrived(NamedTuple):
    """What became of some points of a task."""

    task: int
    outcomes: list[Outcome]


class Executor(ABC):
    """Does tasks, a few at a time.

    The run calls `start`, then `submit` while fewer than ``2 * slots`` tasks are in flight, and `wait` for what became
    of their points: each of them exactly once, in any order, in as many pieces as it likes. A point that does not come
    to an end must come back as a row, too. `close` may come at any time and leaves no process behind.

    Attributes:
        slots: How many points are done at the same time; known after `start`.
    """

    slots: int = 1

    @abstractmethod
    def start(self, job: Job) -> None:
        """Get ready for a job.

        Raises:
            InputError: it cannot be done here.
        """

    @abstractmethod
    def submit(self, number: int, task: Task) -> None:
        """Take a task; does not wait for it."""

    @abstractmethod
    def wait(self, seconds: float) -> list[Arrived]:
        """Return what has arrived, as soon as something has, or nothing after so many seconds."""

    @abstractmethod
    def close(self) -> None:
        """End everything; nothing more arrives."""
