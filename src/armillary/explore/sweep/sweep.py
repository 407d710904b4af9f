"""A sweep as it was read."""

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
    """What one point may take: seconds of wall-clock time, bytes of memory; None: as much as it needs."""

    time: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class Sweep:
    """Many studies that differ in some keys.

    Attributes:
        path: The file; None where its content was given.
        document: Its content, for errors.
        base: The study without what is varied; its path is what paths in it are relative to.
        space: What is varied.
        constraints: What points must obey.
        objectives: What is best, the most important first.
        costs: Prices and energies (`armillary.explore.cost`), as its schema reads them; None: not asked for.
        tokens: Of the whole run; None: not asked for.
        limits: Of one point.
        search: How the best is looked for (`armillary.explore.search`); None: as it likes.
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
        """Where paths in the study start."""
        return self.base.path.parent if self.base.path else Path()

    @property
    def study(self) -> Mapping[str, Any]:
        """The study without what is varied."""
        return self.base.data
