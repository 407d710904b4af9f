"""A process that forks processes to do the points, and ends those that take too long or too much.

``python -m armillary.explore.runner.keeper FD`` is started by a `Seat`, on whatever machine. It loads the program and
its compiled kernels once, so that a process forked from it begins within milliseconds.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection, wait

from armillary.base.allowed import set_allowed
from armillary.explore.runner.forked import End, Forked, Work
from armillary.explore.runner.task import Job, Outcome, not_done, over
from armillary.explore.sweep.point import Status

LOOK = 0.02
"""Seconds between looks at clocks and memory, where there are limits."""
# A process may also end because of the machine (out of memory elsewhere), which no point is to blame for.
BAD_STARTS = 3
"""Processes that may end between points before the next point is taken for the cause."""


class Keeper:
    """Processes, tasks that wait for one of them, and the pipe to who wants them done."""

    def __init__(self, upstream: Connection, job: Job, slots: int) -> None:
        self._upstream = upstream
        self._job = job
        self._queue: deque[Work] = deque()
        # Children close the upstream pipe, see `Forked`.
        self._all = [Forked(job, [upstream]) for _ in range(slots)]
        self._bad_starts = 0

    def run(self) -> None:
        """Serve until the other end of the pipe is closed."""
        limits = self._job.limits
        try:
            while True:
                # No timeout without limits: the keeper then sleeps until something happens.
                look = LOOK if str(limits) and any(each.work for each in self._all) else None
                ready = wait([self._upstream, *(each.pipe for each in self._all)], look)
                if self._upstream in ready:
                    number, places = self._upstream.recv()
                    self._queue.append(Work(number, self._upstream.recv_bytes(), places))
                # A copy: `_replace` changes the list.
                for each in list(self._all):
                    if each.pipe in ready:
                        if not self._hear(each):
                            self._replace(each)
                    elif str(limits) and (found := each.over(limits)):
                        self._replace(each, found)
                for each in self._all:
                    if each.work is None and self._queue:
                        each.give(self._queue.popleft())
        finally:
            # Whatever ended the loop, no process is left.
            for each in self._all:
                each.end()

    def _hear(self, each: Forked) -> bool:
        """Pass on what a process has sent; return whether it lives."""
        work = each.work
        found = each.take()
        # None: dead.
        if found is None:
            return False
        if work:
            self._bad_starts = 0
            self._upstream.send((work.number, found))
        return True

    def _replace(self, each: Forked, limit: tuple[Status, int] | None = None) -> None:
        """Put a new process in the place of one that ended, or is over a limit, and let it do the rest."""
        end = each.end()
        # What it sent before it died is still in the pipe and counts.
        while each.pipe.poll() and self._hear(each):
            pass
        each.pipe.close()
        self._all[self._all.index(each)] = Forked(self._job, [self._upstream])
        if each.work is None:
            return
        # Points after the one that is to blame have not been begun: the next process goes on with them.
        self._queue.appendleft(each.work)
        if limit and (end.place is None or limit[1] != end.before):
            return  # it has ended the point just in time
        if limit and limit[0] == "memory" and end.before:
            return  # what earlier points left behind may be the cause: again, in a process of its own
        if limit:
            self._blame(each.work, end, limit[0], over(self._job.limits, limit[0]))
        elif end.place is not None:
            self._blame(each.work, end, "failed", _ended(end.code))
        else:
            self._bad_starts += 1
            if self._bad_starts > BAD_STARTS:
                # Repeated ends between points: the next one is taken for the cause, so that the run comes to
                # an end.
                self._blame(each.work, end._replace(place=each.work.places[0]), "failed", _ended(end.code))

    def _blame(self, work: Work, end: End, status: Status, reason: str) -> None:
        """Report that the point at which a process ended failed."""
        # Its result may have arrived in the meantime.
        if end.place not in work.places:
            return
        work.places.remove(end.place)
        if not work.places:
            self._queue.remove(work)
        point = pickle.loads(work.task).points[end.place]
        row = not_done(point, status, reason, end.seconds)
        self._upstream.send((work.number, [Outcome(end.place, row)]))


def _ended(code: int) -> str:
    # Negative codes are signals, as subprocess has them.
    if code >= 0:
        return f"its process ended with exit code {code}"
    with suppress(ValueError):
        name = signal.Signals(-code).name
        return f"its process was ended by {name}" + " (is the system out of memory?)" * (name == "SIGKILL")
    return f"its process was ended by signal {-code}"


def warm_up() -> None:
    """Load the simulator and its compiled kernels; the first time on a machine they are compiled."""
    import armillary.engine
    from armillary.platform.files.native import load_platform
    from armillary.trace import CollectiveType, GraphBuilder, Trace

    ring = {"topology": "Ring", "size": 4, "bandwidth": "1 GB/s", "latency": "1 us"}
    builder = GraphBuilder()
    for number in range(20):
        builder.collective(f"step {number}", CollectiveType.ALL_REDUCE, 1 << 20)
    trace = Trace.replicate(builder.graph("warm"), ranks=4)
    armillary.engine.simulate(trace, load_platform({"platform": {"network": [ring]}}))


def main() -> None:
    """Serve the pipe whose number is the argument."""
    upstream = Connection(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # runs the `finally` that ends the processes
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        folder, paths, slots = upstream.recv()
        # As in the process that started the keeper: evaluators may come from modules that only it can find.
        sys.path[:] = paths
        # The folder may not exist on another node of a cluster.
        with suppress(OSError):
            os.chdir(folder)
        packed = upstream.recv_bytes()
        # Anything may fail here (a module that is missing, an old version): tell it in one line.
        try:
            job = pickle.loads(packed)
            # Forked processes have the same; the configuration on this machine does not count.
            set_allowed(job.allowed)
            warm_up()
        except Exception as error:
            upstream.send(f"{type(error).__name__}: {error}")
            return
        upstream.send("")
        Keeper(upstream, job, slots).run()


if __name__ == "__main__":
    main()
