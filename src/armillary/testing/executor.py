"""Checks that an executor fulfils its contract, to be called from the tests of the package that provides it."""

from __future__ import annotations

import time
from collections.abc import Callable

from armillary.explore.runner.executor import Executor
from armillary.explore.runner.run import through
from armillary.explore.runner.task import Job, Kind, Limits, do
from armillary.explore.sweep.point import Point, Row

# 60 points, so that several tasks of different sizes are in flight.
_POINTS = [Point(number, {"x": number}, {"x": number}) for number in range(60)]


class Sample:
    """Rejects every fifth point, fails on every seventh, and does others of different lengths."""

    # Multiples of 5 are rejected, those of 7 fail, and the others take 0 to 4 ms: results arrive out of
    # order.
    def screen(self, point: Point) -> Row | None:
        """Reject every fifth point."""
        if point.number % 5 == 0:
            return Row(point.number, point.values, point.key, "rejected", "the fifth")
        return None

    def evaluate(self, point: Point) -> Row:
        """Take a while."""
        if point.number % 7 == 0:
            raise ValueError("the seventh")
        time.sleep(0.002 * (point.number % 3))
        return Row(point.number, point.values, point.key, "ok", "", {"step_time": 1.0 + point.number})


def check_executor(make: Callable[[], Executor]) -> None:
    """Check that points come back, each once, as if they had been done here; and that `close` may come at any time.

    Args:
        make: Makes a new executor.

    Raises:
        AssertionError: it does not; says what was expected.
    """
    executor = make()
    try:
        executor.start(Job(Sample(), Limits()))
        assert executor.slots >= 1, f"slots: {executor.slots}, expected 1 or more"
        for kind in ("screen", "evaluate"):
            _check(executor, kind)
        # After all points came back, nothing may be left over.
        assert executor.wait(0) == [], "wait: something arrived that nobody asked for"
    finally:
        executor.close()
    # close() must be idempotent, and possible without start().
    executor.close()
    unused = make()
    unused.close()


def _check(executor: Executor, kind: Kind) -> None:
    found = [pair for arrived in through(executor, kind, _POINTS) for pair in arrived]
    numbers = sorted(point.number for point, _ in found)
    assert numbers == list(range(len(_POINTS))), f"{kind}: points {numbers}, expected each once"
    for point, row in found:
        # Seconds differ from run to run and are left out.
        assert _told(row) == _told(do(Sample(), kind, point)), f"{kind}: point {point.number} became {row}"


def _told(row: Row | None) -> object:
    return row and (row.number, row.values, row.key, row.status, row.reason, row.measures)
