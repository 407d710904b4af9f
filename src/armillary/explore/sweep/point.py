"""The points of a sweep, and the rows that they become."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

Value = str | int | float | bool | None
"""What is varied, as it stands in a study file; of a named choice, its name."""
Status = Literal["ok", "rejected", "failed", "timeout", "memory"]
"""`rejected`: impossible, or against a constraint; `failed`: an error; `timeout`, `memory`: over a limit."""


@dataclass(frozen=True)
class Point:
    """One study of a sweep.

    Attributes:
        number: Its place in the order of the space, from 0.
        values: By the short name of what is varied, in the order of the axes.
        document: The whole study file with these values in place (what `yaml.safe_load` would return).
        problem: Why there is no such study: something that is computed from the values has no value. Empty: there is.
    """

    number: int
    values: Mapping[str, Value]
    document: Mapping[str, Any]
    problem: str = ""

    @cached_property
    def key(self) -> str:
        """Hash of the document: points of equal documents are the same work."""
        text = json.dumps(self.document, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Row:
    """What one point came to.

    Attributes:
        number, values, key: Of the point.
        status: See `Status`.
        reason: Why it is not `ok`; in one line, as a person reads it.
        measures: By name (`armillary.explore.sweep.measures`), in base units; those known before a rejection, too.
        seconds: How long the evaluation took.
    """

    number: int
    values: Mapping[str, Value]
    key: str
    status: Status
    reason: str = ""
    measures: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
