"""Run the points of a sweep: screen them all, simulate what is left, and keep every result at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING

from armillary.base.errors import ConsentError, InputError
from armillary.base.hints import show
from armillary.base.programs import consent
from armillary.explore.executor_names import EXECUTOR_NAMES
from armillary.explore.runner.executor import Executor
from armillary.explore.runner.executors import make_executor
from armillary.explore.runner.identity import Identities, Identity
from armillary.explore.runner.task import Evaluates, Job, Kind, Limits, Task
from armillary.explore.sweep.point import Point, Row, Status

if TYPE_CHECKING:
    from concurrent.futures import Executor as Foreign

    from armillary.explore.runner.store import Store
    from armillary.explore.sweep.sweep import Sweep

POLL = 0.25
"""Seconds between calls of `progress` when nothing arrives."""
MOST = 256
"""Points of a task, at most; also the batch in which points are written to the store."""
TASK_SECONDS = {"screen": 0.1, "evaluate": 2.0}
"""How long a task should take: long enough that sending it costs nothing."""


@dataclass
class Counts:
    """Progress of a run.

    Attributes:
        points: Requested so far.
        known: Of these, those that the store had, or that are the same work as another.
        to_screen: How many there are in all, as far as that is known.
        screened: How many are screened.
        to_simulate: How many must be simulated; more while points are screened.
        simulated: How many are.
        status: How many results of each status this run has added.
    """

    points: int = 0
    known: int = 0
    to_screen: int = 0
    screened: int = 0
    to_simulate: int = 0
    simulated: int = 0
    status: Counter[Status] = field(default_factory=Counter)


Progress = Callable[[Counts], None]
Found = list[tuple[Point, Row | None]]


def run(
    sweep: Sweep,
    points: Iterable[Point],
    store: Store,
    *,
    evaluator: Evaluates | None = None,
    executor: str | Executor | Foreign | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    retry: bool = False,
) -> Counts:
    """Do all points that the store does not have, and add their rows to it.

    Points of the same work are done once. What was over a limit is done again under other limits. However the run
    ends, what was done is in the store, but for the points that were in flight.

    Args:
        sweep: What the points are of.
        points: In any number; taken as they are needed.
        store: Where the rows go.
        evaluator: Does the points; by default `armillary.explore.sweep.evaluate.Evaluator`.
        executor: See `make_executor`; an executor that is given is closed, one of ``concurrent.futures`` is not.
        workers: How many points at a time; by default as many as there are cores.
        progress: Is called a few times a second.
        retry: Do again what failed or was over a limit.

    Raises:
        ConsentError: a point wants to start a program that nobody has allowed.
        InputError: the executor cannot do this.
        KeyboardInterrupt: it was interrupted, after processes were ended.
    """
    limits = Limits(sweep.limits.time, sweep.limits.memory)
    number = store.begin(sweep)
    identities = Identities(sweep)
    done = {
        known
        for known, (status, under) in store.done().items()
        # Under other limits a point over a limit may succeed; failures are repeated on request only.
        if status in ("ok", "rejected") or (not retry and (status == "failed" or under == str(limits)))
    }
    counts = Counts(to_screen=sweep.space.size)
    # Number of a point -> what its result is filed under.
    waiting: dict[int, Identity] = {}

    def undone() -> Iterator[Point]:
        source = iter(points)
        # Lazily: a space may have millions of points, and identities hash files.
        while batch := [(point, identities.of(point)) for point in islice(source, MOST)]:
            store.ask(number, batch)
            counts.points += len(batch)
            # `size` may be less than what `points` yields.
            counts.to_screen = max(counts.to_screen, counts.points)
            for point, known in batch:
                # From an earlier run, or the same work under another number in this one.
                if known in done:
                    counts.known += 1
                    continue
                done.add(known)
                waiting[point.number] = known
                yield point

    def keep(found: Found) -> None:
        # Rows of None are those that must be simulated.
        check_refused(row for _, row in found)
        rows = [(waiting.pop(point.number), row) for point, row in found if row]
        if rows:
            store.add(rows, str(limits))
            counts.status.update(row.status for _, row in rows)

    tell = progress or _tell_nobody
    tell(counts)
    todo = undone()
    # Nothing to do: no process is started for a run that is complete.
    first = next(todo, None)
    if first is None:
        tell(counts)
        return counts
    with _started(executor, workers, Job(evaluator or _evaluator(sweep), limits, consent())) as at_work:
        left: list[Point] = []
        for found in through(at_work, "screen", chain([first], todo)):
            # Points to simulate are collected first, so that a run knows how many there are and how long it
            # will take.
            keep(found)
            left += [point for point, row in found if row is None]
            counts.screened += len(found)
            counts.to_simulate = len(left)
            tell(counts)
        for found in through(at_work, "evaluate", left):
            keep(found)
            counts.simulated += len(found)
            tell(counts)
    return counts


def screen(
    sweep: Sweep,
    points: Iterable[Point],
    *,
    evaluator: Evaluates | None = None,
    executor: str | Executor | Foreign | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[Point, Row | None]]:
    """Screen points and keep nothing: yield each with its rejection, or None if it would be simulated."""
    limits = Limits(sweep.limits.time, sweep.limits.memory)
    counts = Counts(to_screen=sweep.space.size)
    with _started(executor, workers, Job(evaluator or _evaluator(sweep), limits, consent())) as at_work:
        for found in through(at_work, "screen", points):
            check_refused(row for _, row in found)
            counts.screened += len(found)
            (progress or _tell_nobody)(counts)
            yield from found


def check_refused(rows: Iterable[Row | None]) -> None:
    """End a run one of whose points wants what nobody has allowed.

    Raises:
        ConsentError: one does.
    """
    for row in rows:
        if row and row.status == "refused":
            raise ConsentError(row.reason)


def through(executor: Executor, kind: Kind, points: Iterable[Point]) -> Iterator[Found]:
    """Put points through an executor in tasks of about `TASK_SECONDS`; yield what arrives, sometimes nothing."""
    source = iter(points)
    rest = len(points) if isinstance(points, Sized) else None
    in_flight: dict[int, tuple[Task, set[int]]] = {}
    # The first size, before a pace is known.
    number, size = 0, 1 if kind == "evaluate" else 16
    pace = _Pace()
    while True:
        # Two per slot: one at work, and the next one there when it ends.
        while len(in_flight) < 2 * executor.slots:
            if seconds := pace.seconds:
                # At most twice the last size: a few quick points must not commit a slot to minutes.
                size = min(max(1, int(TASK_SECONDS[kind] * executor.slots / seconds)), 2 * size, MOST)
            # Towards the end tasks are small, so that all slots end together.
            chunk = tuple(
                islice(source, size if rest is None else min(size, 1 + rest // (2 * executor.slots)))
            )
            if not chunk:
                break
            rest = None if rest is None else rest - len(chunk)
            in_flight[number] = Task(kind, chunk), set(range(len(chunk)))
            executor.submit(number, in_flight[number][0])
            number += 1
        if not in_flight:
            return
        # May stay empty: progress is told all the same.
        found: Found = []
        for task_number, outcomes in executor.wait(POLL):
            task, places = in_flight[task_number]
            for place, row in outcomes:
                places.remove(place)
                found.append((task.points[place], row))
            # A task may arrive in pieces.
            if not places:
                del in_flight[task_number]
        pace.note(len(found))
        yield found


class _Pace:
    """Mean seconds between recent points; None: not known yet."""

    def __init__(self) -> None:
        self._last: float | None = None
        # Both decay alike, so that their ratio is a mean with more weight on recent points.
        self._seconds = self._points = 0.0

    def note(self, points: int) -> None:
        if not points:
            return
        now = time.monotonic()
        # Not from the first arrival: it includes the start of processes.
        if self._last is not None:
            # 0.95 per arrival: about the last twenty.
            self._seconds = 0.95 * self._seconds + now - self._last
            self._points = 0.95 * self._points + points
        self._last = now

    @property
    def seconds(self) -> float | None:
        # Four points at least, before a mean says anything.
        return self._seconds / self._points if self._points >= 4 else None


@contextmanager
def _started(wanted: str | Executor | Foreign | None, workers: int | None, job: Job) -> Iterator[Executor]:
    """Make an executor for a job, and close it; one of another package fails in one line.

    Raises:
        InputError: there is no such executor, it cannot do this, or it has no slots.
    """
    executor = make_executor(wanted, workers)
    # An object has no name of its own among executors; guard wants one for its message.
    name = wanted if isinstance(wanted, str) else EXECUTOR_NAMES.built_in[0]
    with EXECUTOR_NAMES.guard(name):
        try:
            executor.start(job)
            if not isinstance(executor.slots, int) or executor.slots < 1:
                raise InputError(f"executor '{name}': slots: got {show(executor.slots)}, expected 1 or more")
            yield executor
        # Also when the consumer of a generator stops early.
        finally:
            executor.close()


def _evaluator(sweep: Sweep) -> Evaluates:
    from armillary.explore.sweep.evaluate import Evaluator
    from armillary.explore.sweep.prepared import read_anew

    read_anew()
    return Evaluator(sweep)


def _tell_nobody(_: Counts) -> None:
    pass
