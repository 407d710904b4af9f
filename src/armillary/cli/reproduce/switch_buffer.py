"""`armillary reproduce switch-buffer`: all-reduce over TCP, swept over the buffer of the global switch."""

from __future__ import annotations

from armillary.cli.reproduce.study_command import study_command
from armillary.evidence.reproduce.switch_buffer import Assumptions, run

command = study_command(
    "switch-buffer",
    Assumptions,
    run,
    "After the study of Hot Interconnects 2020 (ASTRA-sim with ns-3 and TCP/IP). Every NPU has a link to the switch "
    "of its group and one to the global switch. The flat all-reduce is among all NPUs; the hierarchical one "
    "scatters in the group, reduces across groups and gathers in the group. Packets are dropped at the global "
    "switch only.",
)
