"""From a case to a predicted step time."""

from __future__ import annotations

from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.machines import MACHINES
from armillary.explore.training import mean_step, step
from armillary.explore.training.constants import Constants


def step_of(case: Case) -> step.Step:
    """Return the step that a case has measured, which has a model."""
    if case.step is not None:
        return case.step
    assert case.model is not None
    machine = MACHINES[case.machine]
    return step.Step(case.model, case.plan, machine.platform(case.npus), case.npus, machine.device)


def seconds(case: Case, constants: Constants = step.NEUTRAL, *, steady: bool = True) -> float:
    """Return the simulated time of a step, see `armillary.explore.training.mean_step.seconds`.

    Raises:
        InputError: the plan is impossible on the machine.
    """
    return mean_step.seconds(step_of(case), constants, steady=steady)
