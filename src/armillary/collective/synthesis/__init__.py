"""Collectives made for one network, where the built-in algorithms are made for none."""

from __future__ import annotations

from armillary.collective.synthesis.bound import lower_bound
from armillary.collective.synthesis.check import check_schedule
from armillary.collective.synthesis.synthesize import OPERATIONS, SynthesizedSchedule, synthesize

__all__ = ["OPERATIONS", "SynthesizedSchedule", "check_schedule", "lower_bound", "synthesize"]
