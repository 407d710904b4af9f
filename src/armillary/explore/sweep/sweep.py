"""A sweep, after reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.base.document import Document
from armillary.explore.sweep.constraint import Constraint, Objective
from armillary.explore.sweep.space import Space


@dataclass(frozen=True)
class Limits:
    """Limits of one point: seconds of wall-clock time, bytes of memory; None for no limit."""

    time: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class Sweep:
    """Many studies that differ in some keys.

    Attributes:
        path: The file; None where its content was given.
        document: Its content, for errors.
        base: The study before any axis is applied; paths in it are relative to its own path.
        space: What is varied.
        constraints: Conditions that points must meet.
        objectives: Measures to optimize, the most important first.
        costs: Prices and energies, a `cost.schema.Costs`; None if no cost is computed.
        tokens: Tokens of the whole run; None if no whole run is computed.
        limits: Limits of one point.
        search: Settings of the search, a `schema.Search`; None for the defaults.
    """

    path: Path | None
    document: Document = field(repr=False)
    base: Document = field(repr=False)
    space: Space = field(repr=False)
    constraints: tuple[Constraint, ...] = ()
    objectives: tuple[Objective, ...] = ()
    costs: Any = None
    tokens: float | None = None
    limits: Limits = Limits()
    search: Any = None

    @property
    def folder(self) -> Path:
        """Folder to which paths in the study are relative."""
        return self.base.path.parent if self.base.path else Path()

    @property
    def study(self) -> Mapping[str, Any]:
        """The study before any axis is applied."""
        return self.base.data
