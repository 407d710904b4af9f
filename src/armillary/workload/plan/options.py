"""Every value of a plan as an option of the command line has it: its place, name, heading and JSON schema."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

from armillary.base.hints import KeyPath

Kind = Literal["training", "inference", "both"]
NAMES: dict[KeyPath, str] = {
    ("parallel", "sequence"): "sequence-parallel",
    ("parallel", "overlap"): "overlap-tp",
    ("pipeline", "layers"): "stage-layers",
    ("pipeline", "overlap"): "overlap-tasks",
    ("data", "limit"): "gather-limit",
    ("numbers", "compute"): "precision",
    ("numbers", "weights"): "weight-precision",
    ("numbers", "embeddings"): "embedding-precision",
    ("numbers", "cache"): "cache-precision",
    ("numbers", "activations"): "activation-precision",
    ("pipeline", "virtual"): "virtual-pipeline",
    ("offload", "optimizer"): "offload-optimizer",
    ("offload", "weights"): "offload-weights",
    ("offload", "activations"): "offload-activations",
    ("experts", "skew"): "expert-skew",
    ("experts", "dispatch"): "expert-dispatch",
    ("experts", "dispatcher"): "expert-dispatcher",
    ("experts", "align"): "expert-align",
    ("lora", "rank"): "lora-rank",
    ("lora", "targets"): "lora-targets",
}
"""Options that are not named as the last key."""
HEADINGS = {
    "parallel": "Parallelism",
    "pipeline": "Pipeline",
    "data": "Data parallelism",
    "numbers": "Precision",
    "offload": "Memory",
    "recompute": "Memory",
    "early_stop": "Memory",
    "checkpoint_every": "Storage",
    "checkpoint_async": "Storage",
    "sample_size": "Storage",
    "optimizer": "Memory",
    "clip": "Memory",
    "experts": "Experts",
    "lora": "Adapters (LoRA)",
    "host": "CPU",
    "serve": "Inference",
}
"""First key of an option -> its heading; of all else `REST`."""
REST = "Model and batch"
_OF_INFERENCE: dict[KeyPath, str] = {
    ("batch",): "Sequences, over all replicas.",
    ("microbatch",): "Sequences that a replica processes at a time.",
}
"""Descriptions of options of inference that differ from those of training."""


def leaves(kind: Kind) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Yield place and JSON schema of every value of such a plan."""
    from armillary.workload.plan.serving import MEANT, OF_INFERENCE

    schema = _schema()
    for key, value in schema["properties"].items():
        # A section may be optional: anyOf of a reference and null.
        refers = value if "$ref" in value else value.get("anyOf", [{}])[0]
        parts: dict[KeyPath, dict[str, Any]] = {(key,): value}
        if "$ref" in refers:
            # Sections are one level deep.
            inner = schema["$defs"][refers["$ref"].rpartition("/")[2]]["properties"]
            parts = {(key, name): each for name, each in inner.items()}
        for path, each in parts.items():
            # Keys of serving are options of inference only.
            if key == "serve":
                if kind != "training":
                    yield path, each
            elif kind != "inference":
                if kind == "both" or path not in OF_INFERENCE:
                    yield path, each
            elif path in MEANT:
                yield path, each | {"description": _OF_INFERENCE.get(path, each.get("description"))}


@cache
def _schema() -> dict[str, Any]:
    # Pydantic makes it anew each time, which took a fifth of the time of an answer of the studio.
    from armillary.workload.plan.schema import Plan

    return Plan.model_json_schema()


def option_name(path: KeyPath) -> str:
    """Return the name of an option, without hyphens in front."""
    return NAMES.get(path, str(path[-1]).replace("_", "-"))


def heading(path: KeyPath) -> str:
    """Return the heading that an option stands under."""
    return HEADINGS.get(str(path[0]), REST)
