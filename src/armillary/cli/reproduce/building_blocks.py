"""`armillary reproduce building-blocks`."""

from __future__ import annotations

from armillary.cli.reproduce.study_command import study_command
from armillary.evidence.reproduce.building_blocks import Assumptions, run

command = study_command(
    "building-blocks",
    Assumptions,
    run,
    "After the building blocks of ASTRA-sim 2.0 (ISPASS 2023): ring on a Ring, direct on FullyConnected, "
    "halving-doubling on a Switch. Every algorithm runs on every block, with each message moved.",
)
