"""What if: single changes of a step, each really predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from armillary.base.errors import InputError
from armillary.explore.training.levels import how_for
from armillary.explore.training.plan_changes import plan_changes
from armillary.explore.training.prediction import Prediction, plan_text, tells_apart
from armillary.explore.training.train import predicted
from armillary.platform.files.preset import merged
from armillary.studio import dropped
from armillary.studio.answers import Found, find, machines
from armillary.studio.question import read_question
from armillary.workload.plan.request import keys_of


class Change(NamedTuple):
    """One change of a question: in words, and the keys that it has besides."""

    text: str
    plan: dict[str, Any]
    fabric: float = 1.0
    peak: float = 1.0


def what_if(data: Mapping[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return the effect of each change on the step, the largest gain first; each is told at once."""
    if "trace" in data:
        return dropped.what_if(data, tell)
    found = find(read_question(data))
    changes = list(_changes(found))
    rows = []
    for number, change in enumerate(changes):
        row = _effect(found, change)
        rows.append(row)
        tell({"progress": {"what": "predicted", "done": number + 1, "of": len(changes)}, "row": row})
    rows.sort(key=lambda row: -row.get("gain", float("-inf")))
    return {"step_time_s": found.step.step_time_s, "plan": plan_text(found.step.plan), "rows": rows}


def _effect(found: Found, change: Change) -> dict[str, Any]:
    asked, base = found.asked, found.step
    fabric, peak = asked.fabric * change.fabric, asked.peak * change.peak
    row: dict[str, Any] = {"change": change.text, "set": change.plan, "fabric": fabric, "peak": peak}
    try:
        machine = machines.asked(asked, change.fabric, change.peak).machine
        plan = merged(_keys(base), change.plan)
        step = predicted(found.model, machine, plan, base.software.name, how_for(machine, asked.graph))
    except InputError as error:
        return {**row, "refused": str(error)}
    # Of the same machine, what the model gets wrong of both cancels; of two machines nobody has measured how much.
    sure = tells_apart(base, step) if fabric == asked.fabric and peak == asked.peak else None
    return row | {
        "step_time_s": step.step_time_s, "gain": base.step_time_s / step.step_time_s - 1, "told_apart": sure,
        "needed_bytes": step.memory.needed_bytes, "fits": step.memory.fits, "limits": step.limits,
    }  # fmt: skip


def _keys(base: Prediction) -> dict[str, Any]:
    """Return the keys of a whole plan, as it was run; replicas are what is left over."""
    keys = {key: value for key, value in keys_of(base.plan).items() if key != "ranks"}
    if "parallel" in keys:
        keys["parallel"] = {key: value for key, value in keys["parallel"].items() if key != "dp"}
    return keys


def _changes(found: Found) -> Iterator[Change]:
    """Yield the changes that make sense of a step."""
    platform = found.step.machine.platform
    if len(platform.dimensions) > 1 or platform.topology:
        yield Change("networks between nodes 2 times as fast", {}, fabric=2.0)
        yield Change("networks between nodes half as fast", {}, fabric=0.5)
    yield Change("devices with 1.5 times the peaks", {}, peak=1.5)
    yield from (Change(words, keys) for words, keys in plan_changes(found.model, found.step.plan))
