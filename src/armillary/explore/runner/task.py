"""What an executor is given and gives back, and how one point is done."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

from armillary.base.allowed import Allowed, listening
from armillary.base.errors import ConsentError
from armillary.base.hints import one_line
from armillary.base.units import format_bytes, format_time
from armillary.explore.sweep.point import Point, Row, Status

Kind = Literal["screen", "evaluate"]


class Evaluates(Protocol):
    """What `armillary.explore.sweep.evaluate.Evaluator` is to the runner; it is pickled once per process."""

    def screen(self, point: Point) -> Row | None:
        """Return why a point is rejected before it is simulated; None: it must be simulated."""

    def evaluate(self, point: Point) -> Row:
        """Simulate a point."""


@dataclass(frozen=True)
class Limits:
    """Limits of one point.

    Attributes:
        time: Seconds of wall-clock time.
        memory: Bytes of anonymous memory of its process (about 0.2 GB of them are the program's own).
    """

    time: float | None = None
    memory: int | None = None

    def __str__(self) -> str:
        shown = [format_time(self.time * 1e9)] if self.time is not None else []
        # The text is stored with results and compared: other limits mean that a point over them is tried
        # again.
        return ", ".join(shown + ([format_bytes(self.memory)] if self.memory is not None else []))


class Job(NamedTuple):
    """What is the same for all points of a run."""

    evaluator: Evaluates
    limits: Limits
    allowed: Allowed = Allowed()
    """What whoever started the run allows: workers have no other consent."""


class Task(NamedTuple):
    """Some points, of which all are to be screened or all to be simulated."""

    kind: Kind
    points: tuple[Point, ...]


class Outcome(NamedTuple):
    """What became of a point, by its place in the task; no row: it is to be simulated."""

    place: int
    row: Row | None


def over(limits: Limits, status: Status) -> str:
    """Return the reason of a point that exceeded a limit."""
    # Only the limit that was exceeded.
    shown = Limits(limits.time) if status == "timeout" else Limits(memory=limits.memory)
    return f"over the limit of {shown}"


def not_done(point: Point, status: Status, reason: str, seconds: float = 0.0) -> Row:
    """Return the row of a point without a result."""
    return Row(point.number, point.values, point.key, status, one_line(reason), {}, seconds)


def do(evaluator: Evaluates, kind: Kind, point: Point) -> Row | None:
    """Screen or simulate a point; an evaluator that raises, or measures what is no number, is a failed point."""
    # Not the row's own seconds: a point that fails has none.
    begun = time.perf_counter()
    call: Callable[[Point], Row | None] = evaluator.screen if kind == "screen" else evaluator.evaluate
    try:
        # A run says how many points are done, not how far each of them is.
        with listening(None):
            row = call(point)
    except MemoryError as error:
        return not_done(point, "memory", str(error) or "not enough memory", time.perf_counter() - begun)
    # Every other point would want the same: the run ends with it, and nothing of it is kept.
    except ConsentError as error:
        return not_done(point, "refused", str(error), time.perf_counter() - begun)
    # A point must not end the sweep, whatever a plug-in raises.
    except Exception as error:
        return not_done(point, "failed", f"{type(error).__name__}: {error}", time.perf_counter() - begun)
    if row is None:
        return None
    # NumPy scalars are no JSON.
    measures = {name: float(value) for name, value in row.measures.items()}
    wrong = [name for name, value in measures.items() if not math.isfinite(value)]
    if wrong:
        return not_done(point, "failed", f"{wrong[0]} is {measures[wrong[0]]}", row.seconds)
    return replace(row, measures=measures)
