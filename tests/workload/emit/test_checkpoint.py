"""Checkpoints of generated training steps: what is written once, by whom, and what a step takes with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import armillary
from armillary.base.errors import InputError
from armillary.trace import NodeType
from armillary.trace.storage import storage_nodes
from armillary.workload.generate import generate
from armillary.workload.models import load_model
from armillary.workload.models.counts import parameters
from armillary.workload.plan.schema import Plan

SMALL: dict[str, Any] = {"batch": 8, "sequence": 256}
STORED = {"preset": "dgx-h100", "storage": {"bandwidth": "40 GB/s", "latency": "1 ms"}}


def written(model: str, **plan: Any) -> int:
    """Return the bytes that all ranks write in one checkpoint."""
    wish = Plan.model_validate({"ranks": 8, "checkpoint_every": 1, **SMALL, **plan})
    trace = generate(load_model(model), wish)
    sizes = np.array([storage_nodes(graph)[1].sum() for graph in trace.graphs])
    return int(sizes[trace.rank_graph].sum())


@pytest.mark.parametrize(
    ("plan", "each"),
    [
        ({}, 14),
        ({"parallel": {"tp": 2, "pp": 2}, "data": {"sharding": "zero-1"}}, 14),
        ({"data": {"sharding": "fsdp"}}, 12),
        ({"data": {"sharding": "hsdp", "shard": 2}}, 12),
        ({"optimizer": "sgd"}, 6),
        ({"numbers": {"compute": "fp32"}}, 12),
        ({"parallel": {"pp": 4}, "pipeline": {"schedule": "dualpipe"}, "batch": 16}, 14),
    ],
)
def test_ranks_together_write_all_parameters_once(plan: dict[str, Any], each: int) -> None:
    whole = each * parameters(load_model("llama-2-7b")).total
    # Norms are on all ranks of tp, and shares are rounded up.
    assert written("llama-2-7b", **plan) == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("plan", [{"parallel": {"ep": 4}}, {"parallel": {"ep": 2, "tp": 2, "pp": 2}}])
def test_experts_are_written_once(plan: dict[str, Any]) -> None:
    whole = 14 * parameters(load_model("mixtral-8x7b")).total
    assert written("mixtral-8x7b", **plan) == pytest.approx(whole, rel=1e-6)


def test_a_tied_table_is_written_by_the_first_stage() -> None:
    # Position embeddings, which are not divided along tp, are 0.06 % of the model.
    whole = 14 * parameters(load_model("megatron-22b")).total
    assert written("megatron-22b", parallel={"tp": 2, "pp": 2}) == pytest.approx(whole, rel=1e-3)


def test_adapters_alone_are_written() -> None:
    assert 0 < written("llama-2-7b", lora={"rank": 8}) < written("llama-2-7b") / 100


def test_one_after_every_so_many_steps() -> None:
    plan = Plan.model_validate({"ranks": 8, "iterations": 5, "checkpoint_every": 2, **SMALL})
    trace = generate(load_model("llama-2-7b"), plan)
    assert all((graph.types == NodeType.CHECKPOINT_NODE).sum() == 2 for graph in trace.graphs)


def test_the_next_step_waits() -> None:
    plan = {"ranks": 8, "iterations": 2, **SMALL, "parallel": {"tp": 2, "pp": 2}}
    model, machine = load_model("llama-2-7b"), armillary.load_platform(STORED)
    without, with_one = (
        armillary.simulate(generate(model, Plan.model_validate(plan | more)), machine).total_ticks
        for more in ({}, {"checkpoint_every": 1})
    )
    largest = written("llama-2-7b", **{key: plan[key] for key in ("parallel",)}) / 8
    # Stages of equal size, each at an eighth of the storage, twice.
    assert with_one - without == pytest.approx(2 * (1e6 + largest / 5), rel=0.05)


def test_train_adds_their_share_to_the_step() -> None:
    plan = {**SMALL, "tp": 2, "pp": 2}
    plain = armillary.train("llama-2-7b", STORED, **plan)
    found = armillary.train("llama-2-7b", STORED, checkpoint_every=100, **plan)
    more = found.step_time_s - plain.step_time_s
    whole = 14 * parameters(load_model("llama-2-7b")).total
    assert more == pytest.approx((1e-3 + whole / 40e9) / 100, rel=0.01)
    assert found.parts["checkpoint"] == pytest.approx(more)
    assert any("checkpoint of" in text and "after every 100 steps" in text for text in found.assumptions)
    assert "checkpoint" not in plain.parts


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"checkpoint_every": 3, "iterations": 2}, "no checkpoint in 2 iterations"),
        ({"checkpoint_every": 1, "pipeline": {"schedule": "pipedream"}}, "whose steps do not end"),
        ({"checkpoint_every": 1, "data": {"sharding": "parameter-server"}}, "parameter-server"),
    ],
)
def test_what_is_impossible_is_refused(plan: dict[str, Any], words: str) -> None:
    with pytest.raises((InputError, ValueError), match=words):
        generate(load_model("llama-2-7b"), Plan.model_validate({"ranks": 8, **SMALL, **plan}))


def test_a_machine_without_storage_is_refused() -> None:
    with pytest.raises(InputError, match=r"no storage, expected platform\.storage"):
        armillary.train("llama-2-7b", "dgx-h100", tp=2, checkpoint_every=100, **SMALL)
