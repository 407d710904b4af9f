"""Reading and checking of sweep files, before anything is evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from keyword import iskeyword
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from armillary.base.counts import MOST_ENTRIES, check_count
from armillary.base.document import Document, Source, read_document
from armillary.base.errors import InputError, nearest
from armillary.base.hints import KeyPath
from armillary.explore.sweep.check import check_sweep
from armillary.explore.sweep.constraint import constraint, known_names, objective
from armillary.explore.sweep.expression import Expression
from armillary.explore.sweep.facts import FACTS, depends
from armillary.explore.sweep.keys import Key, find_key
from armillary.explore.sweep.measures import MEASURES
from armillary.explore.sweep.schema import Sweep as SweepFile
from armillary.explore.sweep.schema import Varied
from armillary.explore.sweep.space import Axis, Derived, Space
from armillary.explore.sweep.sweep import Limits, Sweep
from armillary.explore.sweep.values import values_of
from armillary.platform.fields import first_error

_PLAIN = (str, int, float, bool, type(None))


def load_sweep(source: Source) -> Sweep:
    """Read a sweep file, or the content of one.

    Raises:
        InputError: it is missing or malformed: an unknown key of the sweep or of the study, a value that does not fit,
            an expression with an unknown name; names the file, the line and the nearest choice.
    """
    document = read_document(source, "sweep file", "yaml")
    try:
        model = SweepFile.model_validate(document.data)
    except ValidationError as error:
        raise first_error(document, error) from None
    for name, entries in (("let", model.let), ("where", model.where), ("objectives", model.objectives)):
        check_count(len(entries), MOST_ENTRIES, f"{document.where((name,))}: entries of {name}", "fewer")
    base = _base(document, model.study)
    axes = axes_of(document, ("vary",), model.vary, base)
    derived = _derived(document, model.let, base, axes)
    names = frozenset(axis.name for axis in axes) | {each.name for each in derived}
    constraints = []
    for number, text in enumerate(model.where):
        try:
            found = constraint(text)
            found.expression.check_names(known_names(names))
        except InputError as error:
            raise document.error(("where", number), str(error)) from None
        constraints.append(found)
    objectives = []
    for number, text in enumerate(model.objectives):
        try:
            objectives.append(objective(text))
        except InputError as error:
            raise document.error(("objectives", number), str(error)) from None
    seconds = model.limits.time / 1e9 if model.limits.time is not None else None
    sweep = Sweep(
        path=document.path,
        document=document,
        base=base,
        space=Space(axes, derived, base.data, base.path.parent if base.path else Path()),
        constraints=tuple(constraints),
        objectives=tuple(objectives),
        costs=model.costs,
        tokens=model.tokens,
        limits=Limits(seconds, model.limits.memory),
        search=model.search,
    )
    # Names and types are right from here on; this looks at what the values make of the study.
    check_sweep(sweep)
    return sweep


def _base(document: Document, study: Any) -> Document:
    if isinstance(study, Mapping):
        # An inline study has no lines of its own: its errors name the sweep file.
        return replace(document, data=dict(study), text="", name=f"{document.name}: study")
    if not isinstance(study, str):
        document.reject(("study",), study, "a study file, or the content of one")
    folder = document.path.parent if document.path else Path()
    return read_document(folder / study, "study file", "yaml")


def axes_of(document: Document, at: KeyPath, vary: Mapping[str, Any], base: Document) -> tuple[Axis, ...]:
    """Return the axes of a section `vary`, which stands `at` a place of a file.

    Args:
        document: The file.
        at: Place of the section.
        vary: The section.
        base: The study whose keys are varied.

    Raises:
        InputError: a key is none of the study's, or its values do not fit; names file and line.
    """
    axes: list[Axis] = []
    owners: dict[KeyPath, str] = {}
    check_count(len(vary), MOST_ENTRIES, f"{document.where(at)}: entries of {at[-1]}", "fewer")
    for text, given in vary.items():
        place: KeyPath = (*at, text)
        varied = _varied(document, place, given)
        try:
            axis = _axis(str(text), varied, base)
            _check_name(axis.name, [each.name for each in axes], axis.keys)
            _check_condition(axis, axes)
        except InputError as error:
            raise document.error(place, str(error)) from None
        _own(document, place, axis.keys, owners, axis.name)
        axes.append(axis)
    return tuple(axes)


def _varied(document: Document, place: KeyPath, given: Any) -> Varied:
    if isinstance(given, list):
        given = {"values": given}
    if not isinstance(given, Mapping):
        document.reject(place, given, "a list of values, or a mapping: from and to, values, or choices")
    try:
        return Varied.model_validate(given)
    except ValidationError as error:
        raise first_error(document, error, place) from None


def _axis(text: str, varied: Varied, base: Document) -> Axis:
    when = Expression(varied.when) if varied.when else None
    if varied.choices is None:
        key = find_key(text, base.data)
        # Tables show plain values; a list or a mapping has no short form.
        standing = key.default if isinstance(key.default, _PLAIN) else None
        return Axis(varied.name or key.last, (key,), values_of(varied), when, standing=standing)
    choices = {
        str(name): {find_key(each, base.data): value for each, value in own.items()}
        for name, own in varied.choices.items()
    }
    # Choices need not set the same keys: the axis owns all of them.
    keys = tuple(dict.fromkeys(key for own in choices.values() for key in own))
    if not keys:
        raise InputError(
            f"the choices {', '.join(choices)} change nothing, expected a key of the study in one"
        )
    return Axis(varied.name or text, keys, tuple(choices), when, choices, "study")


def _check_name(name: str, taken: list[str], keys: tuple[Key, ...]) -> None:
    if not name.isidentifier() or iskeyword(name) or name.startswith("_"):
        raise InputError(f"'{name}' is no name for expressions, expected another: {{name: …}}")
    if name in taken:
        raise InputError(f"the name '{name}' is taken, expected another: {{name: …}}")
    if name in MEASURES:
        raise InputError(f"'{name}' is the name of a measure, expected another: {{name: …}}")
    # An axis over the key itself may have the name of its fact: both mean the same value.
    if name in FACTS and [key.last for key in keys] != [name]:
        raise InputError(f"'{name}' is what the study says ({name}), expected another: {{name: …}}")


def _check_condition(axis: Axis, before: list[Axis]) -> None:
    if axis.when is None:
        return
    names = [each.name for each in before]
    for name in sorted(axis.when.names):
        if name not in names:
            known = f"{nearest(name, names)}; listed before: {', '.join(names) or 'nothing'}"
            raise InputError(f"when: '{axis.when.text}': no axis '{name}' is listed before this one{known}")


def _own(
    document: Document, place: KeyPath, keys: tuple[Key, ...], owners: dict[KeyPath, str], name: str
) -> None:
    """Record the owner of each key; no key may have two."""
    for key in keys:
        for path, other in owners.items():
            shorter = min(len(path), len(key.path))
            # A key, one above it or one below it: the later would overwrite the earlier.
            if other != name and path[:shorter] == key.path[:shorter]:
                raise document.error(place, f"{key.text} is changed by '{other}', too")
        owners[key.path] = name


def _derived(
    document: Document, let: Mapping[str, Any], base: Document, axes: tuple[Axis, ...]
) -> tuple[Derived, ...]:
    """Return the derived values, each after those that it needs."""
    owners = {key.path: axis.name for axis in axes for key in axis.keys}
    found: dict[str, Derived] = {}
    places: dict[str, KeyPath] = {}
    names = [axis.name for axis in axes]
    for text, given in let.items():
        place: KeyPath = ("let", text)
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            document.reject(place, given, "an expression, e.g. 16 * npus")
        try:
            key = find_key(text, base.data) if "." in str(text) else None
            name = key.last if key else str(text)
            _check_name(name, [*names, *found], (key,) if key else ())
            found[name] = Derived(name, key, Expression(str(given)))
        except InputError as error:
            raise document.error(place, str(error)) from None
        if key:
            _own(document, place, (key,), owners, name)
        places[name] = place
    for name, each in found.items():
        try:
            each.expression.check_names({*names, *found, *FACTS})
        except InputError as error:
            raise document.error(places[name], str(error)) from None
    return tuple(_ordered(document, found, places))


def _ordered(document: Document, found: dict[str, Derived], places: dict[str, KeyPath]) -> Iterator[Derived]:
    order = {name: number for number, name in enumerate(found)}
    needs = {name: _needs(each, found) for name, each in found.items()}
    users: dict[str, list[str]] = {}
    for name, needed in needs.items():
        for other in needed:
            users.setdefault(other, []).append(name)
    # The first that is ready in the order of the file, so that independent entries keep theirs.
    ready = [order[name] for name, needed in needs.items() if not needed]
    names, left = list(found), set(found)
    while ready:
        name = names[heappop(ready)]
        left.remove(name)
        yield found[name]
        for other in users.get(name, ()):
            needs[other].remove(name)
            if not needs[other]:
                heappush(ready, order[other])
    if left:
        some = [name for name in names if name in left]
        more = ", …" if len(some) > 8 else ""
        raise document.error(places[some[0]], f"needs itself, through {', '.join(some[:8])}{more}")


def _needs(one: Derived, all_: Mapping[str, Derived]) -> set[str]:
    """Return the names of `let` that must be computed before this one."""
    needs = {name for name in one.expression.names if name in all_}
    facts = one.expression.names & FACTS.keys() - needs
    for name, each in all_.items():
        # An entry that sets a key comes before those whose facts read this key.
        if each.key and name != one.name and any(depends(fact, each.key.path) for fact in facts):
            needs.add(name)
    return needs
