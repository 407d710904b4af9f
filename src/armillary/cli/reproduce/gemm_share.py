"""`armillary reproduce gemm-share`: how much of a training step are matrix products."""

from __future__ import annotations

from armillary.cli.reproduce.study_command import study_command
from armillary.evidence.reproduce.gemm_share import Assumptions, run

command = study_command("gemm-share", Assumptions, run, "After a motivation slide of the ASTRA-sim tutorial.")
