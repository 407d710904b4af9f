"""`armillary reproduce case2`."""

from __future__ import annotations

from armillary.cli.reproduce.study_command import study_command
from armillary.evidence.reproduce.case2 import Assumptions, run

command = study_command(
    "case2",
    Assumptions,
    run,
    "After case study 2 of ASTRA-sim 2.0 (ISPASS 2023): the machines and workloads of case1, with chunks that all "
    "take the same way, that Themis sends, or whose ways an optimiser has searched.",
)
