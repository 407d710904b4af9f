"""What if: single changes of a step, each really predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from armillary.base.errors import InputError
from armillary.explore.training.prediction import Prediction, plan_text, tells_apart
from armillary.explore.training.train import predicted
from armillary.platform.files.preset import merged
from armillary.studio.answers import Found, find, machines
from armillary.studio.question import read_question
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.request import keys_of


class Change(NamedTuple):
    """One change of a question: in words, and the keys that it has besides."""

    text: str
    plan: dict[str, Any]
    fabric: float = 1.0
    peak: float = 1.0


def what_if(data: Mapping[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return the effect of each change on the step, the largest gain first; each is told at once."""
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
        machine = machines.of(asked.machine, fabric, peak).machine
        plan = merged(_keys(base), change.plan)
        step = predicted(found.model, machine, plan, base.software.name)
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
    plan, machine = found.step.plan, found.step.machine
    if len(machine.platform.dimensions) > 1:
        yield Change("networks between nodes 2 times as fast", {}, fabric=2.0)
        yield Change("networks between nodes half as fast", {}, fabric=0.5)
    yield Change("devices with 1.5 times the peaks", {}, peak=1.5)
    own = plan.parallel
    experts = found.model.experts if isinstance(found.model, Decoder) else None
    axes = ("tp", "pp", "cp", "ep") if experts else ("tp", "pp", "cp")
    for axis in axes:
        size = getattr(own, axis)
        for other in (size * 2, size // 2):
            if other >= 1:
                # Virtual stages are those of a number of stages.
                more = {"pipeline": {"virtual": 1, "schedule": "1f1b"}} if axis == "pp" else {}
                yield Change(f"{axis} {other} instead of {size}", {"parallel": {axis: other}, **more})
    for micro in (plan.microbatch * 2, plan.microbatch // 2):
        if micro:
            yield Change(f"microbatch {micro} instead of {plan.microbatch}", {"microbatch": micro})
    if own.pp > 1:
        for virtual in (plan.pipeline.virtual * 2, 1):
            if virtual == plan.pipeline.virtual:
                continue
            schedule = "interleaved" if virtual > 1 else "1f1b"
            yield Change(
                f"virtual stages: {virtual} instead of {plan.pipeline.virtual}",
                {"pipeline": {"virtual": virtual, "schedule": schedule}},
            )
    for how, words in (("none", "no recomputation"), ("full", "full recomputation")):
        if how != plan.recompute:
            yield Change(words, {"recompute": how})
    if own.tp > 1 and not own.overlap and own.sequence:
        yield Change("communication of tp beside its GEMMs (--overlap-tp)", {"parallel": {"overlap": True}})
    if plan.numbers.compute == "bf16":
        yield Change("GEMMs in fp8", {"numbers": {"compute": "fp8"}})
    for sharding in ("ddp", "zero-1", "fsdp"):
        if sharding != plan.data.sharding:
            yield Change(f"sharding {sharding}", {"data": {"sharding": sharding}})
