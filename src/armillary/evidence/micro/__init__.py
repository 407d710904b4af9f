"""Micro-benchmarks on a machine: times and bandwidths of a sweep."""

from __future__ import annotations

from armillary.evidence.micro.measure import Result, measure, measure_beside
from armillary.evidence.micro.plot import bandwidth_picture
from armillary.evidence.micro.table import tables, warnings, write_csv, write_json

__all__ = [
    "Result", "bandwidth_picture", "measure", "measure_beside", "tables", "warnings", "write_csv", "write_json",
]  # fmt: skip
