"""From a case to a predicted step time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from armillary.platform.model import Platform
from armillary.platform.native import load_platform
from armillary.study.validate.training.case import Case
from armillary.study.validate.training.machines import MACHINES
from armillary.trace import Trace
from armillary.workload.generate import generate
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan


@lru_cache(maxsize=4096)
def _trace(model: str, plan: str) -> Trace:
    return generate(Decoder.model_validate_json(model), Plan.model_validate(json.loads(plan)))


def trace_of(case: Case) -> Trace:
    """Return the workload of a case, made once.

    Raises:
        InputError: its plan is impossible.
    """
    assert case.model is not None
    return _trace(case.model.model_dump_json(), json.dumps({"ranks": case.npus, **case.plan}, sort_keys=True))


def platform_of(case: Case, keys: Mapping[str, Any]) -> Platform:
    """Return the machine of a case, with further keys of the platform."""
    return _platform(case.machine, case.npus, json.dumps(keys, sort_keys=True))


@lru_cache(maxsize=256)
def _platform(machine: str, npus: int, keys: str) -> Platform:
    return load_platform({**MACHINES[machine].platform(npus), **json.loads(keys)})


def seconds(case: Case, keys: Mapping[str, Any]) -> float:
    """Return the simulated time of a step."""
    from armillary.engine import simulate

    return simulate(trace_of(case), platform_of(case, keys)).total_ticks * 1e-9
