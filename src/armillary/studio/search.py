"""The search for the best plans, told while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from armillary.explore.sweep.memory import needed
from armillary.explore.training import choose
from armillary.explore.training.levels import how_for
from armillary.explore.training.prediction import plan_text
from armillary.explore.training.show import choice_json
from armillary.explore.training.software import usual
from armillary.explore.training.train import plan_of
from armillary.studio.answers import machines
from armillary.studio.question import read_question

TOP = 10
OPEN = ("tp", "pp", "cp", "ep", "etp", "dp")
"""Keys of the parallelism that a search chooses."""


def plan(data: Mapping[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return what ``armillary plan --json`` writes; each plan that is simulated is told at once.

    The parallelism, the microbatch, recomputation and virtual stages of the question are left open, all else is kept.
    """
    asked = read_question(data)
    model, machine = asked.read_model(), machines.asked(asked).machine
    plan_of({"batch": 1, **asked.plan}, machine)
    given = opened(asked.plan)
    # One for all plans, as they are compared.
    software = asked.software or usual(machine.software, given)

    def seen(values: Mapping[str, Any], seconds: float) -> None:
        each = plan_of(values, machine)
        tell({
            "point": {
                "step_time_s": seconds, "needed_bytes": int(needed(model, each)),
                "text": plan_text(each), "software": software,
                "plan": {key: value for key, value in values.items() if key != "ranks"},
            }
        })  # fmt: skip

    def progress(what: str, done: int, of: int) -> None:
        tell({"progress": {"what": what, "done": done, "of": of}})

    found = choose.plan(
        model, machine, software=asked.software, graph=how_for(machine, asked.graph), top=TOP, progress=progress,
        seen=seen, **given,
    )  # fmt: skip
    result = choice_json(found)
    texts = [plan_text(each.plan) for each in found.plans]
    plans = [{**each, "text": text} for each, text in zip(result["plans"], texts, strict=True)]
    capacity = machine.platform.npu.memory.capacity
    return {
        **result, "plans": plans, "machine": asked.machine, "rejected": rejected(found),
        "capacity_bytes": int(capacity) if capacity else None,
    }  # fmt: skip


def opened(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a plan without those that are searched."""
    given = {key: value for key, value in plan.items() if key not in ("microbatch", "recompute")}
    for section, names in (("parallel", OPEN), ("pipeline", ("schedule", "virtual", "layers"))):
        if isinstance(given.get(section), Mapping):
            given[section] = {key: value for key, value in given[section].items() if key not in names}
    # What belongs to a recomputation goes with it.
    for key in ("recompute_modules", "recompute_every", "keep", "early_stop"):
        given.pop(key, None)
    return {key: value for key, value in given.items() if value != {}}


def rejected(found: choose.Choice) -> list[dict[str, Any]]:
    """Return how many plans each kind of reason has, and one of them."""
    groups: dict[str, list[str]] = {}
    for each in found.rejected:
        groups.setdefault(each.kind, []).append(each.why)
    return [{"why": kind, "plans": len(whys), "such_as": whys[0]} for kind, whys in groups.items()]
