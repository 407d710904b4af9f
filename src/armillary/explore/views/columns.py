"""The rows of a sweep as columns of numbers, on which all views are based."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, nearest, one_of
from armillary.explore.sweep.measures import MEASURES, Better
from armillary.explore.sweep.point import Row, Value
from armillary.explore.views.pareto import pareto_ranks

Floats = NDArray[np.float64]
NOT_VARIED = "-"
"""Text for the value of an axis that is not varied at a point."""


@dataclass(frozen=True)
class Axis:
    """An axis: its short name and its values in display order."""

    name: str
    values: tuple[Value, ...]

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The values as they are shown."""
        return tuple(value_text(value) for value in self.values)


@dataclass(frozen=True)
class Objective:
    """A measure, and which direction is better."""

    name: str
    better: Better

    @property
    def title(self) -> str:
        """Return "step time" for `step_time`."""
        return title_of(self.name)


@dataclass(frozen=True)
class Columns:
    """Rows, and columns derived from them.

    Attributes:
        axes: The axes; values that are numbers ascend, others are in the order of the space.
        objectives: At least one.
        rows: In the given order.
        title: Name of the sweep.
    """

    axes: tuple[Axis, ...]
    objectives: tuple[Objective, ...]
    rows: tuple[Row, ...]
    title: str = ""

    @cached_property
    def codes(self) -> NDArray[np.int64]:
        """Position of the value of each row on each axis, (rows, axes); -1 where it is not varied."""
        places = [{_same(value): i for i, value in enumerate(axis.values)} for axis in self.axes]
        found = [
            [
                place.get(_same(row.values.get(axis.name)), -1)
                for axis, place in zip(self.axes, places, strict=True)
            ]
            for row in self.rows
        ]
        return np.array(found, np.int64).reshape(len(self.rows), len(self.axes))

    @cached_property
    def measures(self) -> dict[str, Floats]:
        """Every measure that some row has, (rows,) each, NaN where a row lacks it; the known ones come first."""
        names = dict.fromkeys(name for row in self.rows for name in row.measures)
        # The order of `MEASURES` first; a store may hold measures of plug-ins or other versions.
        names = dict.fromkeys([name for name in MEASURES if name in names] + list(names))
        return {
            name: np.array([row.measures.get(name, np.nan) for row in self.rows], np.float64)
            for name in names
        }

    @cached_property
    def cost(self) -> Floats:
        """The objectives, signed so that less is better, (rows, objectives); NaN for rows that are not ok."""
        none = np.full(len(self.rows), np.nan)
        signed = [
            # Adding 0.0 turns -0.0, from a sign of -1, into 0.0.
            self.measures.get(each.name, none) * (1 if each.better == "less" else -1) + 0.0
            for each in self.objectives
        ]
        table = np.stack(signed, axis=1) if signed else np.empty((len(self.rows), 0))
        # Rejected rows may have measures, too; they must not win.
        table[[row.status != "ok" for row in self.rows]] = np.nan
        return table

    @cached_property
    def ok(self) -> NDArray[np.bool_]:
        """Which rows are ok and have all objectives."""
        return np.asarray(np.isfinite(self.cost).all(axis=1))

    @cached_property
    def pareto(self) -> NDArray[np.int64]:
        """Pareto rank of each row, -1 for those that are not ok."""
        ranks = np.full(len(self.rows), -1, np.int64)
        ranks[self.ok] = pareto_ranks(self.cost[self.ok])
        return ranks

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """The ok rows, best first: by Pareto rank, then the objectives in turn, then their number."""
        chosen = np.flatnonzero(self.ok)
        numbers = np.array([self.rows[i].number for i in chosen], np.int64)
        # `lexsort` sorts by its last key first.
        keys = [numbers, *self.cost[chosen].T[::-1], self.pareto[chosen]]
        return np.asarray(chosen[np.lexsort(keys)], np.int64)

    def lacks_memory(self, row: int) -> bool:
        """Return whether the workload of a row is known not to fit into the memory of an NPU."""
        return "fits" in self.measures and float(self.measures["fits"][row]) == 0

    @property
    def best(self) -> int | None:
        """The first of the rows on the Pareto front, None where no row is ok."""
        return int(self.order[0]) if len(self.order) else None

    @cached_property
    def median(self) -> int | None:
        """The ok row in the middle by the first objective (the better of two), None where there is none."""
        chosen = np.flatnonzero(self.ok)
        if not len(chosen):
            return None
        by_cost = chosen[np.argsort(self.cost[chosen, 0], kind="stable")]
        return int(by_cost[(len(by_cost) - 1) // 2])

    @property
    def varied(self) -> list[int]:
        """The axes that have more than one value."""
        return [i for i, axis in enumerate(self.axes) if len(axis.values) > 1]

    def axis(self, name: str) -> int:
        """Return the place of an axis.

        Raises:
            InputError: there is none of that name.
        """
        names = [axis.name for axis in self.axes]
        if name not in names:
            raise InputError(f"axis '{name}': expected {one_of(names)}{nearest(name, names)}")
        return names.index(name)

    def value(self, row: int, axis: int) -> str:
        """Return the value of a row on an axis as displayed."""
        code = int(self.codes[row, axis])
        return self.axes[axis].texts[code] if code >= 0 else NOT_VARIED

    def described(self, row: int) -> str:
        """Return the varied values of a row as text: "tp 8, pp 16, microbatch 1"."""
        return ", ".join(
            f"{self.axes[axis].name} {self.value(row, axis)}"
            for axis in self.varied
            if self.codes[row, axis] >= 0
        )


def columns_of(rows: Sequence[Row], sweep: Any) -> Columns:
    """Return the columns of the rows of a sweep.

    Args:
        rows: In any order; rows of a search may have values between those of the axes.
        sweep: A `Sweep`, or any object with ``space.axes`` and ``objectives``; or `Columns`, whose axes and
            objectives are used.
    """
    axes = sweep.axes if isinstance(sweep, Columns) else sweep.space.axes
    if conditional := [axis for axis in axes if getattr(axis, "when", None)]:
        rows = [_active(row, sweep.space, conditional) for row in rows]
    path = getattr(sweep, "path", None)
    return Columns(
        tuple(axis_of(axis.name, axis.values, rows) for axis in axes),
        tuple(_objective(each) for each in sweep.objectives) or (Objective("step_time", "less"),),
        tuple(rows),
        str(path) if path else getattr(sweep, "title", ""),
    )


def _active(row: Row, space: Any, conditional: Sequence[Any]) -> Row:
    """Return the row without the values of axes whose condition does not hold there."""
    # Rows hold the standing value of such an axis, which would look like a choice.
    still = {axis.name for axis in conditional if not space.active(axis, row.values)}
    return replace(row, values={name: value for name, value in row.values.items() if name not in still})


def axis_of(name: str, values: Sequence[Value], rows: Sequence[Row]) -> Axis:
    """Return an axis with the given values and any others that occur in rows."""
    # Searches may return values between those of the axis, and stores know no axes at all.
    found = {_same(value): value for value in values}
    for row in rows:
        if row.values.get(name) is not None:
            found.setdefault(_same(row.values[name]), row.values[name])
    every = list(found.values())
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in every):
        # Only if all are numbers: texts keep the order of the space.
        every.sort(key=float)  # type: ignore[arg-type]
    return Axis(name, tuple(every))


def _same(value: Value) -> tuple[bool, Value]:
    """Return a key for a value under which ``1`` and ``True`` differ."""
    return isinstance(value, bool), value


def _objective(each: Any) -> Objective:
    if isinstance(each, Objective):
        return each
    return Objective(each.name, "less" if each.goal == "minimize" else "more")


def value_text(value: Value) -> str:
    """Return a value as YAML would write it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def measure_text(name: str, value: float) -> str:
    """Return a measure with its unit."""
    if not np.isfinite(value):
        return NOT_VARIED
    known = MEASURES.get(name)
    if known is None:
        return f"{value:.4g}"
    return known.show(value)


def title_of(name: str) -> str:
    """Return the name of a measure in words."""
    words = name.replace("_", " ")
    words = words.replace("mfu", "MFU").replace("npu", "NPU")
    return words.replace("flops per", "FLOP/s per")
