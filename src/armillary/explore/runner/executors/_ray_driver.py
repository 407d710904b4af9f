"""The process that is the driver of a run on Ray: Ray ends its driver where it loses its cluster, and says so itself.

``python -m armillary.explore.runner.executors._ray_driver FD`` is started by `armillary.explore.runner.executors.ray`.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from armillary.base.errors import InputError
from armillary.base.pool import die_with
from armillary.explore.runner.executor import Arrived, CutShortError
from armillary.explore.runner.executors.futures import ATTEMPTS, lost
from armillary.explore.runner.seat import KeeperError, Seat
from armillary.explore.runner.task import Outcome, Task

LOOK = 1.0
"""Seconds between looks whether the cluster is there."""
MISSED = 5
"""Looks in a row that find nothing before a cluster is given up: a head that is busy, or started again, is not gone."""


class Actor:
    """A member of the cluster: a keeper with one process, so that limits hold there, too."""

    def __init__(self, job: bytes) -> None:
        self._job = job
        self._begin()

    def _begin(self) -> None:
        self._seat = Seat(self._job, 1)
        self._seat.ready()

    def here(self) -> bool:
        """Answer once the keeper is ready."""
        return True

    def do(self, packed: bytes) -> list[Outcome]:
        """Do a task."""
        try:
            return self._seat.do(pickle.loads(packed), packed)
        except KeeperError:
            self._seat.close()
            self._begin()
            # Once more only: a task that ends two keepers is left to Ray's own retries, and then to
            # `_failed`.
            return self._seat.do(pickle.loads(packed), packed)


class Driver:
    """Gives tasks to as many actors as the cluster has cores, wherever Ray puts them."""

    def __init__(self, ray: Any, job: bytes, workers: int | None) -> None:
        self._ray = ray
        # Tasks per actor that has answered.
        self._load: dict[Any, int] = {}
        # Future of `here` -> actor that has not answered yet.
        self._coming: dict[Any, Any] = {}
        self._queue: deque[tuple[int, Task, int]] = deque()
        # Future of a task -> task and its actor.
        self._open: dict[Any, tuple[int, Task, int, Any]] = {}
        # The cluster may be smaller than the number asked for: actors that get no core would never come.
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.slots = min(workers or cores, cores)
        # One core each; Ray starts an actor of a lost node elsewhere.
        kind = ray.remote(num_cpus=1, max_restarts=ATTEMPTS)(Actor)
        # Once into the object store, instead of with each actor.
        packed = ray.put(job)
        self._actors = [kind.remote(packed) for _ in range(self.slots)]
        for actor in self._actors:
            self._expect(actor)

    def _expect(self, actor: Any) -> None:
        """Ask an actor that starts, maybe again and on another node, to answer when it is there."""
        self._load.pop(actor, None)
        # Several tasks of one lost actor must not ask it several times.
        if actor not in self._coming.values():
            # max_task_retries -1: asked again by Ray as often as the actor is restarted.
            self._coming[actor.here.options(max_task_retries=-1).remote()] = actor

    def submit(self, number: int, task: Task) -> None:
        """Give a task to the actor that has least to do, if one is there."""
        self._queue.append((number, task, 1))
        self._give()

    def _give(self) -> None:
        while self._queue and self._load:
            actor = min(self._load, key=lambda each: self._load[each])
            # Two per actor: one at work and the next one there.
            if self._load[actor] >= 2:
                return
            number, task, attempt = self._queue.popleft()
            self._load[actor] += 1
            self._open[actor.do.remote(pickle.dumps(task))] = number, task, attempt, actor

    def wait(self, seconds: float) -> list[Arrived]:
        """Take the tasks that are done.

        Raises:
            InputError: an actor cannot begin this job.
        """
        ray = self._ray
        everything = [*self._coming, *self._open]
        found: list[Arrived] = []
        # First wait for one; then take all that are done, without waiting.
        some, _ = ray.wait(everything, num_returns=1, timeout=seconds) if everything else ([], [])
        done, _ = ray.wait(everything, num_returns=len(everything), timeout=0) if some else ([], [])
        for each in done:
            try:
                outcomes = ray.get(each)
            except ray.exceptions.RayError as error:
                found += self._failed(each, error)
                continue
            # An actor has answered and may get tasks.
            if each in self._coming:
                self._load[self._coming.pop(each)] = 0
                continue
            number, _, _, actor = self._open.pop(each)
            found.append(Arrived(number, outcomes))
            # It may be lost by now, and expected again.
            if actor in self._load:
                self._load[actor] -= 1
        self._give()
        return found

    def _failed(self, each: Any, error: Exception) -> list[Arrived]:
        """Do without an actor that does not come; let others do the task of one that was lost."""
        if each in self._coming:
            del self._coming[each]
            # Only if no actor at all has come or can: otherwise the run goes on with fewer.
            if not self._load and not self._coming:
                raise InputError(
                    f"executor ray: no actor begins: {getattr(error, 'cause', None) or error}"
                ) from error
            return []
        number, task, attempt, actor = self._open.pop(each)
        self._expect(actor)
        if attempt >= ATTEMPTS:
            return [lost(number, task, error)]
        # To the front: it is the oldest.
        self._queue.appendleft((number, task, attempt + 1))
        return []

    def close(self) -> None:
        """End the actors; those of a cluster that we only joined would stay."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._ray.shutdown()


