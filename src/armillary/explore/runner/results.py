"""The results of a sweep, from Python: rows, the best of them, a data frame."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armillary.base.errors import InputError
from armillary.base.files import write_text
from armillary.base.hints import KeyPath
from armillary.base.text import csv_text
from armillary.explore.runner.run import Progress, run
from armillary.explore.runner.store import Store
from armillary.explore.sweep.keys import at
from armillary.explore.sweep.load import load_sweep
from armillary.explore.sweep.measures import MEASURES
from armillary.explore.sweep.point import Row
from armillary.explore.sweep.prepared import prepare
from armillary.explore.sweep.sweep import Sweep
from armillary.workload.plan.effects import without_effect

if TYPE_CHECKING:
    import concurrent.futures

    import pandas

    from armillary.explore.runner.executor import Executor


_OF_KERNELS: tuple[KeyPath, ...] = (("platform", "npu", "peak"), ("platform", "compute"))
"""Where keys stand that change kernels alone."""


def without_effect_at(sweep: Sweep, numbers: Iterable[int]) -> Counter[str]:
    """Return what points say without an effect, a sentence each -> in how many of them."""
    found: Counter[str] = Counter()
    varied = {key.text: key.path for axis in sweep.space.axes for key in axis.keys}
    for number in numbers:
        document = sweep.space.at(number).document
        plan = prepare(document, sweep.base.path or Path("study")).plan
        found.update(without_effect(plan) if plan else ())
        if at(document, ("workload", "collective")) is not None:
            found.update(
                f"{text} has no effect on time: a collective alone has no kernels"
                for text, path in varied.items()
                if any(path[: len(place)] == place for place in _OF_KERNELS)
            )
    return found


@dataclass(frozen=True)
class Results:
    """What the points of a sweep came to.

    Attributes:
        sweep: The sweep.
        rows: In the order of its points, whatever order they were done in.
    """

    sweep: Sweep
    rows: tuple[Row, ...]

    @cached_property
    def ranked(self) -> tuple[Row, ...]:
        """The rows that are `ok` and have the measures of all objectives: the best of the first objective first."""
        goals = self.sweep.objectives
        found = [
            row
            for row in self.rows
            if row.status == "ok" and all(goal.name in row.measures for goal in goals)
        ]
        # Lexicographic: later objectives break ties of earlier ones; `sign` makes all of them minima.
        return tuple(sorted(found, key=lambda row: [goal.sign * row.measures[goal.name] for goal in goals]))

    @property
    def best(self) -> Row | None:
        """The first of `ranked`; None if no point is `ok`."""
        return self.ranked[0] if self.ranked else None

    def without_effect(self, top: int) -> Counter[str]:
        """Return what the `top` best points say without an effect, a sentence each -> in how many of them."""
        return without_effect_at(self.sweep, [row.number for row in self.ranked[:top]])

    @property
    def columns(self) -> list[str]:
        """Names of the columns of a table: the number, what is varied, the status, measures that are known."""
        known = {name for row in self.rows for name in row.measures}
        # Points may have different axes; dict.fromkeys keeps the order of first mention.
        axes = list(dict.fromkeys(name for row in self.rows for name in row.values))
        return ["number", *axes, "status", "reason", *(name for name in MEASURES if name in known), "seconds"]

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield each row as one mapping by `columns`; what is not known is None. Measures are in base units."""
        columns = self.columns
        for row in self.rows:
            about = {"number": row.number, "status": row.status, "reason": row.reason, "seconds": row.seconds}
            # Values last: an axis may be called like a measure.
            found = {**about, **row.measures, **row.values}
            yield {name: found.get(name) for name in columns}

    def frame(self) -> pandas.DataFrame:
        """Return a pandas data frame of `records`.

        Raises:
            InputError: pandas is not installed (extra data).
        """
        try:
            import pandas
        except ImportError as error:
            raise InputError("data frames need pandas: pip install armillary[data]") from error
        return pandas.DataFrame(self.records(), columns=self.columns)

    def write_csv(self, path: Path) -> None:
        """Write `records` as CSV, without `seconds`: the same points give the same file, whoever evaluated them."""
        columns = [name for name in self.columns if name != "seconds"]
        rows = ([record.get(name) for name in columns] for record in self.records())
        write_text(path, csv_text(columns, rows))

    def write_json(self, path: Path) -> None:
        """Write the objectives and the rows as JSON; measures with their units, nothing that depends on the run."""
        known = [name for name in self.columns if name in MEASURES]
        document = {
            "objectives": [{"measure": each.name, "goal": each.goal} for each in self.sweep.objectives],
            "units": {name: MEASURES[name].unit for name in known},
            "rows": [
                {
                    "number": row.number, "values": dict(row.values), "key": row.key, "status": row.status,
                    "reason": row.reason, "measures": dict(row.measures),
                }
                for row in self.rows
            ],
        }  # fmt: skip
        write_text(path, json.dumps(document, indent=1) + "\n")


def sweep(
    source: str | Path | Mapping[str, Any],
    store: str | Path | None = None,
    *,
    workers: int | None = None,
    executor: str | Executor | concurrent.futures.Executor | None = None,
    progress: Progress | None = None,
    retry: bool = False,
) -> Results:
    """Evaluate all points of a sweep.

    Args:
        source: A sweep file, or its content.
        store: Where results are kept and found again; None: nowhere, all is done afresh.
        workers: How many points at a time; by default as many as there are cores.
        executor: "processes" (the default), "serial", "ray", or any ``concurrent.futures.Executor``.
        progress: Is called with `Counts` a few times a second.
        retry: Do again what failed or was over a limit.

    Raises:
        InputError: the sweep is malformed, or the store is not one, or another process writes to it.
    """
    asked = load_sweep(source)
    asked.space.check_size()
    # Without a store the results live in a temporary one: there is one way to run only.
    with _place(store) as path, Store(path) as kept:
        run(
            asked,
            asked.space.points(),
            kept,
            executor=executor,
            workers=workers,
            progress=progress,
            retry=retry,
        )
        return Results(asked, tuple(kept.rows()))


@contextmanager
def _place(store: str | Path | None) -> Iterator[Path]:
    if store is not None:
        yield Path(store)
        return
    with tempfile.TemporaryDirectory(prefix="armillary-") as folder:
        yield Path(folder) / "store.sqlite"
