"""`armillary reproduce rings-v100`: the validation of ASTRA-sim 2.0, as far as public tables of V100s allow."""

from __future__ import annotations

from armillary.cli.reproduce.study_command import study_command
from armillary.evidence.reproduce.rings_v100 import Assumptions, run

command = study_command(
    "rings-v100",
    Assumptions,
    run,
    "After the validation of ASTRA-sim 2.0 (ISPASS 2023) on 4 and 16 V100, whose points are not public; measured here "
    "are vTrain's tables.",
)
