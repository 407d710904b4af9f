"""In any executor of ``concurrent.futures``: threads, processes, MPI, Dask, a batch system."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import pickle
import threading
from collections.abc import Callable

from armillary.base.errors import InputError
from armillary.explore.runner.executor import Arrived, Executor
from armillary.explore.runner.seat import KeeperError, Seat
from armillary.explore.runner.task import Job, Outcome, Task, not_done

_here = threading.local()
_seats: dict[str, list[Seat]] = {}
ATTEMPTS = 3


class Futures(Executor):
    """Sends tasks to an executor that others made; each of its workers has a keeper with one process.

    So limits hold and a crash costs one point, whatever the executor would make of it.
    """

    def __init__(self, executor: concurrent.futures.Executor, workers: int | None = None) -> None:
        self._executor = executor
        self.slots = workers or getattr(executor, "_max_workers", None) or os.cpu_count() or 1
        self._open: dict[concurrent.futures.Future[list[Outcome]], tuple[int, Task, int]] = {}

    def start(self, job: Job) -> None:
        """Pack what workers need."""
        self._job = pickle.dumps(job)
        self._name = hashlib.sha256(self._job).hexdigest()

    def submit(self, number: int, task: Task) -> None:
        """Give a task to the executor."""
        self._submit(number, task, 1)

    def _submit(self, number: int, task: Task, attempt: int) -> None:
        call: Callable[[str, bytes, bytes], list[Outcome]] = do_there
        try:
            future = self._executor.submit(call, self._name, self._job, pickle.dumps(task))
        except RuntimeError as error:
            raise InputError(f"executor {type(self._executor).__name__}: {error}") from error
        self._open[future] = number, task, attempt

    def wait(self, seconds: float) -> list[Arrived]:
        """Take the tasks that are done; one that the executor lost is given to it again."""
        done, _ = concurrent.futures.wait(self._open, seconds, concurrent.futures.FIRST_COMPLETED)
        found = []
        for future in done:
            number, task, attempt = self._open.pop(future)
            error = future.exception()
            if error is None:
                found.append(Arrived(number, future.result()))
            elif isinstance(error, InputError):
                raise error
            elif attempt < ATTEMPTS:
                self._submit(number, task, attempt + 1)
            else:
                found.append(lost(number, task, error))
        return found

    def close(self) -> None:
        """Cancel what has not begun, and end the keepers of threads; those of processes end with them."""
        for future in self._open:
            future.cancel()
        self._open = {}
        for seat in _seats.pop(getattr(self, "_name", ""), []):
            seat.close()


def lost(number: int, task: Task, error: BaseException) -> Arrived:
    """Return what becomes of a task that an executor has lost again and again."""
    reason = f"lost by the executor: {type(error).__name__}: {error}"
    return Arrived(
        number, [Outcome(i, not_done(point, "failed", reason)) for i, point in enumerate(task.points)]
    )


def do_there(name: str, job: bytes, packed: bytes) -> list[Outcome]:
    """Do a task in a worker of somebody's executor, with the keeper of this thread."""
    known: tuple[str, Seat] | None = getattr(_here, "seat", None)
    if known is None or known[0] != name:
        if known:
            known[1].close()
        _here.seat = known = name, Seat(job, 1)
        _seats.setdefault(name, []).append(known[1])
        known[1].ready()
    try:
        return known[1].do(pickle.loads(packed), packed)
    except KeeperError:
        known[1].close()
        _here.seat = None
        raise
