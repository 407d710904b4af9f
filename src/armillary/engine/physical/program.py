"""A lowered program of profile `physical`, with what is needed to run it and to read its result."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.engine.items import FROM_MEMORY
from armillary.engine.jobs import Job
from armillary.engine.lowered import NO_NETWORK, Simulated
from armillary.engine.physical import fluid_layout_kernel as lk
from armillary.engine.physical.jobs import PhysicalPhase
from armillary.engine.physical.least import least_ticks
from armillary.engine.timeline import OPERATIONS

Ints = NDArray[np.int64]


@dataclass(eq=False)
class Plan:
    """A job lowered for one quotient communicator."""

    number: int
    job: Job
    phases: list[PhysicalPhase]
    chunks: int
    big: int
    """Chunks that have one byte more than the others."""
    chunk: int
    lines: int = 0

    def rows(self) -> list[tuple[int, int, int, int]]:
        """Return (dimension, operation, bytes sent per NPU, bytes through its port) of the phases of a chunk."""
        return [
            (
                NO_NETWORK if self.job.operation in FROM_MEMORY.values() else phase.dim,
                OPERATIONS.index(phase.operation),
                int(phase.sent * self.chunk),
                int(phase.sent * self.chunk),
            )
            for phase in self.phases
        ]


@dataclass(kw_only=True)
class PhysicalProgram(Simulated):
    """A lowered program of profile `physical`."""

    plans: list[Plan]
    slot_ready: Ints
    """Offset of the ready heap of every slot."""

    @property
    def layout(self) -> ModuleType:
        """The module that names the tables and their columns."""
        return lk

    def extra_columns(self) -> dict[str, Any]:
        """Return the columns of a timeline that only this profile knows."""
        return {"node_least": least_ticks(self.tables, self.views)}
