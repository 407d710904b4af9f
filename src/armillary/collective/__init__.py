"""Collective algorithms as schedules, and multi-dimensional plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.collective.algorithms import ALGORITHMS, OPERATIONS, arrays, schedule_for
from armillary.collective.plan import Phase, next_size, plan, queue_cycle
from armillary.collective.schedule import Charge, Role, Schedule, Transfer
from armillary.collective.show import chunk_flow_table, render

if TYPE_CHECKING:
    from armillary.collective.synthesis import SynthesizedSchedule, synthesize

RoleArrays = Role

__all__ = [
    "ALGORITHMS",
    "OPERATIONS",
    "Charge",
    "Phase",
    "Role",
    "RoleArrays",
    "Schedule",
    "SynthesizedSchedule",
    "Transfer",
    "arrays",
    "chunk_flow_table",
    "next_size",
    "plan",
    "queue_cycle",
    "render",
    "schedule_for",
    "synthesize",
]


def __getattr__(name: str) -> object:
    """Import what needs topologies on first use, so that importing the package stays cheap."""
    if name in ("SynthesizedSchedule", "synthesize"):
        from armillary.collective import synthesis

        return getattr(synthesis, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
