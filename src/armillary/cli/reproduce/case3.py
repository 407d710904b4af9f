"""`armillary reproduce case3`: ZeRO-Infinity against a hierarchical memory pool."""

from __future__ import annotations

from armillary.cli.reproduce.study_command import study_command
from armillary.evidence.reproduce.case3 import Assumptions, run

command = study_command(
    "case3",
    Assumptions,
    run,
    "A training step of each mixture of experts that the workload generator knows, with weights in remote memory: "
    "loaded layer by layer, gathered over the network or in switches of the memory, and gradients the opposite way.",
)
