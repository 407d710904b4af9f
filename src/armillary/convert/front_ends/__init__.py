"""The front ends: one module in this folder for each input format, each with one function.

The module's name is the format's, the first line of its docstring the help text, and the function is::

    def convert(inputs: Sequence[Path], *, ranks: int = 1) -> Converted

Keyword-only parameters become options of ``armillary trace convert --from NAME``: ``int``, ``str``, ``float``,
``bool`` or ``Path``, also with ``| None``; their help is the line of the docstring's ``Args:`` that names them. A
package adds front ends by entry points of the group ``armillary.front_ends`` that name such a function.
"""

from __future__ import annotations

import functools
import inspect
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from armillary.base.errors import InputError
from armillary.base.extension import ExtensionPoint
from armillary.base.hints import show
from armillary.convert.converted import Converted
from armillary.trace import Trace


@dataclass(frozen=True)
class Option:
    """A keyword-only parameter of a front end."""

    name: str
    kind: type
    default: Any
    """`inspect.Parameter.empty` where it must be given."""
    help: str


@dataclass(frozen=True)
class FrontEnd:
    """One input format."""

    name: str
    convert: Callable[..., Converted]
    summary: str

    @property
    def options(self) -> tuple[Option, ...]:
        """The options it takes.

        Raises:
            InputError: one of another package has an option whose type no command line can take.
        """
        with FRONT_ENDS.guard(self.name):
            hints = get_type_hints(self.convert)
        text = inspect.getdoc(self.convert) or ""
        return tuple(
            Option(name, _kind(self.name, name, hints.get(name)), parameter.default, _help(text, name))
            for name, parameter in inspect.signature(self.convert).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        )


FRONT_ENDS = ExtensionPoint(
    "armillary.front_ends", "front end",
    tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))),
)  # fmt: skip


def names() -> list[str]:
    """Return the names of all front ends."""
    return sorted(FRONT_ENDS)


def front_end(name: str) -> FrontEnd:
    """Return the front end called `name`.

    Raises:
        InputError: there is none, it cannot be loaded, or it is no function of inputs.
    """
    function = FRONT_ENDS.load(name, {own: f"{__name__}.{own}:convert" for own in FRONT_ENDS.built_in})
    text = inspect.getdoc(inspect.getmodule(function)) or ""
    if name not in FRONT_ENDS.built_in:
        function = _checked(name, function)
    return FrontEnd(name, function, text.strip().split("\n", maxsplit=1)[0])


def _checked(name: str, function: Any) -> Callable[..., Converted]:
    """Return the function of another package, which then fails in one line only."""
    if not inspect.isfunction(function):
        raise InputError(f"front end '{name}' is {show(function)}, expected a function convert(inputs, *, …)")

    @functools.wraps(function)
    def convert(*inputs: Any, **options: Any) -> Converted:
        with FRONT_ENDS.guard(name):
            found = function(*inputs, **options)
        if not isinstance(found, Converted) or not isinstance(found.trace, Trace):
            raise InputError(f"front end '{name}' returned {show(found)}, expected a Converted with a Trace")
        return found

    return convert


def _kind(front_end: str, option: str, hint: Any) -> type:
    union = get_origin(hint) in (Union, UnionType)
    kinds = [part for part in get_args(hint) if part is not type(None)] if union else [hint]
    kind: Any = kinds[0] if len(kinds) == 1 else hint
    if kind not in (int, str, float, bool, Path):
        raise InputError(
            f"front end '{front_end}': option {option} has type {show(hint)}, expected int, str, float, bool or Path"
        )
    found: type = kind
    return found


def _help(text: str, name: str) -> str:
    # The entry under Args:, with its continuation lines, which are indented by 8 blanks or more.
    match = re.search(rf"^ +{name}: (.+(?:\n {{8,}}.+)*)", text, re.MULTILINE)
    return re.sub(r"\s+", " ", match[1]) if match else ""
