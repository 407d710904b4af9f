"""The points of a sweep, and the rows that result from them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

Value = str | int | float | bool | None
"""A value of an axis as written in a study file; for named choices, the name."""
MOST_NUMBER = 1e300
"""Values and measures are smaller: sums and products of some stay finite."""
Status = Literal["ok", "rejected", "failed", "timeout", "memory", "refused"]
"""`rejected`: impossible, or against a constraint; `failed`: an error; `timeout`, `memory`: over a limit; `refused`: it
wants what nobody has allowed, which ends the run and is never stored."""


@dataclass(frozen=True)
class Point:
    """One study of a sweep.

    Attributes:
        number: Its place in the order of the space, from 0.
        values: By the short name of the axis, in the order of the axes.
        document: The whole study file with these values in place (what `yaml.safe_load` would return).
        problem: Why there is no such study: a derived value cannot be computed. Empty if there is one.
    """

    number: int
    values: Mapping[str, Value]
    document: Mapping[str, Any]
    problem: str = ""

    @cached_property
    def key(self) -> str:
        """Hash of the document: points of equal documents are the same work."""
        # 128 of the 256 bits rule out collisions for any number of points that can be run.
        try:
            text = json.dumps(self.document, sort_keys=True, separators=(",", ":"))
        # YAML has keys that are no texts, and dates: no study has them, and the point will say so.
        except TypeError:
            text = json.dumps(_spelled_out(self.document), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _spelled_out(value: Any) -> Any:
    """Return a value of YAML with keys that can be sorted, and nothing that JSON has not."""
    if isinstance(value, Mapping):
        return {
            key if isinstance(key, str) else f"{type(key).__name__} {key!r}": _spelled_out(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_spelled_out(each) for each in value]
    return value if isinstance(value, str | int | float | None) else repr(value)


@dataclass(frozen=True)
class Row:
    """The result of one point.

    Attributes:
        number, values, key: Of the point.
        status: See `Status`.
        reason: Why it is not `ok`, in one line for people.
        measures: By name (`armillary.explore.sweep.measures`), in base units; also those known before a rejection.
        seconds: How long the evaluation took.
    """

    number: int
    values: Mapping[str, Value]
    key: str
    status: Status
    reason: str = ""
    measures: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
