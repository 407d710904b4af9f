"""From a case to a predicted step time."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import Any

from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.constants import Constants
from armillary.evidence.validate.training.machines import MACHINES
from armillary.platform.files.native import load_platform
from armillary.platform.model import Platform
from armillary.trace import Trace
from armillary.workload.generate import generate
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

NEUTRAL = Constants()


# Keyed by text: cases are not hashable, and JSON is exact.
@lru_cache(maxsize=4096)
def _trace(model: str, plan: str) -> Trace:
    return generate(Decoder.model_validate_json(model), Plan.model_validate(json.loads(plan)))


@lru_cache(maxsize=256)
def _platform(machine: str, npus: int, keys: str) -> Platform:
    return load_platform({**MACHINES[machine].platform(npus), **json.loads(keys)})


@lru_cache(maxsize=65536)
# Many fits simulate the same plan: constants change, plans do not.
def _seconds(model: str, plan: str, machine: str, keys: str) -> float:
    from armillary.engine import simulate

    trace = _trace(model, plan)
    return simulate(trace, _platform(machine, trace.n_ranks, keys)).total_ticks * 1e-9


def _keys(machine: str, constants: Constants) -> dict[str, Any]:
    collectives = MACHINES[machine].collectives()
    # A machine without a fit has its collectives by schedules.
    return constants.platform(MACHINES[machine].device) | (
        {"collectives": collectives} if collectives else {}
    )


def platform_of(case: Case, constants: Constants = NEUTRAL) -> Platform:
    """Return the machine of a case with the constants of its software."""
    keys = _keys(case.machine, constants)
    return _platform(case.machine, case.npus, json.dumps(keys, sort_keys=True))


def seconds(case: Case, constants: Constants = NEUTRAL, *, steady: bool = True) -> float:
    """Return the simulated time of a step.

    Args:
        case: What runs.
        constants: Of software and device.
        steady: Simulate two steps of fewer microbatches where there are many: once a pipeline is full each further
            round of microbatches takes the same.

    Raises:
        InputError: the plan is impossible on the machine.
    """

    def run(chosen: Case) -> float:
        assert chosen.model is not None
        plan = {"ranks": chosen.npus, **constants.plan(chosen.plan)}
        keys = _keys(chosen.machine, constants)
        return _seconds(
            chosen.model.model_dump_json(), json.dumps(plan, sort_keys=True), chosen.machine, json.dumps(keys)
        )

    unit, count, stages = _rounds(case)
    few, more = 2 * stages, 3 * stages
    # Short runs are simulated whole.
    if not steady or count <= more + stages:
        return run(case)
    # Two runs with as many rounds more: their difference is one round of the steady state.
    first, second = (run(replace(case, plan={**case.plan, "batch": unit * n})) for n in (few, more))
    return first + (second - first) * (count - few) / (more - few)


def _rounds(case: Case) -> tuple[int, int, int]:
    """Return samples of one microbatch of all replicas, microbatches of a replica, and pipeline stages."""
    parallel = case.plan.get("parallel", {})
    stages = parallel.get("pp", 1)
    # Data parallelism is what tp, cp and pp leave over.
    replicas = case.npus // (parallel.get("tp", 1) * parallel.get("cp", 1) * stages)
    unit = max(1, replicas * case.plan.get("microbatch", 1))
    return unit, case.plan["batch"] // unit, stages