class Watch:
    """Looks whether the head of a cluster answers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition("://")[2].rpartition(":")
        self._address = address
        self._place = host.strip("[]"), int(port)
        self._missed = 0
        self._next = 0.0

    def answers(self) -> bool:
        """Tell whether somebody listens there now."""
        with suppress(OSError), socket.create_connection(self._place, timeout=2):
            return True
        return False

    def look(self) -> None:
        """Look, now and then.

        Raises:
            CutShortError: nobody listens there any more.
        """
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK
        self._missed = 0 if self.answers() else self._missed + 1
        if self._missed >= MISSED:
            raise CutShortError(gone(self._address))


def gone(address: str) -> str:
    """Return what to tell of a cluster that is gone."""
    return f"executor ray: the head of the cluster at {address} does not answer any more"


def joined(address: str) -> tuple[Any, Watch]:
    """Join a cluster; return Ray, and what watches its head.

    Raises:
        InputError: there is no such cluster.
    """
    expected = "expected the address of a running cluster, HOST:PORT"
    if address != "auto":
        try:
            # Ray itself asks for a minute.
            there = Watch(address).answers()
        except ValueError:
            raise InputError(f"executor ray: RAY_ADDRESS is {address!r}, {expected}") from None
        if not there:
            raise InputError(f"executor ray: nothing answers at {address}, {expected}")
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"executor ray: {address}: {error}") from error
    return ray, Watch(ray.get_runtime_context().gcs_address if address == "auto" else address)


def serve(upstream: Connection) -> None:
    """Join, and do what comes through the pipe until it is closed."""
    workers, address, job = upstream.recv()
    ray, watch = joined(address)
    driver = Driver(ray, job, workers)
    upstream.send(("ready", driver.slots))
    try:
        while True:
            while upstream.poll():
                driver.submit(*upstream.recv())
            watch.look()
            if arrived := driver.wait(0.1):
                upstream.send(("arrived", arrived))
    except CutShortError:
        raise
    except BaseException:
        # Also when the pipe is closed. Ray may wait for a cluster that is gone: who started us does not.
        driver.close()
        raise


def main() -> None:
    """Serve the pipe whose number is the argument."""
    upstream = Connection(int(sys.argv[1]))
    die_with(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Ray's own does the same, once it is there.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        folder, paths = upstream.recv()
        sys.path[:] = paths
        os.chdir(folder)
        try:
            serve(upstream)
        except CutShortError as error:
            upstream.send(("gone", str(error)))
        except InputError as error:
            upstream.send(("refused", str(error)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        # Nothing of Ray's own at exit, which would wait for what is gone.
        os._exit(0)


if __name__ == "__main__":
    main()
