"""Collective algorithms as schedules, and multi-dimensional plans."""

from __future__ import annotations

from armillary.collective.algorithms import ALGORITHMS, OPERATIONS, arrays, schedule_for
from armillary.collective.schedule import Charge, Role, Schedule, Transfer

RoleArrays = Role

__all__ = [
    "ALGORITHMS",
    "OPERATIONS",
    "Charge",
    "Role",
    "RoleArrays",
    "Schedule",
    "Transfer",
    "arrays",
    "schedule_for",
]
