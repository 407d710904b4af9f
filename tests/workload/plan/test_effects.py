"""Keys without an effect: those that are called so change neither the graphs nor the memory, all others do."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from armillary.base.errors import InputError
from armillary.platform.files.preset import merged
from armillary.trace import Trace
from armillary.workload.generate import generate, memory_of
from armillary.workload.models import load_model
from armillary.workload.plan.effects import RULES, without_effect
from armillary.workload.plan.schema import Plan

CHANGES: dict[str, list[Any]] = {
    "parallel.sequence": [False], "parallel.overlap": [True], "parallel.context": ["all-gather"],
    "pipeline.scatter": [True], "pipeline.handshake": ["1 us"], "data.prefetch": [0, 2, 3], "data.limit": [1, 4],
    "data.reshard": [False], "data.servers": [2], "data.asynchronous": [True], "data.average": ["kernel"],
    "data.check": [True], "data.clear": [True], "data.copies": [True], "recompute": ["selective"],
    "early_stop": [True], "host.issue_each": ["1 us"], "host.gap": ["1 us"], "host.synchronise": ["1 us"],
    "host.graphs": [["attention"]], "experts.domain": [2], "experts.dispatcher": ["deepep"],
    "experts.quantise": ["apart"], "experts.dispatch": ["fp8"], "parallel.etp": [1],
}  # fmt: skip
"""Key -> values other than the default."""
BASES: list[dict[str, Any]] = [
    {},
    {"parallel": {"tp": 2, "pp": 2}},
    {"parallel": {"tp": 2, "pp": 2, "sequence": False}},
    {"parallel": {"cp": 2}, "data": {"sharding": "zero-1"}},
    {"data": {"sharding": "zero-2"}, "recompute": "full"},
    {"data": {"sharding": "fsdp"}, "attention": "unfused"},
    {"data": {"sharding": "fsdp", "limit": 3}, "recompute": "selective", "recompute_modules": ["core_attn"]},
    {"data": {"sharding": "parameter-server"}, "batch": 7},
    {"parallel": {"ep": 4}, "host": {"issue": "1 us"}},
    {
        "parallel": {"ep": 4}, "numbers": {"compute": "fp8", "recipe": "mx"}, "host": {"gap": "1 us"},
        "experts": {"dispatch": "bf16"},
    },
]  # fmt: skip


def content(trace: Trace) -> list[Any]:
    """Return what a simulation sees of the graphs: all but names."""
    columns = ("duration_ns", "num_ops", "comm_size", "comm_type", "tensor_size")
    return [
        [graph.types.tobytes(), *(each.tobytes() for each in graph.parents()),
         *(graph.ints(name).tobytes() for name in columns)]
        for graph in trace.graphs
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["llama-2-7b", "mixtral-8x7b"])
@pytest.mark.parametrize("base", BASES)
def test_what_is_called_without_effect_is_exactly_that(name: str, base: dict[str, Any]) -> None:
    model = load_model(name).model_copy(update={"layers": 4})

    def made(keys: dict[str, Any]) -> tuple[Any, Plan]:
        plan = Plan.model_validate(keys)
        return (content(generate(model, plan)), memory_of(model, plan)), plan

    whole = merged({"ranks": 8, "batch": 16, "sequence": 256}, base)
    try:
        before, _ = made(whole)
    except InputError:
        pytest.skip("the model has no such plan")
    tried = 0
    for key, values in CHANGES.items():
        section, _, inner = key.rpartition(".")
        if section and inner in base.get(section, {}):
            continue
        for value in values:
            if key == "recompute" and "recompute" in base:
                continue
            try:
                after, plan = made(merged(whole, {section: {inner: value}} if section else {inner: value}))
            except (InputError, ValidationError):
                continue
            said = [text for text in without_effect(plan, model) if text.startswith(f"{key} ")]
            same = after == before
            # Said where it is so; silent where it is not. `etp` may also be what it would be anyway.
            assert bool(said) == same or (key == "parallel.etp" and not said), (key, value, said)
            tried += 1
    assert tried > 10


def test_every_rule_names_keys_of_a_plan() -> None:
    assert {key for rule in RULES for key in rule.keys} <= set(CHANGES)


def test_defaults_of_a_software_are_not_spoken_of() -> None:
    plan = Plan.model_validate({"ranks": 8, "batch": 8, "data": {"sharding": "fsdp", "check": True}})
    assert without_effect(plan) and not without_effect(plan, usual={"data": {"check": True}})
