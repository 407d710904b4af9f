"""What a plan says without an effect: keys of a way to divide or to run the work that the plan does not take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from armillary.workload.models import Model
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.numbers import stores
from armillary.workload.plan.schema import Plan

GATHERING = ("zero-3", "fsdp", "hsdp")
"""Shardings that gather the weights of layers."""
REDUCING = ("ddp", "zero-1", "zero-2")
"""Shardings that reduce gradients in buckets, after the backward pass of a step."""


def _ahead(plan: Plan) -> int:
    """Return how many layers are gathered ahead of the one that works."""
    return min(plan.data.prefetch, plan.data.limit - 1)


def _gathers(plan: Plan) -> bool:
    """Return whether ranks of tp that share experts gather the tokens that each of them has a part of."""
    own = plan.parallel
    return (own.tp if own.etp is None else own.etp) > 1 and own.sequence


@dataclass(frozen=True)
class Rule:
    """When a key of a plan has an effect.

    Attributes:
        keys: With their section, as a study has them.
        works: Whether they have, in a plan of a model that may have experts.
        why: What the plan lacks where they have none.
    """

    keys: tuple[str, ...]
    works: Callable[[Plan, bool], bool]
    why: str


RULES = (
    Rule(
        ("parallel.sequence", "parallel.overlap"), lambda plan, _: plan.parallel.tp > 1,
        "with tp 1 no rank shares a matrix",
    ),
    Rule(
        ("parallel.overlap",), lambda plan, _: plan.parallel.sequence or plan.parallel.tp == 1,
        "without sequence parallelism nothing is gathered",
    ),
    Rule(("parallel.context",), lambda plan, _: plan.parallel.cp > 1, "with cp 1 no rank shares a sequence"),
    Rule(("parallel.etp",), lambda plan, experts: experts, "the model has no experts"),
    Rule(
        ("pipeline.scatter", "pipeline.handshake"), lambda plan, _: plan.parallel.pp > 1,
        "with pp 1 no stage sends to another",
    ),
    Rule(
        ("pipeline.scatter",),
        lambda plan, _: plan.parallel.pp == 1 or (plan.parallel.tp > 1 and not plan.parallel.sequence),
        "it divides what all ranks of tp hold, which needs tp without sequence parallelism",
    ),
    Rule(
        ("data.prefetch", "data.limit", "data.reshard", "data.copies"), lambda plan, _: plan.data.sharding in GATHERING,
        f"nothing is gathered, expected data.sharding {', '.join(GATHERING)}",
    ),
    # A layer is gathered once the one before it is freed: `limit` counts both it and those ahead.
    Rule(
        ("data.prefetch",), lambda plan, _: _ahead(plan) != min(1, plan.data.limit - 1),
        "no more than data.limit layers are held at a time",
    ),
    Rule(
        ("data.limit",), lambda plan, _: _ahead(plan) != min(plan.data.prefetch, 1),
        "no more than data.prefetch layers are gathered ahead",
    ),
    Rule(
        ("data.servers", "data.asynchronous"), lambda plan, _: plan.data.sharding == "parameter-server",
        "there are no servers, expected data.sharding parameter-server",
    ),
    Rule(
        ("data.average", "data.check"), lambda plan, _: plan.data.sharding in REDUCING,
        f"gradients are not reduced in buckets, expected data.sharding {', '.join(REDUCING)}",
    ),
    Rule(
        ("data.clear",), lambda plan, _: plan.data.sharding in ("ddp", "zero-1"),
        "no buffer holds all gradients, expected data.sharding ddp, zero-1",
    ),
    Rule(
        ("recompute",),
        lambda plan, _: plan.recompute != "selective" or plan.attention != "flash" or bool(plan.recompute_modules),
        "flash keeps no scores that could be left out, expected recompute_modules, e.g. core_attn",
    ),
    Rule(
        ("early_stop",), lambda plan, _: plan.recompute == "full",
        "no whole layer is recomputed, which recompute full does",
    ),
    Rule(
        ("host.issue_each", "host.gap", "host.synchronise"), lambda plan, experts: experts,
        "the model has no experts",
    ),
    Rule(("host.graphs",), lambda plan, _: bool(plan.host.issue), "host.issue takes no time"),
    Rule(
        ("experts.domain",), lambda plan, _: plan.parallel.ep > 1,
        "with ep 1 every rank has all experts, and no token is sent",
    ),
    Rule(
        ("experts.dispatcher", "experts.dispatch"), lambda plan, _: plan.parallel.ep > 1 or _gathers(plan),
        "with ep 1 every rank has all experts, and no token is sent",
    ),
    Rule(
        ("experts.quantise",),
        lambda plan, _: plan.numbers.recipe in ("mx", "nvfp4") and bool(plan.host.gap or plan.host.issue_each),
        "only kernels of mx and nvfp4 that take host.gap or host.issue_each for each expert differ",
    ),
)  # fmt: skip
"""Of each key the first rule that it breaks counts."""


def without_effect(
    plan: Plan, model: Model | None = None, usual: Mapping[str, Any] | None = None
) -> list[str]:
    """Return what a plan says and the rest of it leaves without an effect, a sentence each.

    Args:
        plan: The plan.
        model: What is run; None: one that may have experts.
        usual: Keys of a plan that nobody chose: what a software does by default. They are not spoken of.
    """
    return list(idle(plan, model, usual).values())


def widened(plan: Plan, model: Model) -> list[str]:
    """Return a sentence if a plan takes weights in another precision than they are published in."""
    own = model.published if isinstance(model, Decoder) else None
    if own is None:
        return []
    held = stores(plan).weights if plan.serve else plan.numbers.compute
    stored = own.weights or own.experts or own.gemms
    if stored is None:
        return [
            f"weights of {model.name} are quantised by {own.method}, which is not modelled: they count as {held}"
        ]
    alike = held == {"mxfp4": "fp4", "int4": "fp4"}.get(stored, stored)
    return [] if alike else [f"{model.name} is published in {stored}; this plan says {held}"]


def idle(plan: Plan, model: Model | None = None, usual: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the keys without an effect, with their section, and a sentence for each; see `without_effect`."""
    experts = model is None or (isinstance(model, Decoder) and model.experts is not None)
    found: dict[str, str] = {}
    for rule in RULES:
        if rule.works(plan, experts):
            continue
        for key in rule.keys:
            value = _chosen(plan, key, usual or {})
            if value is not None and key not in found:
                found[key] = f"{key} {_shown(value)} has no effect: {rule.why}"
    return found


def _chosen(plan: Plan, key: str, usual: Mapping[str, Any]) -> Any:
    """Return the value of a key; None if it is its default, or that of a software."""
    section, _, name = key.rpartition(".")
    part: Any = getattr(plan, section) if section else plan
    usual = (usual.get(section) or {}) if section else usual
    value = getattr(part, name)
    default = type(part).model_fields[name].get_default(call_default_factory=True)
    return None if value == default or name in usual else value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, list) else str(value)
