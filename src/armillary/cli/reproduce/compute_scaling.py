"""`armillary reproduce compute-scaling`: the step on a torus as compute gets faster."""

from __future__ import annotations

from armillary.cli.reproduce.study_command import study_command
from armillary.evidence.reproduce.compute_scaling import Assumptions, run

command = study_command("compute-scaling", Assumptions, run, "After the tutorial at Hot Interconnects.")
