"""`armillary reproduce comet`."""

from __future__ import annotations

from armillary.cli.reproduce.study_command import study_command
from armillary.evidence.reproduce.comet import run
from armillary.evidence.reproduce.comet_assumptions import Assumptions

command = study_command(
    "comet",
    Assumptions,
    run,
    "After COMET (arXiv 2211.16648), of which only the abstract is public where we can read it: every number is an "
    "assumption. MPx_DPy with x y = 1,024, memory per node, then sweeps of memory expansion, network and FLOP/s.",
)
