"""The front ends: one module in this folder for each input format, each with one function.

The module's name is the format's, the first line of its docstring the help text, and the function is::

    def convert(inputs: Sequence[Path], *, ranks: int = 1) -> Converted

Keyword-only parameters become options of ``armillary trace convert --from NAME``: ``int``, ``str``, ``float``,
``bool`` or ``Path``, also with ``| None``; their help is the line of the docstring's ``Args:`` that names them. A
package adds front ends by entry points of the group ``armillary.front_ends`` that name such a function.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, get_type_hints

from armillary.base.errors import InputError, nearest, one_of
from armillary.convert.converted import Converted

GROUP = "armillary.front_ends"


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
        """The options it takes."""
        hints = get_type_hints(self.convert)
        text = inspect.getdoc(self.convert) or ""
        return tuple(
            Option(name, _kind(hints[name]), parameter.default, _help(text, name))
            for name, parameter in inspect.signature(self.convert).parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        )


def names() -> list[str]:
    """Return the names of all front ends."""
    own = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    return sorted({*own, *(point.name for point in entry_points(group=GROUP))})


def front_end(name: str) -> FrontEnd:
    """Return the front end called `name`.

    Raises:
        InputError: there is none.
    """
    known = names()
    if name not in known:
        raise InputError(f"no front end '{name}', expected {one_of(known)}{nearest(name, known)}")
    outside = [point for point in entry_points(group=GROUP) if point.name == name]
    if outside:
        function = outside[0].load()
        text = inspect.getdoc(inspect.getmodule(function)) or ""
    else:
        module = importlib.import_module(f"{__name__}.{name}")
        function, text = module.convert, module.__doc__ or ""
    return FrontEnd(name, function, text.strip().split("\n", maxsplit=1)[0])


def _kind(hint: Any) -> type:
    inner = [part for part in getattr(hint, "__args__", ()) if part is not type(None)]
    kind: type = inner[0] if inner else hint
    return kind


def _help(text: str, name: str) -> str:
    match = re.search(rf"^ +{name}: (.+(?:\n {{8,}}.+)*)", text, re.MULTILINE)
    return re.sub(r"\s+", " ", match[1]) if match else ""
