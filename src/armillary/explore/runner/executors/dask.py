"""Runs tasks on Dask: on a cluster that somebody has started, or on processes of this machine behind its loopback."""

from __future__ import annotations

import os
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from armillary.base.errors import InputError
from armillary.explore.runner.executor import Arrived, CutShortError
from armillary.explore.runner.executors.futures import Futures, end_here
from armillary.explore.runner.task import Job

PATIENCE = 10
"""Seconds in which a scheduler must answer."""


class Dask(Futures):
    """Joins the scheduler of DASK_SCHEDULER_ADDRESS, else starts one and its workers on 127.0.0.1.

    Nodes need the program, and the study's files at the same place. A task of a lost worker is done by another.
    """

    def __init__(self, workers: int | None = None) -> None:
        try:
            import distributed
        except ImportError as error:
            raise InputError("executor dask needs Dask: pip install armillary[dask]") from error
        super().__init__(None, workers)
        self._distributed: Any = distributed
        self._workers = workers
        self._client: Any = None
        self._cluster: Any = None
        self._address = ""

    def start(self, job: Job) -> None:
        """Join the scheduler.

        Raises:
            InputError: there is none, or it has no workers.
        """
        super().start(job)
        known = os.environ.get("DASK_SCHEDULER_ADDRESS", "")
        try:
            if not known:
                self._cluster = self._start_here()
            self._client = self._distributed.Client(
                known or self._cluster, timeout=PATIENCE, set_as_default=False
            )
        except (OSError, TimeoutError, ValueError, ImportError) as error:
            where = f"at {known}" if known else "on this machine"
            raise InputError(f"executor dask: no scheduler {where}: {error}") from error
        self._address = self._client.scheduler.address
        cores = sum(self._client.ncores().values())
        if not cores:
            raise InputError(f"executor dask: the scheduler at {self._address} has no workers")
        self.slots = min(self._workers or cores, cores)
        # Retries are ours: a task that ends one worker after the other is given up.
        self._executor = self._client.get_executor(pure=False)

    def _start_here(self) -> Any:
        # Nothing but the loopback; without an address, status pages would be on all interfaces. A process per worker: a
        # task is done by a process of its own in any case, and a worker that is lost takes one task with it.
        return self._distributed.LocalCluster(
            n_workers=self.slots,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            protocol="tcp://",
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            silence_logs=50,
        )

    def wait(self, seconds: float) -> list[Arrived]:
        """Take the tasks that are done.

        Raises:
            CutShortError: the scheduler is gone.
        """
        try:
            return super().wait(seconds)
        except CancelledError as error:
            raise CutShortError(
                f"executor dask: the scheduler at {self._address} does not answer any more"
            ) from error

    def close(self) -> None:
        """End the processes of this run, and the scheduler if we started it."""
        super().close()
        client, cluster, self._client, self._cluster = self._client, self._cluster, None, None
        # A scheduler that is gone has nothing to end.
        with suppress(Exception):
            if client is not None and client.status == "running":
                client.run(end_here, self._name)
        with suppress(Exception):
            if client is not None:
                client.close(timeout=PATIENCE)
        if cluster is not None:
            cluster.close(timeout=PATIENCE)
