"""`armillary reproduce case1`."""

from __future__ import annotations

from armillary.cli.reproduce.study_command import study_command
from armillary.evidence.reproduce.case1 import Assumptions, run

command = study_command(
    "case1",
    Assumptions,
    run,
    "After case study 1 of ASTRA-sim 2.0 (ISPASS 2023): W-1D, W-2D, Conv-3D and Conv-4D; All-Reduce, DLRM, GPT-3 and "
    "Transformer-1T.",
)
