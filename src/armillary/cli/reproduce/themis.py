"""`armillary reproduce themis`: how much of the bandwidth of all dimensions chunk schedulers use."""

from __future__ import annotations

from armillary.cli.reproduce.study_command import study_command
from armillary.evidence.reproduce.themis import Assumptions, run

command = study_command(
    "themis",
    Assumptions,
    run,
    "After Themis (ISCA 2022), on machines of 1,024 NPUs; and case study 2 of the ASTRA-sim 2.0 slides: equal "
    "bandwidth per NPU in 1 to 4 dimensions. One all-reduce is alone on each machine, in profile physical. The "
    "optimiser searches for order and size of each chunk; the bound is what no order of any chunks beats.",
)
