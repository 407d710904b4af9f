"""Where points are done: a small protocol, and who keeps to it."""

from __future__ import annotations

import concurrent.futures
from abc import ABC, abstractmethod
from typing import NamedTuple

from armillary.base.errors import InputError
from armillary.base.extension import ExtensionPoint
from armillary.explore.runner.task import Job, Outcome, Task

EXECUTORS = {
    "processes": "armillary.explore.runner.executors.processes:Processes",
    "serial": "armillary.explore.runner.executors.serial:Serial",
    "ray": "armillary.explore.runner.executors.ray:Ray",
}
"""Name -> class of those that are built in; a class takes `workers`."""
NAMES = ExtensionPoint("armillary.executors", "executor", tuple(EXECUTORS))


class Arrived(NamedTuple):
    """What became of some points of a task."""

    task: int
    outcomes: list[Outcome]


class Executor(ABC):
    """Does tasks, a few at a time.

    The run calls `start`, then `submit` while fewer than ``2 * slots`` tasks are under way, and `wait` for what became
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


def make_executor(
    wanted: str | Executor | concurrent.futures.Executor | None = None, workers: int | None = None
) -> Executor:
    """Return an executor by its name, or for one of ``concurrent.futures``.

    Args:
        wanted: "processes" (the default), "serial", "ray", a name of the entry points "armillary.executors", an
            executor, or anything that is a ``concurrent.futures.Executor``.
        workers: How many points at a time; by default as many as it has cores.

    Raises:
        InputError: there is none of that name, or the number of workers is not above 0.
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers: got {workers}, expected 1 or more")
    if isinstance(wanted, Executor):
        return wanted
    if isinstance(wanted, concurrent.futures.Executor):
        from armillary.explore.runner.executors.futures import Futures

        return Futures(wanted, workers)
    made: Executor = NAMES.load(wanted or "processes", EXECUTORS)(workers)
    return made
