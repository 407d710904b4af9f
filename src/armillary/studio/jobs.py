"""Jobs: answers that take long, told while they are made, and ended when nobody wants them."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping
from typing import Any, Literal

from armillary.studio.desk import BusyError, Desk, RefusedError

KINDS = ("plan", "what-if")
MOST_JOBS = 16
"""Jobs that are remembered; of older ones nothing is known."""
MOST_EVENTS = 20_000
"""Events that a job keeps: more are counted, not kept."""
State = Literal["waiting", "running", "done", "failed", "cancelled"]


class Job:
    """An answer in the making."""

    def __init__(self, number: int, kind: str) -> None:
        self.id, self.kind = str(number), kind
        self.state: State = "waiting"
        self.progress: dict[str, Any] | None = None
        self.events: list[dict[str, Any]] = []
        self.result: bytes = b"null"
        self.error: dict[str, Any] | None = None
        self.task: asyncio.Task[None] | None = None

    def tell(self, told: dict[str, Any]) -> None:
        """Take what its answer tells."""
        self.state = "running"
        self.progress = told.pop("progress", self.progress)
        if told and len(self.events) < MOST_EVENTS:
            self.events.append(told)

    def text(self, since: int) -> bytes:
        """Return it as JSON, with its events from number `since` on, and the result when there is one."""
        about = {
            "id": self.id, "kind": self.kind, "state": self.state, "progress": self.progress, "error": self.error,
            "events": self.events[since:], "next": len(self.events),
        }  # fmt: skip
        # The result is JSON already.
        return json.dumps(about).encode()[:-1] + b', "result": ' + self.result + b"}"


class Jobs:
    """The jobs of a studio, which run one after the other in a process of their own."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._jobs: dict[str, Job] = {}
        self._numbers = itertools.count(1)

    def start(self, kind: str, question: Mapping[str, Any]) -> Job:
        """Begin a job.

        Raises:
            BusyError: too many are not done.
        """
        open_ = [job for job in self._jobs.values() if job.state in ("waiting", "running")]
        if len(open_) >= MOST_JOBS // 2:
            raise BusyError
        job = Job(next(self._numbers), kind)
        self._jobs[job.id] = job
        for old in [each for each in self._jobs.values() if each not in open_ and each is not job]:
            if len(self._jobs) > MOST_JOBS:
                del self._jobs[old.id]
        job.task = asyncio.ensure_future(self._run(job, question))
        return job

    def get(self, number: str) -> Job | None:
        """Return a job; None: there is none."""
        return self._jobs.get(number)

    async def _run(self, job: Job, question: Mapping[str, Any]) -> None:
        try:
            job.result = await self.desk.ask(job.kind, question, job.tell)
            job.state = "done"
        except RefusedError as error:
            job.state, job.error = "failed", {"message": str(error), "exit_code": error.exit_code}
        except BusyError:
            job.state, job.error = "failed", {"message": "too many jobs wait", "exit_code": 4}
        except asyncio.CancelledError:
            job.state = "cancelled"

    async def cancel(self, job: Job) -> None:
        """End a job, and wait until it has ended."""
        if job.task and not job.task.done():
            job.task.cancel()
            await asyncio.wait([job.task])
            # One that had not begun to run has caught nothing.
            if job.state in ("waiting", "running"):
                job.state = "cancelled"
