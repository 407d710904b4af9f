"""Checks that arguments from Python are of the kinds that their annotations say, before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from numbers import Integral, Real
from os import PathLike

from armillary.base.errors import InputError
from armillary.base.hints import show

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "int": ((Integral,), "a whole number"),
    "float": ((Real,), "a number"),
    "str": ((str,), "text"),
    "Path": ((PathLike,), "a path"),
}


def check_kinds(values: Mapping[str, object], annotations: Mapping[str, str]) -> None:
    """Refuse arguments that are not what plain annotations such as ``int | None`` say; others are not checked.

    A truth value is no number, and nan is none either.

    Args:
        values: Name -> argument.
        annotations: Name -> its annotation, as text.

    Raises:
        InputError: an argument is of another kind; it has the name that the command's option has.
    """
    for name, value in values.items():
        parts = annotations[name].split(" | ")
        if any(part != "None" and part not in _KINDS for part in parts):
            continue
        if value is None and "None" in parts:
            continue
        fits = any(isinstance(value, _KINDS[part][0]) for part in parts if part != "None")
        if isinstance(value, bool):
            fits = "bool" in parts
        if not fits or (isinstance(value, float) and isnan(value)):
            expected = " or ".join(_KINDS[part][1] for part in parts if part != "None")
            raise InputError(f"{name.replace('_', '-')}: got {show(value)}, expected {expected}")
