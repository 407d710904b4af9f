"""From a model, a plan and a machine to the time of a step, with the constants of a software."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from armillary.base.errors import InputError
from armillary.base.garbage import uncollected
from armillary.explore.training.constants import Constants
from armillary.explore.training.traces import TRACES
from armillary.platform.files.native import load_platform
from armillary.platform.files.preset import merged
from armillary.platform.model import Platform
from armillary.trace import Trace
from armillary.workload.models import Model

if TYPE_CHECKING:
    from armillary.engine.common.timeline import Timeline

NEUTRAL = Constants()


@dataclass(frozen=True)
class Step:
    """A training step on a machine.

    Attributes:
        model: What is trained.
        plan: ``workload.generate`` of a study without its model.
        machine: Keys of a platform, without those of a software.
        npus: NPUs of the machine, which are the ranks.
        device: Name of the constants of its kernels.
    """

    model: Model
    plan: Mapping[str, Any]
    machine: Mapping[str, Any]
    npus: int
    device: str

    def rounds(self) -> tuple[int, int, int]:
        """Return samples of one microbatch of all replicas, microbatches of a replica, and pipeline stages."""
        parallel = self.plan.get("parallel", {})
        stages = parallel.get("pp", 1)
        # Data parallelism is what tp, cp and pp leave over.
        replicas = self.npus // (parallel.get("tp", 1) * parallel.get("cp", 1) * stages)
        unit = max(1, replicas * self.plan.get("microbatch", 1))
        return unit, self.plan["batch"] // unit, stages

    def of_batch(self, batch: int) -> Step:
        """Return the same step of another batch."""
        return replace(self, plan={**self.plan, "batch": batch})


@dataclass(frozen=True)
class Extent:
    """The steps that are simulated, and how the time of the whole follows: first + share x (second - first).

    Attributes:
        first: The step, or one of fewer microbatches.
        second: One of more of them; None: `first` is the whole.
        share: Rounds that are left after the first, in those of the difference.
    """

    first: Step
    second: Step | None = None
    share: float = 0.0


AFTER = 2
"""Microbatches for each stage after which rounds take the same time."""


def extent(step: Step, *, steady: bool = True, after: int = AFTER) -> Extent:
    """Return what to simulate: two steps of fewer microbatches where there are many.

    Once a pipeline is full, each further round of microbatches takes the same, so the difference of two runs is so many
    rounds of the steady state.

    Args:
        step: The step.
        steady: False: the whole, however long.
        after: Microbatches for each stage after which the state is taken to be steady.
    """
    unit, count, stages = step.rounds()
    few, more = after * stages, (after + 1) * stages
    # Short runs are simulated whole.
    if not steady or count <= more + stages:
        return Extent(step)
    return Extent(step.of_batch(unit * few), step.of_batch(unit * more), (count - few) / (more - few))


def plain_seconds(step: Step, constants: Constants = NEUTRAL, *, steady: bool = True) -> float:
    """Return the simulated time of a step in s, without checkpoints.

    Raises:
        InputError: the plan is impossible on the machine.
    """
    check_storage(step)
    runs = extent(step, steady=steady)
    first = _seconds(*texts(runs.first, constants))
    if runs.second is None:
        return first
    return first + (_seconds(*texts(runs.second, constants)) - first) * runs.share


def check_storage(step: Step) -> None:
    """Check that the machine has the storage that a plan uses.

    Raises:
        InputError: it has none.
    """
    for key in ("checkpoint_every", "sample_size"):
        if step.plan.get(key) and platform_of(step).storage is None:
            raise InputError(
                f"{key} {step.plan[key]}: the machine has no storage, expected platform.storage, e.g. "
                "{bandwidth: 2 TB/s}"
            )


@uncollected()
def simulated(
    step: Step, constants: Constants = NEUTRAL, *, checkpoints: bool = False, memory: bool = True
) -> Timeline:
    """Return the run of a step, whole; its checkpoints are left out unless asked for.

    Args:
        step: The step.
        constants: Of its software.
        checkpoints: Whether it has its checkpoints.
        memory: Whether the timeline says what the fullest rank needs, which takes a tenth of the time of small steps.

    Raises:
        InputError: the plan is impossible on the machine.
    """
    from armillary.engine import simulate

    model, plan, machine = texts(step, constants, checkpoints)
    return simulate(TRACES.of(model, plan, memory=memory), _platform(machine))


def platform_of(step: Step, constants: Constants = NEUTRAL) -> Platform:
    """Return the machine of a step with the constants of its software."""
    return _platform(texts(step, constants)[2])


def trace_of(step: Step, constants: Constants = NEUTRAL, *, checkpoints: bool = False) -> Trace:
    """Return the trace of a step; its checkpoints are left out unless asked for.

    Raises:
        InputError: the plan is impossible.
    """
    return TRACES.of(*texts(step, constants, checkpoints)[:2])


def texts(step: Step, constants: Constants, checkpoints: bool = False) -> tuple[str, str, str]:
    """Return model, plan and machine as text, which is exact, and by which results are kept."""
    plan = {"ranks": step.npus, **constants.plan(step.plan)}
    if not checkpoints:
        # What they add on average is in no single step.
        plan.pop("checkpoint_every", None)
        plan.pop("checkpoint_async", None)
    machine = merged(step.machine, constants.platform(step.device))
    return step.model.model_dump_json(), json.dumps(plan, sort_keys=True), json.dumps(machine, sort_keys=True)


@lru_cache(maxsize=256)
def _platform(machine: str) -> Platform:
    return load_platform(json.loads(machine))


@lru_cache(maxsize=65536)
def _seconds(model: str, plan: str, machine: str) -> float:
    from armillary.engine import simulate

    return simulate(TRACES.of(model, plan), _platform(machine)).total_ticks * 1e-9
