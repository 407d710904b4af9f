"""The client side of a keeper."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from armillary.base.errors import InputError
from armillary.explore.runner.executor import CutShortError
from armillary.explore.runner.task import Outcome, Task

# One process per core already: threads of BLAS would compete for them.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class KeeperError(CutShortError):
    """The keeper is no longer there."""


class Seat:
    """Starts a keeper with some processes, sends it tasks, and receives the outcomes of their points."""

    def __init__(self, job: bytes, slots: int) -> None:
        """Start a keeper; it is ready when its first message, an empty text, has come (`ready`).

        Args:
            job: A pickled `Job`.
            slots: How many processes do points.
        """
        self.pipe, theirs = Pipe()
        command = [sys.executable, "-m", "armillary.explore.runner.keeper", str(theirs.fileno())]
        # A session of its own: Ctrl-C is for the run, which then closes the pipe.
        self._keeper = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            # Prints of plug-ins must not mix into the output of the run.
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ
            # The keeper must find the same modules, also if sys.path was changed by hand.
            | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            | dict.fromkeys(_THREADS, "1"),
        )
        # So that the keeper's death closes the pipe.
        theirs.close()
        self._outbox: queue.SimpleQueue[bytes | tuple[object, ...] | None] = queue.SimpleQueue()
        # The keeper may be waiting until we read: whoever reads must never wait for it to do so.
        self._sender = threading.Thread(target=send_all, args=(self.pipe, self._outbox), daemon=True)
        self._sender.start()
        # An empty entry of sys.path means the working directory, which a child may not share.
        self._outbox.put((str(Path.cwd()), [path or str(Path.cwd()) for path in sys.path], slots))
        self._outbox.put(job)

    def ready(self) -> None:
        """Wait until the keeper is ready.

        Raises:
            InputError: it cannot do this job.
        """
        try:
            problem = self.pipe.recv()
        except (EOFError, OSError):
            problem = "it ended at once"
        if problem:
            self.close()
            raise InputError(f"a process of this sweep cannot begin: {problem}")

    def submit(self, number: int, task: bytes, places: Sequence[int]) -> None:
        """Send a pickled task, of which the points at some places are to be done."""
        self._outbox.put((number, list(places)))
        self._outbox.put(task)

    def receive(self) -> tuple[int, list[Outcome]]:
        """Wait for outcomes; return the number of their task, and them.

        Raises:
            KeeperError: the keeper is dead.
        """
        try:
            found: tuple[int, list[Outcome]] = self.pipe.recv()
        except (EOFError, OSError):
            raise KeeperError("the keeper of the processes was ended") from None
        return found

    def do(self, task: Task, packed: bytes) -> list[Outcome]:
        """Do a task, and return what became of all of its points."""
        self.submit(0, packed, range(len(task.points)))
        found: list[Outcome] = []
        while len(found) < len(task.points):
            found += self.receive()[1]
        return found

    def close(self) -> None:
        """End the keeper and its processes."""
        # None ends the sender, behind all that is queued.
        self._outbox.put(None)
        # A send that waits for the keeper to read ends with it.
        self._keeper.terminate()
        self._sender.join()
        self.pipe.close()
        # 10 s for it to end its processes; then by force.
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(10)
            return
        self._keeper.kill()
        self._keeper.wait()


def send_all(pipe: Connection, outbox: queue.SimpleQueue[bytes | tuple[object, ...] | None]) -> None:
    """Send what is put into a queue, until that is None or nobody reads."""
    with suppress(OSError):
        # A closed pipe ends the thread: `receive` reports the death.
        while (message := outbox.get()) is not None:
            if isinstance(message, bytes):
                pipe.send_bytes(message)
            else:
                pipe.send(message)
