"""Keys and names that a sweep computes from what it varies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.explore.sweep.expression import Expression
from armillary.explore.sweep.facts import facts_of
from armillary.explore.sweep.keys import Key, put
from armillary.explore.sweep.point import Value
from armillary.explore.sweep.quantity import number_of, written


@dataclass(frozen=True)
class Derived:
    """One entry of ``let``.

    Attributes:
        name: In expressions.
        key: Of the study; None for a name only.
        expression: What it comes to.
    """

    name: str
    key: Key | None
    expression: Expression

    def put(
        self, values: dict[str, Value], document: Mapping[str, Any], folder: Path
    ) -> tuple[dict[str, Value], Mapping[str, Any]]:
        """Return the values with this one, and the study with it.

        Raises:
            InputError: it has no value here.
        """
        needed = self.expression.names
        names = {name: number_of(values[name]) for name in needed if name in values}
        if len(names) < len(needed):
            names |= facts_of(document, needed - names.keys(), folder)
        value = self.expression.value(names)
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            value = int(value)
        if not isinstance(value, int | float | str):
            raise InputError(f"'{self.expression.text}' = {value!r}, expected a number")
        if self.key is not None:
            placed = written(value, self.key.kind) if self.key.kind and not isinstance(value, str) else value
            return values | {self.name: placed}, put(document, self.key.path, placed)
        return values | {self.name: value}, document
