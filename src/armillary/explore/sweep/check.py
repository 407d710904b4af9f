"""Checks of a sweep before any point runs: values that no study accepts, measures that cannot be computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import TypeAdapter, ValidationError

from armillary.base.document import Document
from armillary.base.errors import InputError
from armillary.base.hints import KeyPath
from armillary.explore.sweep.constraint import OF_COSTS, OF_MODEL, OF_RUN
from armillary.explore.sweep.facts import known_model
from armillary.explore.sweep.keys import at, put
from armillary.explore.sweep.measures import MEASURES
from armillary.explore.sweep.space import Axis
from armillary.explore.sweep.sweep import Sweep
from armillary.platform.fields import TAGS, first_problem
from armillary.platform.files.preset import expand
from armillary.platform.files.study_schema import StudyFile
from armillary.workload.plan.request import generate_part

_NETWORK: KeyPath = ("platform", "network")
_TRIED = 100
"""Most values of an axis that are checked before anything runs."""
_GENERATE: KeyPath = ("workload", "generate")
_MODEL: KeyPath = (*_GENERATE, "model")


def check_sweep(sweep: Sweep) -> None:
    """Check that the layout of the first point is that of a study, and remains so with each value of an axis.

    Raises:
        InputError: it is not; names the axis, the key of the study, or the measure that cannot be computed.
    """
    if "jobs" in sweep.study:
        raise sweep.base.error(("jobs",), "expected workload: a sweep is of studies with one workload")
    for text, place, names in _asked(sweep):
        _check_measures(sweep, text, place, names & MEASURES.keys())
    # Only the first point and one value at a time: all combinations would be the sweep itself.
    first = sweep.space.at(0)
    for path, problem in _problems(first.document):
        owner = _owner(sweep, path)
        # What an axis sets is checked with each of its values below; here only the rest.
        if owner is None:
            missing = "" if problem else f"missing key '{path[-1]}'"
            raise sweep.base.error(path if problem else path[:-1], problem or missing)
    if isinstance(name := at(sweep.study, _MODEL), str):
        _check_model(sweep, name, sweep.base, _MODEL)
    for number, axis in enumerate(sweep.space.axes):
        place = ("vary", list(sweep.document.data.get("vary", {}))[number])
        for value in islice(axis.values, _TRIED):
            changed = axis.put(first.document, value)
            if problem := _preset_problem(axis, changed):
                raise sweep.document.error(place, f"{problem} (value {value})")
            named = at(changed, _MODEL)
            if isinstance(named, str) and any(key.path == _MODEL for key in axis.keys):
                _check_model(sweep, named, sweep.document, place)
            for path, problem in _problems(changed):
                # Other problems of this document come from the first point or from a combination.
                if problem and _is_of(axis, path):
                    raise sweep.document.error(place, f"{problem} (value {value})")


def _preset_problem(axis: Axis, changed: Mapping[str, Any]) -> str:
    """Return why a preset that an axis names is none; whether other keys fit to it is a matter of each point."""
    for key in axis.keys:
        if key.path[0] == "platform" and key.path[-1] == "preset":
            alone = Document("", put({}, key.path, at(changed, key.path)))
            try:
                expand(alone, ("platform",))
            except InputError as error:
                return str(error).partition(f"{key.path[-1]}: ")[2] or str(error)
    return ""


def _check_model(sweep: Sweep, name: str, document: Document, place: KeyPath) -> None:
    try:
        known_model(name, sweep.folder)
    except InputError as error:
        raise document.error(place, str(error)) from None


def _asked(sweep: Sweep) -> Iterator[tuple[str, KeyPath, frozenset[str]]]:
    known = {axis.name for axis in sweep.space.axes} | {each.name for each in sweep.space.derived}
    for number, constraint in enumerate(sweep.constraints):
        yield constraint.text, ("where", number), constraint.names - known
    for number, objective in enumerate(sweep.objectives):
        yield objective.name, ("objectives", number), frozenset((objective.name,))


def _check_measures(sweep: Sweep, text: str, place: KeyPath, names: Iterable[str]) -> None:
    generated = at(sweep.study, _GENERATE) is not None or any(
        path[:2] == _GENERATE[: len(path)] for path in _paths(sweep)
    )
    for name in sorted(names):
        # A measure may be known only with another key of the sweep: name that key.
        lacks = ""
        if name in OF_MODEL and not generated:
            lacks = "a workload that the study generates"
        elif name in OF_COSTS and sweep.costs is None:
            lacks = "the key costs"
        elif name in OF_RUN and sweep.tokens is None:
            lacks = "the key tokens"
        elif name in ("headroom", "fits") and not _has_capacity(sweep):
            lacks = "npu.memory.capacity in the study"
        if lacks:
            raise sweep.document.error(place, f"'{text}' needs {lacks}")


def _has_capacity(sweep: Sweep) -> bool:
    capacity: KeyPath = ("platform", "npu", "memory", "capacity")
    expanded, _ = expand(Document("study", dict(sweep.study)), ("platform",))
    return at(expanded.data, capacity) is not None or any(
        path == capacity[: len(path)] for path in _paths(sweep)
    )


def _paths(sweep: Sweep) -> Iterator[KeyPath]:
    for axis in sweep.space.axes:
        yield from (key.path for key in axis.keys)
    yield from (each.key.path for each in sweep.space.derived if each.key)


def _owner(sweep: Sweep, path: KeyPath) -> str | None:
    """Return the key of the sweep that sets the key at a path, one above or one below it; None if there is none."""
    for own in _paths(sweep):
        # Either may contain the other: an axis may set a whole mapping, or one key of it.
        shorter = min(len(own), len(path))
        if own[:shorter] == path[:shorter]:
            return str(own)
    return None


def _is_of(axis: Axis, path: KeyPath) -> bool:
    return any(path[: len(key.path)] == key.path for key in axis.keys)


def _problems(document: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the path and text of each problem in the layout of a study; the text is empty for a missing key."""
    own = Document("study", dict(document))
    try:
        expanded = expand(own, ("platform",))[0].data
    except InputError:
        return  # each point reports it
    # Over a preset, keys name its dimensions, which the expanded study has as a list.
    by_name = isinstance(at(document, _NETWORK), Mapping)
    for path, problem in _found(TypeAdapter(StudyFile), expanded, ()):
        if by_name and path[:2] == _NETWORK and len(path) > 2:
            path = (*_NETWORK, at(expanded, (*path[:3], "name")), *path[3:])
        yield path, problem
    wish = at(document, _GENERATE)
    if isinstance(wish, Mapping):
        yield from _found(TypeAdapter(generate_part()), wish, _GENERATE)


def _found(layout: TypeAdapter[Any], data: Any, below: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    try:
        layout.validate_python(data)
    except ValidationError as error:
        path, problem = first_problem(error)
        yield (*below, *(part for part in path if part not in TAGS)), problem
