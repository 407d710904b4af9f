"""`armillary reproduce wafer-scaling`."""

from __future__ import annotations

from armillary.cli.reproduce.study_command import study_command
from armillary.evidence.reproduce.wafer_scaling import Assumptions, run

command = study_command(
    "wafer-scaling",
    Assumptions,
    run,
    "After case study 1 of ASTRA-sim 2.0 (ISPASS 2023): an all-reduce on Ring, FullyConnected, Ring and Switch of "
    "2x8x8x4 NPUs, of which the first or the last dimension grows by 2, 4 and 8.",
)
