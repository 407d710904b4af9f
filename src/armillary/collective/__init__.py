"""Collective algorithms as schedules, and multi-dimensional plans."""

from __future__ import annotations

from armillary.collective.algorithms import ALGORITHMS, OPERATIONS, arrays, schedule_for
from armillary.collective.plan import Phase, next_size, plan, queue_cycle
from armillary.collective.schedule import Charge, Role, Schedule, Transfer
from armillary.collective.show import chunk_flow_table, render

RoleArrays = Role

__all__ = [
    "ALGORITHMS",
    "OPERATIONS",
    "Charge",
    "Phase",
    "Role",
    "RoleArrays",
    "Schedule",
    "Transfer",
    "arrays",
    "chunk_flow_table",
    "next_size",
    "plan",
    "queue_cycle",
    "render",
    "schedule_for",
]
