"""A study's step, simulated, with what costs and whole runs need to know of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from armillary.base.errors import InputError
from armillary.engine.common.timeline import Timeline
from armillary.explore.cost.use import Use, per_step, use_of
from armillary.platform.files.native import Study, load_study
from armillary.trace import Trace
from armillary.workload import study_trace
from armillary.workload.models import default_sequence, parameters


@dataclass(frozen=True)
class Step:
    """A simulated step.

    Attributes:
        study: Its file.
        trace: Its workload.
        timeline: Its run, which may be several equal steps.
        use: What one step used.
        tokens: Of a step, all replicas; None: not a generated training of sequences.
        parameters: Of the model; None: not a generated one.
    """

    study: Study
    trace: Trace
    timeline: Timeline
    use: Use
    tokens: int | None
    parameters: int | None


def simulate_step(path: str | Path) -> Step:
    """Read a study file and simulate it.

    Raises:
        InputError: the file is malformed, or has several jobs.
        StuckError: the simulation cannot finish.
    """
    # Imported here: costs alone need no engine.
    from armillary.engine import simulate
    from armillary.workload.plan.request import read_request

    study = load_study(path)
    if study.jobs:
        raise InputError(f"{path}: got jobs, expected one workload")
    trace = study_trace(study)
    timeline = simulate(trace, study.platform, profile=study.profile)
    use, tokens, count = use_of(timeline), None, None
    if study.generate is not None:
        model, plan = read_request(study)
        count = parameters(model).total
        sequence = plan.sequence or default_sequence(model)
        # A run of several iterations is divided into equal ones: their tail effects are shared.
        if plan.iterations > 1:
            use = per_step(use, plan.iterations)
        # Serving counts requests, not tokens of training.
        if plan.serve is None and sequence:
            tokens = plan.batch * sequence
    return Step(study, trace, timeline, use, tokens, count)
