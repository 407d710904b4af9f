"""Runs tasks on a Ray cluster that somebody has started: as many actors as it has cores, wherever Ray puts them."""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from armillary.base.errors import InputError
from armillary.explore.runner.executor import Arrived, CutShortError, Executor
from armillary.explore.runner.seat import send_all
from armillary.explore.runner.task import Job, Task

_DRIVER = "armillary.explore.runner.executors._ray_driver"


class Ray(Executor):
    """Joins the cluster of RAY_ADDRESS, or that of a ``ray.init`` before, by a process that is its driver.

    Nodes need the program, and the study's files at the same place. A task of a lost node is done on another. A
    cluster is never started here: whatever address it is given, Ray listens on all interfaces of a machine, for
    everybody who has its token.
    """

    def __init__(self, workers: int | None = None) -> None:
        if find_spec("ray") is None:
            raise InputError("executor ray needs Ray: pip install armillary[ray]")
        self._workers = workers
        self._driver: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._address = ""

    def start(self, job: Job) -> None:
        """Join the cluster and ask it for actors; tasks go to those that have come.

        Raises:
            InputError: there is no such cluster, or none is named.
        """
        self._address = _address()
        packed = pickle.dumps(job)
        self._pipe, theirs = Pipe()
        self._driver = subprocess.Popen(
            [sys.executable, "-m", _DRIVER, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            # Where its cluster is gone Ray writes a page of its own.
            stderr=subprocess.DEVNULL,
            # A session of its own: Ctrl-C is for the run, which then closes the pipe.
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()
        # The driver may be waiting until we read: whoever reads must never wait for it to do so.
        self._outbox = queue.SimpleQueue[bytes | tuple[object, ...] | None]()
        self._sender = threading.Thread(target=send_all, args=(self._pipe, self._outbox), daemon=True)
        self._sender.start()
        here = str(Path.cwd())
        self._outbox.put((here, [path or here for path in sys.path]))
        self._outbox.put((self._workers, self._address, packed))
        self.slots = int(str(self._receive("ready")))

    def submit(self, number: int, task: Task) -> None:
        """Give a task to the driver."""
        self._outbox.put((number, task))

    def wait(self, seconds: float) -> list[Arrived]:
        """Take the tasks that are done.

        Raises:
            InputError: an actor cannot begin this job.
            CutShortError: the cluster is gone.
        """
        assert self._pipe is not None
        found = self._receive("arrived") if self._pipe.poll(seconds) else []
        assert isinstance(found, list)
        return found

    def _receive(self, expected: str) -> object:
        assert self._pipe is not None
        try:
            kind, found = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            raise CutShortError(
                f"executor ray: the cluster at {self._address} has ended its driver (was its head stopped?)"
            ) from None
        if kind == "gone":
            raise CutShortError(str(found))
        if kind != expected:
            raise InputError(str(found))
        return found

    def close(self) -> None:
        """End the driver, and with it its actors."""
        if self._driver is None or self._pipe is None:
            return
        # None ends the sender; a send that waits for the driver to read ends with it.
        self._outbox.put(None)
        self._driver.terminate()
        try:
            self._driver.wait(10)
        # Ray waits for what does not answer; a cluster ends the actors of a driver that is gone.
        except subprocess.TimeoutExpired:
            self._driver.kill()
            self._driver.wait()
        self._sender.join()
        self._pipe.close()
        self._driver = self._pipe = None


def _address() -> str:
    """Return the address of the cluster to join.

    Raises:
        InputError: none is named.
    """
    # Who has called `ray.init` here has imported it; nobody else should wait for that.
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return str(ray.get_runtime_context().gcs_address)
    address = os.environ.get("RAY_ADDRESS", "")
    if address in ("", "local"):
        raise InputError(
            "executor ray joins a cluster, and RAY_ADDRESS names none; expected HOST:PORT of one that is running (see "
            "'Which ports are open' in the how-to of sweeps), or executor processes, which does the same on one machine"
        )
    return address
