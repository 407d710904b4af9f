"""Micro-benchmarks: one collective or message pattern per trace, swept over sizes and groups."""

from __future__ import annotations

from armillary.workload.micro.cases import ELEMENTS, Case, sizes, sweep
from armillary.workload.micro.collectives import COLLECTIVES
from armillary.workload.micro.messages import PATTERNS
from armillary.workload.micro.write import write_cases

__all__ = ["COLLECTIVES", "ELEMENTS", "PATTERNS", "Case", "sizes", "sweep", "write_cases"]
