"""What a plan says and the flags of a software do not: a run that they start is another than the predicted one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from armillary.explore.training.prediction import Prediction
from armillary.explore.training.software import software_plan
from armillary.workload.models import Model
from armillary.workload.plan.effects import idle
from armillary.workload.plan.schema import Plan

MATTERS_NOT = {
    "ranks", "batch", "microbatch", "sequence", "iterations", "sample_size", "checkpoint_every", "checkpoint_async",
    "causal", "dropout",
    "parallel.tp", "parallel.cp", "parallel.pp", "parallel.dp", "parallel.ep",
    "pipeline.schedule", "numbers.gradients", "recompute",
}  # fmt: skip
"""Keys that the flags of all software say, or that are of data and models."""
SAYS = {
    "megatron-core": {
        "parallel.etp", "parallel.sequence", "parallel.overlap", "pipeline.virtual", "data.sharding", "data.overlap",
        "numbers.compute", "numbers.recipe", "recompute_modules",
    },
    "torchtitan": {"parallel.overlap", "data.sharding", "data.shard", "recompute_every"},
}  # fmt: skip
"""Software -> further keys that its flags say."""
SHARDS = {
    "megatron-core": ("ddp", "zero-1", "zero-2", "zero-3", "fsdp"),
    "torchtitan": ("ddp", "zero-3", "fsdp", "hsdp"),
}
"""Software -> how weights are shared by runs that its flags can ask for."""
OF_HOST = ("host.", "pipeline.handshake")
"""How keys begin that are properties of programs and machines: no flag sets them."""


def unsaid(found: Prediction, model: Model, software: str) -> dict[str, Any]:
    """Return the keys of a plan, with their section, that the flags of a software do not say, and their values.

    Those at their default are none of them, nor those that have no effect or that a software takes by itself.

    Args:
        found: The prediction.
        model: Its model.
        software: Of the flags.
    """
    plan = found.plan
    said = MATTERS_NOT | SAYS[software] | set(idle(plan, model))
    # How the predicted software does it is its own affair, but for how weights are shared.
    own = {key: value for key, value in _usual(found.software.plan).items() if key != "data.sharding"}
    known = (_usual({}), _usual(software_plan(software)), own)
    if plan.data.sharding not in SHARDS[software]:
        said -= {"data.sharding"}
    return {
        key: value
        for key, value in _flat(plan.model_dump(exclude_none=True)).items()
        if key not in said and not key.startswith(OF_HOST) and all(value != each.get(key) for each in known)
    }


def comment(found: Prediction, model: Model, software: str) -> list[str]:
    """Return a line of a file of flags that names these keys; none: the flags say all."""
    texts = [f"{key} {_text(value)}" for key, value in unsaid(found, model, software).items()]
    return [f"# Of the plan these settings do not say: {', '.join(texts)}"] if texts else []


def _text(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value).lower()


def _usual(keys: Mapping[str, Any]) -> dict[str, Any]:
    return _flat(Plan.model_validate({"ranks": 1, "batch": 1, **keys}).model_dump())


def _flat(keys: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in keys.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{name}": each for name, each in value.items()}
        else:
            found[key] = value
    return found
