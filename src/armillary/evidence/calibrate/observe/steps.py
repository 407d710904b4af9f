"""Measured steps: which model was trained by which plan, and how long each step took; YAML or CSV.

::

    model: llama-3-8b               # a name, a file beside this one, or what such a file holds
    software: torchtitan            # optional
    ranks: 8                        # optional: devices of the job; absent: all of the machine
    plan: {sharding: fsdp}          # optional: what all plans share
    steps:
      - {plan: {batch: 16, sequence: 8192}, seconds: [1.62, 1.60, 1.63]}
      - {plan: {batch: 32, sequence: 8192}, seconds: 3.15}

A table has the columns ``model``, ``seconds`` and perhaps ``ranks`` and ``software``; each other one is a key of the
plan, one inside a section with a dot: ``parallel.tp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.base.document import Document, read_document
from armillary.base.errors import InputError
from armillary.evidence.validate.training.rows import count, number, read_rows
from armillary.explore.training.plan_keys import nested
from armillary.platform.files.preset import merged
from armillary.workload.models import Model, load_model, read_model

MOST_PLANS = 200
"""Plans of a file: each is simulated, many times."""
SHORTEST, LONGEST = 1e-6, 1e6
"""s of a step."""
MOST_TIMES = 100_000
"""Times of all plans of a file."""
COLUMNS = ("model", "seconds")
FILES = (".yaml", ".yml", ".json")
"""Suffixes of a model's file."""
_KEYS = ("model", "software", "ranks", "plan", "steps")
_OWN = ("model", "ranks", "plan", "seconds")


@dataclass(frozen=True)
class MeasuredStep:
    """A plan, and how long its steps took.

    Attributes:
        where: File and line, for errors.
        model: What is trained.
        plan: Keys of the plan, in their sections.
        ranks: Devices of the job; None: all of the machine.
        seconds: Of each measured step.
        software: What trains; "": the file does not say.
    """

    where: str
    model: Model
    plan: Mapping[str, Any]
    ranks: int | None
    seconds: tuple[float, ...]
    software: str = ""


def read_steps(path: Path) -> list[MeasuredStep]:
    """Return the measured steps of a file.

    Raises:
        InputError: it cannot be read, or is malformed.
    """
    return _of_document(path) if path.suffix in (".yaml", ".yml") else _of_table(path)


def _of_document(path: Path) -> list[MeasuredStep]:
    document = read_document(path, "file of measured steps", "yaml")
    document.check_keys(_KEYS)
    data = document.data
    steps = document.require("steps", "a list of measured plans")
    if not isinstance(steps, list) or not 1 <= len(steps) <= MOST_PLANS:
        got = len(steps) if isinstance(steps, list) else steps
        document.reject(("steps",), got, f"a list of 1 to {MOST_PLANS:,} measured plans")
    found, times = [], 0
    for at, each in enumerate(steps):
        here = ("steps", at)
        if not isinstance(each, dict):
            document.reject(here, each, "a mapping with plan and seconds")
        for key in each:
            if key not in _OWN:
                raise document.error((*here, key), f"unknown key; known keys: {', '.join(_OWN)}")
        seconds = _seconds(document, (*here, "seconds"), each.get("seconds"))
        times += len(seconds)
        if times > MOST_TIMES:
            raise document.error(here, f"more than {MOST_TIMES:,} times, expected fewer")
        place = (*here, "model") if "model" in each else ("model",)
        ranks = each.get("ranks", data.get("ranks"))
        found.append(
            MeasuredStep(
                document.where(here),
                _model(document, place, each.get("model", data.get("model"))),
                _plan(document, (*here, "plan"), data.get("plan") or {}, each.get("plan") or {}),
                None if ranks is None else document.whole((*here, "ranks"), ranks, 1, 2**24),
                seconds,
                str(data.get("software") or ""),
            )
        )
    return found


def _seconds(document: Document, path: tuple[str | int, ...], value: Any) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    expected = f"seconds from {SHORTEST:g} to {LONGEST:,.0f}, one time or a list"
    if not values:
        document.reject(path, value, expected)
    found = tuple(document.number(path, each, expected, low=SHORTEST) for each in values)
    if max(found) > LONGEST:
        document.reject(path, max(found), expected)
    return found


def _model(document: Document, path: tuple[str | int, ...], value: Any) -> Model:
    if not isinstance(value, dict | str):
        document.reject(path, value, "a model: its name, its file, or what such a file holds")
    try:
        return read_model(value) if isinstance(value, dict) else _named(value, document.path or Path())
    except InputError as error:
        raise document.error(path, str(error)) from None


def _named(name: str, beside: Path) -> Model:
    """Return a model by its name, or from a file that is beside another."""
    return load_model(str(beside.parent / name) if Path(name).suffix in FILES else name)


def _plan(document: Document, path: tuple[str | int, ...], shared: Any, own: Any) -> Mapping[str, Any]:
    for place, part in ((("plan",), shared), (path, own)):
        if not isinstance(part, dict):
            document.reject(place, part, "a mapping of keys of a plan to values")
    try:
        found: Mapping[str, Any] = merged(nested(shared), nested(own))
        return found
    except InputError as error:
        raise document.error(path, str(error)) from None


def _of_table(path: Path) -> list[MeasuredStep]:
    found: dict[str, tuple[MeasuredStep, list[float]]] = {}
    models: dict[str, Model] = {}
    for line, row in read_rows(path, COLUMNS):
        where = f"{path}:{line}"
        name, keys = row["model"], {key: value for key, value in row.items() if value}
        if name not in models:
            try:
                models[name] = _named(name, path)
            except InputError as error:
                raise InputError(f"{where}: model: {error}") from None
        ranks = count(path, line, row, "ranks") if keys.get("ranks") else None
        seconds = number(path, line, row, "seconds")
        if not SHORTEST <= seconds <= LONGEST:
            raise InputError(
                f"{where}: seconds: got '{row['seconds']}', expected {SHORTEST:g} to {LONGEST:,.0f}"
            )
        # Rows that differ in the time alone repeat a measurement.
        same = repr(sorted((key, value) for key, value in keys.items() if key != "seconds"))
        if same in found:
            found[same][1].append(seconds)
            continue
        if len(found) == MOST_PLANS:
            raise InputError(f"{where}: more than {MOST_PLANS:,} plans, expected fewer")
        given: dict[str, Any] = {}
        for key, text in keys.items():
            if key not in ("model", "seconds", "ranks", "software"):
                _put(given, key.split("."), _value(text), where)
        try:
            plan = nested(given)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        step = MeasuredStep(where, models[name], plan, ranks, (), keys.get("software", ""))
        found[same] = step, [seconds]
    if not found:
        raise InputError(f"{path}: no rows below the header, expected a measured step in each")
    return [
        MeasuredStep(step.where, step.model, step.plan, step.ranks, tuple(seconds), step.software)
        for step, seconds in found.values()
    ]


def _put(given: dict[str, Any], path: list[str], value: Any, where: str) -> None:
    for key in path[:-1]:
        inner = given.setdefault(key, {})
        if not isinstance(inner, dict):
            raise InputError(
                f"{where}: column {'.'.join(path)}: '{key}' has a value of its own, expected a section"
            )
        given = inner
    given[path[-1]] = value


def _value(text: str) -> Any:
    """Return a cell as YAML would read it, of numbers and truth values."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
