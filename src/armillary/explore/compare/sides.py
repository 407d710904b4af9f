"""Sides of a comparison: a study file, a saved timeline, or a point of a store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.workload.plan.request import keys_of

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline
    from armillary.explore.sweep.point import Row

_POINT = re.compile(r"(?P<store>.+)#(?P<number>\d+)$")


@dataclass(frozen=True)
class Side:
    """One of the runs.

    Attributes:
        name: As given.
        timeline: The result; None for a point of a store, which keeps only measures.
        document: The study file, or the values of a point; None for a saved timeline.
        measures: See `armillary.explore.sweep.measures`.
    """

    name: str
    timeline: Timeline | None = None
    document: Mapping[str, Any] | None = None
    measures: Mapping[str, float] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Return warnings: that it does not fit into memory, and what its times assume, if known."""
        if self.timeline is None:
            found = ["DOES NOT FIT into the memory of an NPU"] if self.measures.get("fits") == 0 else []
            share = self.measures.get("roofline")
            return found + (
                [f"Compute times assumed: roofline at {100 * share:g} % of the peak"] if share else []
            )
        from armillary.report.memory_fit import does_not_fit, fit_line
        from armillary.report.summary import assumed_of_input, roofline_alone

        found = [fit_line(self.timeline)] * does_not_fit(self.timeline) + assumed_of_input(self.timeline)
        return found + roofline_alone(self.timeline)


def read_side(text: str) -> Side:
    """Return the side that a text names: FILE.npz, STORE.sqlite#NUMBER, or a study file, which is simulated.

    Raises:
        InputError: there is no such file or point, or the study is impossible.
        StuckError: the study cannot finish.
    """
    if Path(text).suffix == ".npz":
        from armillary.engine.common.timeline import Timeline

        return Side(text, Timeline.load(text))
    # An existing file goes first: a name may contain #.
    if (point := _POINT.fullmatch(text)) and not Path(text).exists():
        return _of_store(text, Path(point["store"]), int(point["number"]))
    return _of_study(text)


def side_of(run: Any, name: str) -> Side:
    """Return a run as a side, see `armillary.compare`; `name` is that of one that has none.

    Raises:
        InputError: it is no run, or cannot be read.
    """
    from armillary.engine.common.timeline import Timeline
    from armillary.explore.result import Result
    from armillary.explore.training.prediction import Prediction

    if isinstance(run, Timeline):
        return Side(name, run)
    if isinstance(run, Result):
        return Side(run.name, run.run, run.study.document.data if run.study and run.study.document else None)
    if isinstance(run, Prediction):
        return Side(
            run.title, run.timeline(whole=True), {"plan": keys_of(run.plan), "machine": run.machine.name}
        )
    if isinstance(run, str | Path):
        return read_side(str(run))
    raise InputError(f"{show(run)}: expected a study file, a timeline, or what run or train returned")


def side_of_row(row: Row, name: str = "") -> Side:
    """Return a row of a sweep as a side.

    Raises:
        InputError: it was not simulated.
    """
    name = name or f"point {row.number}"
    if row.status != "ok":
        raise InputError(f"{name}: is {row.status} ({row.reason}), expected a point that is ok")
    return Side(name, None, dict(row.values), row.measures)


def _of_store(text: str, path: Path, number: int) -> Side:
    from armillary.explore.runner.stored import Stored

    with Stored(path) as store:
        rows = {row.number: row for row in store.rows()}
    if number not in rows:
        raise InputError(f"{text}: no such point among the {len(rows):,} that are done")
    return side_of_row(rows[number], text)


def _of_study(text: str) -> Side:
    from armillary.base.document import read_document
    from armillary.engine import simulate
    from armillary.explore.sweep.measured import before_run, of_run
    from armillary.explore.sweep.prepared import prepare
    from armillary.explore.sweep.space import Space
    from armillary.explore.sweep.sweep import Sweep

    document = read_document(text, "study file", "yaml")
    prepared = prepare(document.data, Path(text))
    timeline = simulate(prepared.trace(), prepared.study.platform, profile=prepared.study.profile)
    # A sweep of this one study: it has neither axes nor costs, but gives the same measures.
    alone = Sweep(document.path, document, document, Space((), (), document.data, Path(text).parent))
    measures = before_run(prepared, alone) | of_run(prepared, timeline, alone)
    return Side(text, timeline, document.data, measures)
