"""Traces that are kept for the next simulation of a step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from armillary.explore.training import traces
from armillary.explore.training.traces import Traces
from armillary.trace import nodes_of
from armillary.workload.generate import generate, memory_of
from armillary.workload.models import load_model
from armillary.workload.plan.schema import Plan

MODEL = load_model("llama-2-7b")
TEXT = MODEL.model_dump_json()


def keys(**other: Any) -> dict[str, Any]:
    """Return a plan."""
    return {"ranks": 8, "batch": 16, "sequence": 512, "parallel": {"tp": 2, "pp": 2}, **other}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Return the plans of which traces were generated."""
    found: list[Plan] = []

    def noted(model: Any, plan: Plan, **options: Any) -> Any:
        found.append(plan)
        return generate(model, plan, **options)

    monkeypatch.setattr(traces, "generate", noted)
    return found


def test_plans_that_differ_in_times_of_the_host_are_generated_once(made: list[Plan]) -> None:
    kept = Traces()
    for issue, handshake in ((1, 2), (3, 4), (1, 2), (5, 0), (0, 4)):
        plan = keys(host={"issue": f"{issue} us"}, pipeline={"handshake": f"{handshake} us"})
        found, anew = kept.of(TEXT, json.dumps(plan)), generate(MODEL, Plan.model_validate(plan))
        for mine, yours in zip(found.graphs, anew.graphs, strict=True):
            assert nodes_of(mine) == nodes_of(yours)
    # What takes no time has no nodes.
    assert [(each.host.issue, each.pipeline.handshake) for each in made] == [
        (1000, 2000),
        (5000, 0),
        (0, 4000),
    ]


def test_memory_is_reported_where_it_is_asked_for() -> None:
    kept, plan = Traces(), keys()
    assert "memory" not in kept.of(TEXT, json.dumps(plan)).about
    found = kept.of(TEXT, json.dumps(plan), memory=True)
    assert found.about["memory"] == memory_of(MODEL, Plan.model_validate(plan))
    assert found.about == generate(MODEL, Plan.model_validate(plan)).about


def test_the_oldest_traces_are_let_go_of(monkeypatch: pytest.MonkeyPatch, made: list[Plan]) -> None:
    kept, plans = Traces(), [json.dumps(keys(batch=batch)) for batch in (16, 24, 32)]
    sizes = [sum(graph.n_nodes for graph in Traces().of(TEXT, plan).graphs) for plan in plans]
    made.clear()
    monkeypatch.setattr(traces, "KEPT_NODES", sizes[1] + sizes[2])
    for at in (0, 1, 2, 1, 0):
        kept.of(TEXT, plans[at])
    assert [plan.batch for plan in made] == [16, 24, 32, 16]
