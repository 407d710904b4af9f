"""A study that was run: its answer, and how it shows itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from armillary.base.errors import InputError
from armillary.engine.common.timeline import Timeline
from armillary.platform.model import Platform
from armillary.report.page.blocks import Block, changes
from armillary.report.page.run import answer, details_of, reasons_of
from armillary.report.page.shown import Shown
from armillary.report.table import Parts, ResultTable

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from armillary.explore.what_if import Tried
    from armillary.platform.files.native import Study
    from armillary.report.lower_bound import Bound
    from armillary.report.memory_fit import Memory


@dataclass(frozen=True, repr=False)
class Result(Shown):
    """A run with what it was a run of.

    Attributes:
        name: Of the study.
        run: The timeline.
        platform: The machine.
        again: Simulates the same on another machine.
        study: Where the workload came from; None: from elsewhere.
    """

    name: str
    run: Timeline
    platform: Platform | None = None
    again: Callable[[Platform], Timeline] | None = field(default=None, compare=False)
    study: Study | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """Return three lines: the answer, memory and bound, and what takes most of it."""
        return "\n".join(three_lines(self.run))

    @property
    def title(self) -> str:
        """The name of the study."""
        return self.name

    @property
    def step_time(self) -> float:
        """Time of the run in s."""
        return self._ns(self.run.total_ticks) * 1e-9

    @property
    def interval(self) -> tuple[float, float] | None:
        """Between which times, in s, 9 of 10 measured steps are expected; None: not known."""
        found = self.run.info.get("uncertainty")
        return found and (self.step_time * found["low_ratio"], self.step_time * found["high_ratio"])

    @property
    def breakdown(self) -> Parts:
        """Part of the time of the slowest rank -> s, the largest first; they add up to its finish. A table, too."""
        return Parts(dict(sorted(breakdown_of(self.run).items(), key=lambda each: -each[1])))

    @property
    def mfu(self) -> float | None:
        """FLOP/s that the model needs, over the peak, as a share; None: not known."""
        from armillary.report.flop_rate import flops

        found = flops(self.run)
        return found.mfu if found else None

    @property
    def memory(self) -> Memory | None:
        """What the fullest rank needs, in bytes, and whether it fits; None: not known."""
        from armillary.report.memory_fit import memory_of_run

        return memory_of_run(self.run)

    @property
    def bound(self) -> Bound:
        """What no run of this can be faster than, see `armillary.report.bound`."""
        from armillary.report.lower_bound import bound

        return bound(self.run)

    @property
    def collectives(self) -> ResultTable:
        """A row for each kind of collective of the slowest rank: ``pandas.DataFrame(result.collectives)``."""
        from armillary.report.communication import collective_rows

        return collective_rows(self.run)

    def timeline(self) -> Timeline:
        """Return start and end of every node and every phase."""
        return self.run

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure | None:
        """Draw the breakdown into a .png, .svg or .pdf file, or return matplotlib's figure.

        Raises:
            InputError: matplotlib is not installed, the suffix is another, or the file cannot be written.
        """
        from armillary.report.picture import breakdown_picture

        return breakdown_picture(self.run, path)

    def tried(self) -> list[Tried]:
        """Simulate changes of the machine, and return what each does to the time; none if the run is too large."""
        from armillary.explore.what_if import tried

        return tried(self.platform, self.run, self.again) if self.platform and self.again else []

    def blocks(self, *, changes: bool = True) -> list[Block]:
        """Return the blocks of the page."""
        found = self.tried() if changes else []
        return [
            answer(self.run), *reasons_of(self.run), *_changed(self.step_time, found), *details_of(self.run),
            *self._held(),
        ]  # fmt: skip

    def _held(self) -> list[Block]:
        """Return the block of memory over time where the study says which model is run how."""
        if self.study is None or self.study.generate is None:
            return []
        from armillary.report.page.memory import memory_block
        from armillary.workload.generate import footprint_of
        from armillary.workload.plan.request import read_request

        capacity = self.run.info.get("memory", {}).get("capacity_bytes")
        return [memory_block(footprint_of(*read_request(self.study)), capacity)]

    def _ns(self, ticks: int) -> float:
        from armillary.report.plain import nanoseconds

        return float(nanoseconds(self.run, ticks))


def run(
    study: str | Path, *, profile: str | None = None, network_model: str | None = None, fold: bool = True
) -> Result:
    """Simulate a study file.

    Args:
        study: The file.
        profile: See `armillary.simulate`.
        network_model: See `armillary.simulate`.
        fold: See `armillary.simulate`.

    Raises:
        InputError: the file cannot be read, cannot be simulated, or has several jobs, which `simulate_jobs` takes.
        StuckError: the simulation cannot finish.
    """
    from functools import partial

    from armillary.engine import simulate
    from armillary.platform.files.native import load_study
    from armillary.workload import study_trace

    read = load_study(study)
    if read.jobs:
        raise InputError(
            f"{study}: has several jobs, expected one workload; armillary.simulate_jobs takes several"
        )
    again = partial(
        simulate, study_trace(read), profile=profile or read.profile, fold=fold, network_model=network_model
    )
    return Result(str(study), again(read.platform), read.platform, again, read)


def three_lines(timeline: Timeline) -> list[str]:
    """Return the answer with its interval, memory and bound, and the largest parts."""
    from armillary.base.units import format_time
    from armillary.report.lower_bound import bound, bound_line
    from armillary.report.memory_fit import fit_line
    from armillary.report.summary import headline, interval
    from armillary.report.time_breakdown import TITLES

    parts = sorted(breakdown_of(timeline).items(), key=lambda each: -each[1])
    words = [f"{TITLES[part]} {format_time(seconds * 1e9)}" for part, seconds in parts if seconds]
    fit = fit_line(timeline) if "memory" in timeline.info else ""
    return [
        ", ".join(filter(None, (headline(timeline), interval(timeline)))),
        "; ".join(filter(None, (fit, bound_line(timeline, bound(timeline)))))
        or "Memory and bound: not known",
        ", ".join(words) or "nothing runs",
    ]


def breakdown_of(timeline: Timeline) -> dict[str, float]:
    """Return the parts of the time of the slowest rank, in s."""
    from armillary.report.plain import nanoseconds, slowest
    from armillary.report.time_breakdown import breakdown

    cls = slowest(timeline)
    parts = breakdown(timeline, cls).parts() if cls is not None else {}
    return {part: float(nanoseconds(timeline, ticks)) * 1e-9 for part, ticks in parts.items()}


def _changed(before: float, found: list[Tried]) -> list[Block]:
    if not found:
        return []
    rows = [(each.text, each.seconds, each.remark, each.allowed) for each in found]
    return [changes("What a change would do", before, rows, "Each was simulated, with nothing else changed.")]
