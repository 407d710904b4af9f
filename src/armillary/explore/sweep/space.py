"""The space of a sweep: axes, their points in order, and the study of each point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.base.counts import MOST_POINTS, check_count
from armillary.base.errors import InputError, nearest
from armillary.base.hints import show
from armillary.explore.sweep.expression import Expression
from armillary.explore.sweep.facts import FACTS, facts_of
from armillary.explore.sweep.keys import Key, put
from armillary.explore.sweep.point import MOST_NUMBER, Point, Value
from armillary.explore.sweep.quantity import number_of, written


@dataclass(frozen=True)
class Axis:
    """One varied key, or a named choice of several keys.

    Attributes:
        name: In expressions and tables.
        keys: Of the study; several for named choices.
        values: In order; of choices their names.
        when: Where it is varied; elsewhere the study's own value holds. None: everywhere.
        choices: Of each name, what the keys become; empty for a single key.
        standing: The study's own value, as tables show it.
    """

    name: str
    keys: tuple[Key, ...]
    values: tuple[Value, ...]
    when: Expression | None = None
    choices: Mapping[str, Mapping[Key, Any]] = field(default_factory=dict)
    standing: Value = None

    def put(self, document: Mapping[str, Any], value: Value) -> Mapping[str, Any]:
        """Return the study with one of the values."""
        if not self.choices:
            return put(document, self.keys[0].path, value)  # type: ignore[no-any-return]
        for key, each in self.choices[str(value)].items():
            document = put(document, key.path, each)
        return document


@dataclass(frozen=True)
class Space:
    """All points of a sweep: the last axis changes fastest.

    Attributes:
        axes: In the order of the file; a condition knows those before it.
        derived: What is computed from them.
        base: The study without them.
        folder: Where paths in the study start.
    """

    axes: tuple[Axis, ...]
    derived: tuple[Derived, ...]
    base: Mapping[str, Any]
    folder: Path = Path()
    _ahead: list[tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _counts: dict[tuple[Any, ...], int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A subtree depends on earlier axes only through the conditions in it. Few axes are named by
        # one, so few subtrees differ, and counts can be memoised by the values of these alone.
        named = [axis.when.names if axis.when else frozenset() for axis in self.axes]
        later = [frozenset[str]().union(*named[depth:]) for depth in range(len(self.axes) + 1)]
        # By depth, the earlier axes that conditions from there on read.
        ahead = [
            tuple(axis.name for axis in self.axes[:depth] if axis.name in later[depth])
            for depth in range(len(self.axes) + 1)
        ]
        # The dataclass is frozen; these are caches, not part of its value.
        object.__setattr__(self, "_ahead", ahead)
        object.__setattr__(self, "_counts", {})

    def __getstate__(self) -> dict[str, Any]:
        return {"axes": self.axes, "derived": self.derived, "base": self.base, "folder": self.folder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        self.__post_init__()

    @property
    def size(self) -> int:
        """Number of points."""
        return self._count(0, {})

    def check_size(self) -> None:
        """Refuse more points than anybody waits for.

        Raises:
            InputError: there are more than `counts.MOST_POINTS`.
        """
        check_count(self.size, MOST_POINTS, "vary: points", "fewer values")

    def points(self) -> Iterator[Point]:
        """Yield all points, in order and lazily; what goes through all of them calls `check_size` before."""
        return self._points(0, {}, self.base, iter(range(self.size)))

    def point(self, values: Mapping[str, Value]) -> Point:
        """Return the point with these values; those of axes that are not varied there, or computed, are ignored.

        Raises:
            InputError: a value is missing, or not one of its axis.
        """
        names = [*(axis.name for axis in self.axes), *(each.name for each in self.derived)]
        for name in values:
            if name not in names:
                raise InputError(f"no axis '{name}'{nearest(name, names)}")
        number, own, document = 0, dict[str, Value](), self.base
        for depth, axis in enumerate(self.axes):
            if not self.active(axis, own):
                own[axis.name] = axis.standing
                continue
            if axis.name not in values:
                raise InputError(f"no value of {axis.name}, expected one of {_some(axis.values)}")
            value = values[axis.name]
            place = _place(axis.values, value)
            if place is None:
                raise InputError(f"{axis.name}: got {show(value)}, expected one of {_some(axis.values)}")
            # The number of a point is the size of everything before it, level by level.
            number += self._before(depth, own, place)
            own[axis.name] = axis.values[place]
            document = axis.put(document, axis.values[place])
        return self._made(number, own, document)

    def at(self, number: int) -> Point:
        """Return the point of a number, from 0.

        Raises:
            InputError: there are not as many.
        """
        if not 0 <= number < self.size:
            raise InputError(f"point {number}: expected 0 to {self.size - 1}")
        left, own, document = number, dict[str, Value](), self.base
        for depth, axis in enumerate(self.axes):
            if not self.active(axis, own):
                own[axis.name] = axis.standing
                continue
            for value in axis.values:
                # Subtrees of equal depth may differ in size, so descend by counting them off.
                own[axis.name] = value
                below = self._count(depth + 1, own)
                if left < below:
                    break
                left -= below
            document = axis.put(document, own[axis.name])
        return self._made(number, own, document)

    def active(self, axis: Axis, values: Mapping[str, Value]) -> bool:
        """Return whether an axis is varied, given the values of the axes before it.

        Raises:
            InputError: its condition has no value there.
        """
        if axis.when is None:
            return True
        return bool(axis.when.value({name: number_of(values[name]) for name in axis.when.names}))

    def _points(
        self, depth: int, own: dict[str, Value], document: Mapping[str, Any], numbers: Iterator[int]
    ) -> Iterator[Point]:
        if depth == len(self.axes):
            yield self._made(next(numbers), own, document)
            return
        axis = self.axes[depth]
        if not self.active(axis, own):
            yield from self._points(depth + 1, own | {axis.name: axis.standing}, document, numbers)
            return
        for value in axis.values:
            yield from self._points(depth + 1, own | {axis.name: value}, axis.put(document, value), numbers)

    def _made(self, number: int, values: dict[str, Value], document: Mapping[str, Any]) -> Point:
        problem = ""
        for each in self.derived:
            try:
                values, document = each.put(values, document, self.folder)
            except InputError as error:
                # Keep the first problem, and go on: the other values still describe the point.
                problem = problem or str(error)
        return Point(number, values, document, problem)

    def _count(self, depth: int, own: Mapping[str, Value]) -> int:
        """Return the number of points below an axis, given the values of the axes before it."""
        if depth == len(self.axes):
            return 1
        counts: dict[Any, int] = self._counts
        key = (depth, *(own[name] for name in self._ahead[depth]))
        if key not in counts:
            axis = self.axes[depth]
            if not self.active(axis, own):
                counts[key] = self._count(depth + 1, {**own, axis.name: axis.standing})
            elif axis.name not in self._ahead[depth + 1]:
                # No later condition reads this axis: all its subtrees are equal.
                counts[key] = len(axis.values) * self._count(depth + 1, own)
            else:
                counts[key] = self._before(depth, own, len(axis.values))
        return counts[key]

    def _before(self, depth: int, own: Mapping[str, Value], place: int) -> int:
        """Return the number of points under the first `place` values of an axis."""
        axis = self.axes[depth]
        if axis.name not in self._ahead[depth + 1]:
            return place * self._count(depth + 1, own)
        return sum(self._count(depth + 1, {**own, axis.name: value}) for value in axis.values[:place])


def _place(values: tuple[Value, ...], value: Value) -> int | None:
    for place, each in enumerate(values):
        # 1 == True in Python, but not in a study.
        if each == value and isinstance(each, bool) == isinstance(value, bool):
            return place
    return None


def _some(values: tuple[Value, ...]) -> str:
    shown = ", ".join(map(str, values[:8]))
    return shown if len(values) <= 8 else f"{shown}, … {values[-1]}"


@dataclass(frozen=True)
class Derived:
    """One entry of ``let``.

    Attributes:
        name: In expressions.
        key: Of the study; None for a name only.
        expression: The expression that gives its value.
    """

    name: str
    key: Key | None
    expression: Expression

    def put(
        self, values: dict[str, Value], document: Mapping[str, Any], folder: Path
    ) -> tuple[dict[str, Value], Mapping[str, Any]]:
        """Return the values and the study with this entry added.

        Raises:
            InputError: it has no value here.
        """
        needed = self.expression.names
        names = {name: number_of(values[name]) for name in needed if name in values}
        if len(names) < len(needed):
            others = needed - names.keys()
            if none := sorted(others - FACTS.keys()):
                raise InputError(f"'{self.expression.text}': {none[0]} has no value here")
            names |= facts_of(document, others, folder)
        value = self.expression.value(names)
        # Whole results become integers, as study files need for counts; above 2**53 a float is not
        # exact.
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)
        # No larger than what a store takes for a number.
        if not isinstance(value, int | float | str) or not (
            isinstance(value, str) or abs(value) < MOST_NUMBER
        ):
            raise InputError(
                f"'{self.expression.text}' = {show(value)}, expected a number below {MOST_NUMBER:g}"
            )
        if self.key is not None:
            # Expressions compute in base units; the reader of the key wants a unit.
            placed = written(value, self.key.kind) if self.key.kind and not isinstance(value, str) else value
            return values | {self.name: placed}, put(document, self.key.path, placed)
        return values | {self.name: value}, document
