"""Evaluation of points: read, screened, simulated and measured; a problem of a point becomes part of its row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from armillary.base.document import Source, read_document
from armillary.base.errors import ConsentError, InputError, StuckError
from armillary.base.garbage import uncollected
from armillary.explore.sweep.constraint import BEFORE, Constraint
from armillary.explore.sweep.facts import FACTS, facts_of
from armillary.explore.sweep.measured import before_run, of_run
from armillary.explore.sweep.measures import MEASURES
from armillary.explore.sweep.point import Point, Row, Status
from armillary.explore.sweep.prepared import Prepared, prepare
from armillary.explore.sweep.quantity import number_of
from armillary.explore.sweep.space import Space
from armillary.explore.sweep.sweep import Sweep

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline


@dataclass(frozen=True)
class _Screened:
    """Result of screening: the reason for rejection, or the prepared study to simulate."""

    reason: str
    names: dict[str, Any]
    measures: dict[str, float]
    prepared: Prepared | None = None
    status: Status = "rejected"


class Evaluator:
    """Evaluates the points of one sweep; can be sent to other processes."""

    def __init__(self, sweep: Sweep) -> None:
        """Keep the sweep; nothing is read yet."""
        self.sweep = sweep
        self._path = sweep.base.path or Path("study")
        self._stages = _by_stage(sweep.constraints)
        # `screen`, `simulate` and `evaluate` of one point follow each other: screened once.
        self._last: tuple[Point, _Screened] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The rest is derived, and what was screened last may hold a whole platform.
        return {"sweep": self.sweep}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["sweep"])  # type: ignore[misc]

    def screen(self, point: Point) -> Row | None:
        """Return the row of a point that is rejected before simulation, None if the point has to be simulated."""
        start = perf_counter()
        found = self._screened(point)
        return _row(point, found.status, found.reason, found.measures, start) if found.reason else None

    @uncollected()
    def evaluate(self, point: Point) -> Row:
        """Return the row of a point. Its problems are recorded in the row; only MemoryError is raised."""
        start = perf_counter()
        found = self._screened(point)
        if found.reason:
            return _row(point, found.status, found.reason, found.measures, start)
        measures = found.measures
        try:
            timeline = self.simulate(point)
            assert found.prepared
            measures = measures | of_run(found.prepared, timeline, self.sweep)
            # Measures are kept even if a constraint rejects the point now: they are known.
            reason = _broken(self._stages[2], point, found.names | measures, self.sweep)
        # An impossible study is a result of a sweep, not an error of it.
        except InputError as error:
            return _row(point, "rejected", str(error), measures, start)
        except StuckError as error:
            return _row(point, "failed", f"cannot finish: {_first_line(error)}", measures, start)
        # The runner turns these into rows of status `memory` and `refused`; here they would look like errors.
        except (MemoryError, ConsentError):
            raise
        except Exception as error:
            return _row(point, "failed", _unexpected(error), measures, start)
        return _row(point, "rejected" if reason else "ok", reason, measures, start)

    def simulate(self, point: Point) -> Timeline:
        """Return the timeline of a point.

        Raises:
            InputError: its study is impossible.
            StuckError: it cannot finish.
        """
        from armillary.engine import simulate

        found = self._screened(point)
        prepared = found.prepared or prepare(point.document, self._path)
        return simulate(prepared.trace(), prepared.study.platform, profile=prepared.study.profile)

    def _screened(self, point: Point) -> _Screened:
        last = self._last
        if last is None or last[0] is not point:
            last = self._last = (point, self._screen(point))
        return last[1]

    def _screen(self, point: Point) -> _Screened:
        names = {name: number_of(value) for name, value in point.values.items()}
        measures: dict[str, float] = {}
        try:
            if point.problem:
                return _Screened(point.problem, names, measures)
            if reason := _broken(self._stages[0], point, names, self.sweep):
                return _Screened(reason, names, measures)
            prepared = prepare(point.document, self._path)
            measures = before_run(prepared, self.sweep)
            reason = _broken(self._stages[1], point, names | measures, self.sweep)
        except InputError as error:
            return _Screened(str(error), names, measures)
        except (MemoryError, ConsentError):
            raise
        except Exception as error:
            return _Screened(_unexpected(error), names, measures, status="failed")
        return _Screened(reason, names, measures, prepared)


def evaluate_study(source: Source) -> Row:
    """Return the row of one study file, or of its content, as if it were the only point of a sweep.

    Raises:
        InputError: the file cannot be read.
    """
    base = read_document(source, "study file", "yaml")
    space = Space((), (), base.data, base.path.parent if base.path else Path())
    sweep = Sweep(path=base.path, document=base, base=base, space=space)
    return Evaluator(sweep).evaluate(space.at(0))


def _by_stage(constraints: tuple[Constraint, ...]) -> tuple[list[Constraint], ...]:
    """Return the constraints that can be checked before the study is read, before simulation, and afterwards."""
    stages: tuple[list[Constraint], ...] = ([], [], [])
    for each in constraints:
        # Some names, such as npus, are both: as facts they are known earlier.
        measures = each.names & MEASURES.keys() - FACTS.keys()
        stages[2 if measures - set(BEFORE) else 1 if measures else 0].append(each)
    return stages


def _broken(constraints: list[Constraint], point: Point, names: Mapping[str, Any], sweep: Sweep) -> str:
    """Return why the first violated constraint is violated, "" if there is none."""
    for each in constraints:
        missing = each.names - names.keys()
        known = dict(names)
        # Facts are read on demand: some need the model or the preset to be loaded.
        if facts := missing & FACTS.keys():
            known |= facts_of(point.document, facts, sweep.folder)
        for name in sorted(missing - facts):
            raise InputError(f"{each.text}: {name} is not known of this study{_why(name)}")
        if reason := each.broken(known):
            return reason
    return ""


def _why(name: str) -> str:
    if name in ("memory", "headroom", "fits"):
        return ": expected a generated workload" + " and npu.memory.capacity" * (name != "memory")
    return ""


def _row(point: Point, status: Status, reason: str, measures: Mapping[str, float], start: float) -> Row:
    return Row(point.number, point.values, point.key, status, reason, dict(measures), perf_counter() - start)


def _unexpected(error: Exception) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
