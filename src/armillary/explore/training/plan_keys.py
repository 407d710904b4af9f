"""Keys of a plan as people write them: sizes and choices that are asked for most may stand beside the sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from armillary.base.errors import InputError
from armillary.base.hints import KeyPath, show

ALONE = {
    **{axis: ("parallel", axis) for axis in ("tp", "pp", "cp", "ep", "etp", "dp", "context")},
    "schedule": ("pipeline", "schedule"),
    "virtual": ("pipeline", "virtual"),
    "virtual-pipeline": ("pipeline", "virtual"),
    "sharding": ("data", "sharding"),
    "precision": ("numbers", "compute"),
    "recipe": ("numbers", "recipe"),
}
"""Key -> where it stands in a plan; the names are those of the command line."""


class PlanError(InputError):
    """A key of a plan is wrong or missing; who read the plan from a file can say where it stands.

    Attributes:
        place: The key, as a plan has it; (): the plan.
        problem: What is wrong with it.
        missing: The key that is missing, as a plan has it; (): none is.
    """

    def __init__(self, place: KeyPath, problem: str, missing: KeyPath = ()) -> None:
        super().__init__(": ".join(filter(None, ("plan", ".".join(map(str, place)), problem))))
        self.place, self.problem, self.missing = place, problem, missing


def nested(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a plan with those that stand alone in their section.

    More than one virtual stage is what interleaving means, so the schedule need not say it.

    Raises:
        PlanError: a key stands alone and in its section, or a section is no mapping.
    """
    if not isinstance(plan, Mapping):
        raise PlanError((), f"got {show(plan)}, expected a mapping of keys to values")
    found = {key: value for key, value in plan.items() if key not in ALONE}
    for key, (section, name) in ALONE.items():
        if key not in plan:
            continue
        held = found.get(section) or {}
        if not isinstance(held, Mapping):
            raise PlanError((section,), f"got {show(held)}, expected a mapping of keys to values")
        if name in held:
            raise PlanError((key,), f"given twice, alone and in {section}")
        found[section] = {**held, name: plan[key]}
    pipeline = found.get("pipeline")
    if isinstance(pipeline, Mapping) and pipeline.get("virtual", 1) != 1 and "schedule" not in pipeline:
        found["pipeline"] = {**pipeline, "schedule": "interleaved"}
    return found
