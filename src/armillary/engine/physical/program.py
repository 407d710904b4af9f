"""A lowered program of profile `physical`, with what is needed to run it and to read its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.communicators import Communicator
from armillary.engine.common.demands import Demands
from armillary.engine.common.items import FROM_MEMORY, View, channel_at
from armillary.engine.common.jobs import Job
from armillary.engine.common.lowered import NO_NETWORK, Simulated
from armillary.engine.common.quotient import QuotientComm
from armillary.engine.common.timeline import OPERATIONS
from armillary.engine.physical import layout as lk
from armillary.engine.physical.courses import Course
from armillary.engine.physical.fitted import FITTED
from armillary.engine.physical.jobs import PhysicalPhase
from armillary.engine.physical.least import least_ticks, plan_ticks
from armillary.engine.physical.trains import fill_spans

Ints = NDArray[np.int64]


@dataclass(eq=False)
class Plan:
    """A job lowered for one quotient communicator."""

    number: int
    comm: QuotientComm
    job: Job
    course: Course
    lines: int = 0
    """Lines of all phases of one chunk."""
    train: bool = False
    """Whether the chunks are a train, see `train_kernel`."""
    placed: list[tuple[PhysicalPhase, int]] = field(default_factory=list)
    """The phases of each way and size of a chunk, with that size."""

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.course.chunks)

    @property
    def phases(self) -> tuple[PhysicalPhase, ...]:
        """The phases of one way."""
        return self.course.ways[0]

    def _dim(self, phase: PhysicalPhase) -> int:
        if self.job.operation in FROM_MEMORY.values():
            return NO_NETWORK
        return phase.ports[0][0] if phase.algorithm == FITTED else phase.dim

    def rows(self) -> list[tuple[int, int, int, int]]:
        """Return (dimension, operation, bytes sent per NPU, bytes through its port) of `placed`."""
        return [
            (
                self._dim(phase),
                OPERATIONS.index(phase.operation),
                int(phase.sent * size),
                int(phase.busiest * size),
            )
            for phase, size in self.placed
        ]


def _sends(view: View, rank: int, needs: Demands) -> Ints:
    """Return the least ticks of the items of a class of ranks that send, 0 for others."""
    items, kinds, examples = view.messages()
    found = np.zeros(len(view.job), np.int64)
    if items.size:
        each = [
            needs.message(*channel_at(view, item, rank)[1:]) if view.sends(item) else 0
            for item in examples.tolist()
        ]
        found[items] = np.array(each, np.int64)[kinds]
    return found


@dataclass(kw_only=True)
class PhysicalProgram(Simulated):
    """A lowered program of profile `physical`."""

    plans: list[Plan]
    slot_ready: Ints
    """Offset of the ready heap of every slot."""

    @property
    def rows_follow_from_plans(self) -> bool:
        """See `Simulated`; not where a chunk chooses its way while it runs."""
        return not self.tables["PLANS"].reshape(-1, lk.PL_COLUMNS)[:, lk.PL_CHOICES].any()

    def rows_of_phases(self, run: Any, item: Ints, chunk: Ints, place: Ints, step: Ints) -> Ints:
        """See `Simulated`; a way that was chosen while running stands in the state."""
        plans, plan = self.tables["PLANS"].reshape(-1, lk.PL_COLUMNS), self._plan
        first: Ints = self.tables["CHUNKS"][plans[plan, lk.PL_CHUNKS][item] + chunk]
        if plans[:, lk.PL_CHOICES].any():
            comm = self.tables["COMMS"].reshape(-1, lk.CO_COLUMNS)[self.items[item, lk.I_COMM]]
            row = comm[:, lk.CO_CHOSEN] + run.table("ITEM_INSTANCE")[item] * comm[:, lk.CO_CHUNKS] + chunk
            chosen = plans[plan, lk.PL_CHOICES][item] > 0
            way = run.table("CHOSEN")[np.where(chosen, row, 0) * lk.CH_COLUMNS + lk.CH_WAY]
            first = first + np.where(chosen, way * plans[plan, lk.PL_PHASES][item], 0)
        return first + step

    def ticks_of_phases(self, run: Any, item: Ints, chunk: Ints, place: Ints) -> tuple[Ints, Ints]:
        """See `Simulated`; those of a whole train follow from its start and its rate."""
        spans = super().ticks_of_phases(run, item, chunk, place)
        train = np.stack([run.table("TRAIN_START"), run.table("TRAIN_RATE")])
        fill_spans(self.tables, train, self._plan, item, chunk, spans)
        return spans

    @cached_property
    def _plan(self) -> Ints:
        """Plan of every item, 0 for those that are no collectives."""
        return np.where(self.is_collective, self.items[:, lk.I_PLAN], 0)

    @property
    def layout(self) -> ModuleType:
        """The module that names the tables and their columns."""
        return lk

    def least(self, needs: Demands, nodes: int) -> Ints:
        """See `Simulated.least`."""
        least = np.array([needs.least(plan.job, plan.comm.real) for plan in self.plans], np.int64)
        of_memory = [plan.number for plan in self.plans if plan.job.operation in FROM_MEMORY.values()]
        if of_memory:
            least[of_memory] = plan_ticks(self.tables)[of_memory]
        ranks = self.representatives.tolist()
        sends = [_sends(view, rank, needs) for view, rank in zip(self.views, ranks, strict=True)]
        return least_ticks(self.tables, self.views, least, sends)

    def calls(self) -> list[tuple[int, Job, Communicator]]:
        """See `Simulated.calls`."""
        return [(plan.comm.number, plan.job, plan.comm.real) for plan in self.plans]
