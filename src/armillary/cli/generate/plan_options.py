"""Options of a plan, generated from its schema, so that names, choices, defaults and help texts are defined once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from armillary.base.errors import InputError
from armillary.cli.command import option
from armillary.cli.values import names, whole_numbers
from armillary.workload.plan.options import REST, Kind, heading, leaves, option_name

if TYPE_CHECKING:
    from armillary.base.document import Document
    from armillary.base.hints import KeyPath
    from armillary.platform.model import Platform
    from armillary.workload.plan.schema import Plan

F = TypeVar("F", bound=Callable[..., Any])
_ALSO = {"virtual-pipeline": ("--virtual",)}
"""Shorter names of options: the key of a plan file."""
_METAVARS = {
    "bytes": "SIZE",
    "time": "TIME",
    "bandwidth": "BANDWIDTH",
    "flops": "FLOPS",
    "percent": "PERCENT",
}
"""Metavars of values with a unit."""


def plan_options(kind: Kind) -> Callable[[F], F]:
    """Add an option for every key of such a plan, and ``--plan``; the command receives them as ``options``."""
    return lambda function: _with_options(function, kind)


# An option per value of the schema: plans and their options cannot drift apart.
def _with_options(function: F, kind: Kind) -> F:
    options = {option_name(path): (path, schema) for path, schema in leaves(kind)}

    def with_options(**values: Any) -> Any:
        given = {name: values.pop(name.replace("-", "_")) for name in options}
        # Values that were not given are left to the file, or to the schema's default.
        paths = {options[name][0]: (name, value) for name, value in given.items() if value is not None}
        return function(options=PlanOptions(paths, values.pop("plan"), kind), **values)

    with_options.__doc__ = function.__doc__
    # click's parameters belong to the wrapper.
    with_options.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    decorated: Any = with_options
    # Reversed: decorators add from the inside out.
    for name, (path, schema) in reversed(options.items()):
        decorated = _option(name, schema, heading(path))(decorated)
    file = click.Path(path_type=Path)
    text = "YAML file of a plan: the keys of `workload.generate` in a study, without the model; options override it."
    return option("--plan", type=file, metavar="FILE", heading=REST, help=text)(decorated)  # type: ignore[no-any-return]


class PlanOptions:
    """The values of the options, and of the plan file."""

    def __init__(self, given: dict[KeyPath, tuple[str, Any]], file: Path | None, kind: Kind) -> None:
        self._given, self._file, self._kind = given, file, kind

    def plan(self, platform: Platform | None = None) -> Plan:
        """Return the plan.

        Args:
            platform: The machine, whose NPUs are the ranks unless an option says how many.

        Raises:
            InputError: a value is wrong or missing; names the option, or the file and the line.
        """
        from pydantic import ValidationError

        from armillary.platform.fields import first_error, first_problem
        from armillary.workload.plan.schema import Plan

        document, data = self._read()
        if platform:
            # setdefault: the file or an option may say another number, which is refused below.
            data.setdefault("ranks", platform.npus)
        try:
            plan = Plan.model_validate(data)
        except ValidationError as error:
            # An error of an option is told by the option's name, one of the file by its line.
            path, problem = first_problem(error)
            if path in self._given:
                name, _ = self._given[path]
                raise InputError(f"--{name}: {problem}") from None
            # A missing key that an option could give.
            if not problem and path in (known for known, _ in leaves(self._kind)):
                raise click.UsageError(f"Missing option '--{option_name(path)}'") from None
            if not self._file:
                raise InputError(f"{'.'.join(map(str, path))}: {problem}") from None
            raise first_error(document, error) from None
        if not plan.serve and self._kind == "inference":
            raise click.UsageError("Missing option '--prompt'")
        if plan.serve and self._kind == "training":
            raise document.error(("serve",), "this is a plan of inference, expected one of training")
        if platform and plan.ranks != platform.npus:
            raise InputError(f"ranks {plan.ranks}: expected {platform.npus}, the NPUs of the machine")
        return plan

    @contextmanager
    def keys(self) -> Iterator[dict[str, Any]]:
        """Yield the keys of options and file, which may be incomplete; errors of a plan built from them name a source.

        Raises:
            InputError: the file cannot be read, or a key is wrong; names the option, or the file and the line.
        """
        from armillary.explore.training.plan_keys import ALONE, PlanError
        from armillary.workload.plan.schema import Plan

        document, data = self._read()
        # Python takes them as named arguments.
        document.check_keys([*Plan.model_fields, *ALONE])
        try:
            yield data
        except PlanError as error:
            if error.place in self._given:
                raise InputError(f"--{self._given[error.place][0]}: {error.problem}") from None
            if not self._file and error.missing in (known for known, _ in leaves(self._kind)):
                raise click.UsageError(f"Missing option '--{option_name(error.missing)}'") from None
            if not self._file:
                raise
            raise document.error(_written(document, error.place), error.problem) from None

    def _read(self) -> tuple[Document, dict[str, Any]]:
        from armillary.base.document import Document, read_document

        document = read_document(self._file, "plan file", "yaml") if self._file else Document("options", {})
        # deepcopy: documents are shared, and options are written into this one.
        data = deepcopy(document.data)
        for path, (_, value) in self._given.items():
            part = data
            for key in path[:-1]:
                # Sections that the file does not have are made.
                part = part.setdefault(key, {})
                if not isinstance(part, dict):
                    document.reject(path[:-1], part, "a mapping of keys to values")
            part[path[-1]] = value
        return document, data


def _written(document: Document, place: KeyPath) -> KeyPath:
    """Return the place of a plan key in a file: at the top level, or in its section."""
    from armillary.explore.training.plan_keys import ALONE

    return next(((key,) for key, known in ALONE.items() if known == place and key in document.data), place)


def _option(name: str, schema: dict[str, Any], heading: str) -> Callable[[F], F]:
    """Return the option of a value."""
    # The first alternative of an optional value is not null.
    value = schema["anyOf"][0] if "anyOf" in schema else schema
    text, default = schema.get("description", ""), schema.get("default")
    # Defaults of flags are written as yes or no below.
    if default not in (None, []) and value["type"] != "boolean":
        text += f"  [default: {_shown(default, value)}]"
    extra: dict[str, Any] = {"type": str, "metavar": "TEXT"}
    if value["type"] == "boolean":
        text += f"  [default: {'yes' if default else 'no'}]"
        # default=None: neither was given, which is not the same as no.
        return option(f"--{name}/--no-{name}", default=None, heading=heading, help=text)
    if "enum" in value:
        extra = {"type": click.Choice(value["enum"])}
    elif value["type"] == "integer":
        extra = {"type": int, "metavar": "N"}
    elif value["type"] == "number":
        extra = {"type": float, "metavar": "X"}
    elif value["type"] == "array":
        # Lists are written with commas, as click has no such type.
        named = value["items"].get("enum")
        extra = {"metavar": "NAME,…" if named else "N,…", "callback": names if named else whole_numbers}
    elif kind := _kind(value):
        extra = {"metavar": _METAVARS[kind]}
    return option(f"--{name}", *_ALSO.get(name, ()), default=None, heading=heading, help=text, **extra)


def _kind(value: dict[str, Any]) -> str | None:
    """Return the kind of a value with a unit, by the pattern of its texts."""
    from armillary.base.units import unit_pattern

    pattern = value.get("pattern")
    # The pattern of a unit is the only trace of its kind in a JSON schema.
    return next((kind for kind in _METAVARS if pattern == unit_pattern(kind)), None)


def _shown(default: Any, value: dict[str, Any]) -> str:
    from armillary.base.units import format_bytes, format_time

    kind = _kind(value)
    if kind in ("bytes", "time") and isinstance(default, int):
        return format_bytes(default) if kind == "bytes" else format_time(default)
    return ",".join(default) if isinstance(default, list) else str(default)
