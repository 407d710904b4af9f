"""What ASTRA-sim makes of collectives: a pipeline of chunk steps, plans over dimensions, orders of chunks."""

from __future__ import annotations

from armillary.engine.astra_sim.collective.algorithms import ALGORITHMS, OPERATIONS, schedule_for
from armillary.engine.astra_sim.collective.plan import Phase, next_size, plan, queue_cycle
from armillary.engine.astra_sim.collective.schedule import Charge, Role, Schedule, Transfer

__all__ = [
    "ALGORITHMS",
    "OPERATIONS",
    "Charge",
    "Phase",
    "Role",
    "Schedule",
    "Transfer",
    "next_size",
    "plan",
    "queue_cycle",
    "schedule_for",
]
