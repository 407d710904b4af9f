"""From a case to a predicted step time."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from armillary.platform.model import Platform
from armillary.platform.native import load_platform
from armillary.study.validate.training.case import Case
from armillary.study.validate.training.constants import Constants
from armillary.study.validate.training.machines import MACHINES
from armillary.trace import Trace
from armillary.workload.generate import generate
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

NEUTRAL = Constants()


@lru_cache(maxsize=4096)
def _trace(model: str, plan: str) -> Trace:
    return generate(Decoder.model_validate_json(model), Plan.model_validate(json.loads(plan)))


def trace_of(case: Case, constants: Constants = NEUTRAL) -> Trace:
    """Return the workload of a case, made once.

    Raises:
        InputError: its plan is impossible.
    """
    assert case.model is not None
    plan = {"ranks": case.npus, **constants.plan(case.plan)}
    return _trace(case.model.model_dump_json(), json.dumps(plan, sort_keys=True))


def platform_of(case: Case, constants: Constants = NEUTRAL) -> Platform:
    """Return the machine of a case."""
    keys = constants.platform(MACHINES[case.machine])
    return _platform(case.machine, case.npus, json.dumps(keys, sort_keys=True))


@lru_cache(maxsize=256)
def _platform(machine: str, npus: int, keys: str) -> Platform:
    return load_platform({**MACHINES[machine].platform(npus), **json.loads(keys)})


def seconds(case: Case, constants: Constants = NEUTRAL, *, steady: bool = True) -> float:
    """Return the simulated time of a step.

    Args:
        case: What runs.
        constants: Of software and device.
        steady: Simulate two steps of fewer microbatches where there are many: once a pipeline is full each further round
            of microbatches takes the same.

    Raises:
        InputError: the plan is impossible on the machine.
    """
    from armillary.engine import simulate

    def run(chosen: Case) -> float:
        return simulate(trace_of(chosen, constants), platform_of(chosen, constants)).total_ticks * 1e-9

    unit, count, stages = _rounds(case)
    few, more = 2 * stages, 3 * stages
    if not steady or count <= more + stages:
        return run(case)
    first, second = (run(replace(case, plan={**case.plan, "batch": unit * n})) for n in (few, more))
    return first + (second - first) * (count - few) / (more - few)


def _rounds(case: Case) -> tuple[int, int, int]:
    """Return samples of one microbatch of all replicas, microbatches of a replica, and pipeline stages."""
    parallel = case.plan["parallel"] if "parallel" in case.plan else {}
    stages = parallel.get("pp", 1)
    replicas = case.npus // (parallel.get("tp", 1) * parallel.get("cp", 1) * stages)
    unit = max(1, replicas * case.plan.get("microbatch", 1))
    return unit, case.plan["batch"] // unit, stages
