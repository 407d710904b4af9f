"""Runs tasks on a Ray cluster: as many actors as it has cores, wherever Ray puts them."""

from __future__ import annotations

import os
import pickle
from collections import deque
from typing import Any

from armillary.base.errors import InputError
from armillary.explore.runner.executor import Arrived, Executor
from armillary.explore.runner.executors.futures import ATTEMPTS, lost
from armillary.explore.runner.seat import KeeperError, Seat
from armillary.explore.runner.task import Job, Outcome, Task


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


class Ray(Executor):
    """Joins the cluster of RAY_ADDRESS, or that of a ``ray.init`` before; else starts Ray on this machine.

    Nodes need the program, and the study's files at the same place. A task of a lost node is done on another.
    """

    def __init__(self, workers: int | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise InputError("executor ray needs Ray: pip install armillary[ray]") from error
        self._ray: Any = ray
        self._workers = workers
        # Whether we started or joined Ray here, and so must leave it.
        self._ours = False
        self._actors: list[Any] = []
        # Tasks per actor that has answered.
        self._load: dict[Any, int] = {}
        # Future of `here` -> actor that has not answered yet.
        self._coming: dict[Any, Any] = {}
        self._queue: deque[tuple[int, Task, int]] = deque()
        # Future of a task -> task and its actor.
        self._open: dict[Any, tuple[int, Task, int, Any]] = {}

    def start(self, job: Job) -> None:
        """Join the cluster and ask it for actors; tasks go to those that have come.

        Raises:
            InputError: there is no such cluster.
        """
        ray, address = self._ray, os.environ.get("RAY_ADDRESS")
        if not ray.is_initialized():
            # Without an address Ray would search for a cluster and perhaps join somebody else's.
            where = {"address": address} if address else {"address": "local", "include_dashboard": False}
            try:
                ray.init(**where, log_to_driver=False, logging_level="error")
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise InputError(f"executor ray: {error}") from error
            self._ours = True
        # The cluster may be smaller than the number asked for: actors that get no core would never come.
        cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.slots = min(self._workers or cores, cores)
        # One core each; Ray starts an actor of a lost node elsewhere.
        kind = ray.remote(num_cpus=1, max_restarts=ATTEMPTS)(Actor)
        # Once into the object store, instead of with each actor.
        packed = ray.put(pickle.dumps(job))
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
        """End the actors, and Ray if we started it."""
        if not self._ray.is_initialized():
            return
        for actor in self._actors:
            # Actors of a cluster that we only joined would stay.
            self._ray.kill(actor)
        self._actors, self._load, self._coming, self._open = [], {}, {}, {}
        self._queue.clear()
        if self._ours:
            self._ray.shutdown()
            self._ours = False
