"""Which rows constants were fitted to, row by row: by a digest of what a row says, not by the file that it is in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from armillary.evidence.validate.training.case import Case
from armillary.evidence.validate.training.machines import MACHINES
from armillary.explore.training.fitted import seen_by

DIGITS = 10
"""Hexadecimal digits of a digest: two of 10,000 rows agree by chance once in 20,000 sets."""
State = Literal["fitted", "twin", "unseen"]
"""Constants were fitted to the row; to another row of its plan (`plan_digest`); to none such."""


def row_digest(case: Case) -> str:
    """Return the digest of a case: its plan, batch, sequence, precision and measured value.

    How a file writes them, and where in it the row stands, does not enter.
    """
    plan = case.plan
    said = {
        **_plan(case),
        "batch": plan.get("batch"),
        "microbatch": plan.get("microbatch", 1),
        "sequence": plan.get("sequence"),
        "compute": plan.get("numbers", {}).get("compute", "bf16"),
        "recompute": plan.get("recompute", "none"),
        "measured": f"{case.measured:.6g}",
    }
    return _digest(said)


def plan_digest(case: Case) -> str:
    """Return the digest of model, device, number of devices and parallelism: rows that share it are twins.

    They may differ in batch, sequence, precision and release of the software.
    """
    return _digest(_plan(case))


def states(cases: Iterable[Case]) -> list[State]:
    """Return how the constants of each case's software relate to it; cases without a model are unseen."""
    return [_state(case) for case in cases]


def digests(cases: Iterable[Case]) -> dict[str, str]:
    """Return what a file of constants says about the rows that they were fitted to: digests between spaces."""
    known = [case for case in cases if case.model is not None]
    return {
        "rows": " ".join(sorted({row_digest(case) for case in known})),
        "plans": " ".join(sorted({plan_digest(case) for case in known})),
    }


def _state(case: Case) -> State:
    if case.model is None:
        return "unseen"
    seen = seen_by(case.stack)
    if row_digest(case) in seen.rows:
        return "fitted"
    return "twin" if plan_digest(case) in seen.plans else "unseen"


def _plan(case: Case) -> dict[str, Any]:
    assert case.model is not None
    model, parallel = case.model, case.plan.get("parallel", {})
    return {
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.attention.heads,
        "experts": model.experts.count if model.experts else 0,
        "device": MACHINES[case.machine].device,
        "npus": case.npus,
        **{axis: parallel.get(axis) or 1 for axis in ("tp", "pp", "cp", "ep")},
        "virtual": case.plan.get("pipeline", {}).get("virtual", 1),
        "sharding": case.plan.get("data", {}).get("sharding", "ddp"),
    }


def _digest(said: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:DIGITS]
