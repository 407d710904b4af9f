"""Runs tasks on any executor of ``concurrent.futures``: threads, processes, MPI, Dask, a batch system."""

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

# One keeper per thread of a worker: a keeper serves one conversation at a time.
_here = threading.local()
# All keepers of this process by job, so that `close` finds those of threads.
_seats: dict[str, list[Seat]] = {}
# An executor may lose a task when it loses a worker; a task that ends every worker is given up.
ATTEMPTS = 3


class Futures(Executor):
    """Sends tasks to an executor that others made; each of its workers has a keeper with one process.

    So limits hold and a crash costs one point, whatever the executor would make of it.
    """

    def __init__(self, executor: concurrent.futures.Executor | None, workers: int | None = None) -> None:
        # None: `start` of a subclass makes it.
        self._executor = executor
        # ThreadPool- and ProcessPoolExecutor say their size by this attribute only; others leave it to the
        # cores here.
        self.slots = workers or getattr(executor, "_max_workers", None) or os.cpu_count() or 1
        self._open: dict[concurrent.futures.Future[list[Outcome]], tuple[int, Task, int]] = {}

    def start(self, job: Job) -> None:
        """Pack what workers need."""
        self._job = pickle.dumps(job)
        # A hash, not a counter: workers outlive runs, and must not reuse the keeper of another job.
        self._name = hashlib.sha256(self._job).hexdigest()

    def submit(self, number: int, task: Task) -> None:
        """Give a task to the executor."""
        self._submit(number, task, 1)

    def _submit(self, number: int, task: Task, attempt: int) -> None:
        # A module-level function: executors of processes pickle it by name.
        call: Callable[[str, bytes, bytes], list[Outcome]] = do_there
        assert self._executor is not None
        try:
            future = self._executor.submit(call, self._name, self._job, pickle.dumps(task))
        # Raised after shutdown().
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
            # Not the task's fault: every other one would fail alike.
            elif isinstance(error, InputError):
                raise error
            # A broken pool refuses this with RuntimeError, above.
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
        # Keepers in processes of others end when their process does: their pipe is closed.
        end_here(getattr(self, "_name", ""))


def end_here(name: str) -> None:
    """End the keepers of a job in this process."""
    for seat in _seats.pop(name, []):
        seat.close()


def lost(number: int, task: Task, error: BaseException) -> Arrived:
    """Return the outcomes of a task that an executor has lost again and again."""
    reason = f"lost by the executor: {type(error).__name__}: {error}"
    return Arrived(
        number, [Outcome(i, not_done(point, "failed", reason)) for i, point in enumerate(task.points)]
    )


def do_there(name: str, job: bytes, packed: bytes) -> list[Outcome]:
    """Do a task in a worker of somebody's executor, with the keeper of this thread."""
    known: tuple[str, Seat] | None = getattr(_here, "seat", None)
    # The first task of a job in this thread, or of one that was here before.
    if known is None or known[0] != name or known[1] not in _seats.get(name, []):
        if known and known[1] in _seats.get(known[0], []):
            _seats[known[0]].remove(known[1])
            known[1].close()
        _here.seat = known = name, Seat(job, 1)
        _seats.setdefault(name, []).append(known[1])
        known[1].ready()
    try:
        return known[1].do(pickle.loads(packed), packed)
    # Raised again, so that the task counts as lost and is tried elsewhere.
    except KeeperError:
        known[1].close()
        _here.seat = None
        raise
