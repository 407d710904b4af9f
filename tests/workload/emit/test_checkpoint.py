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


def simulated(machine: dict[str, Any], **plan: Any) -> int:
    """Return the ticks of two small steps on a machine of 8."""
    wish = Plan.model_validate({"ranks": 8, "iterations": 2, **SMALL, "parallel": {"tp": 2}, **plan})
    return armillary.simulate(
        generate(load_model("llama-2-7b"), wish), armillary.load_platform(machine)
    ).total_ticks


def test_training_goes_on_beside_a_checkpoint() -> None:
    plain = simulated(STORED)
    waits, beside = (
        simulated(STORED, iterations=3, checkpoint_every=2, checkpoint_async=beside)
        for beside in (False, True)
    )
    alone = 1e6 + written("llama-2-7b", parallel={"tp": 2}) / 40
    # The third step is hidden by the checkpoint, which takes longer.
    assert beside == pytest.approx(plain + alone, rel=1e-6)
    assert waits == pytest.approx(1.5 * plain + alone, rel=0.01)


def test_the_next_checkpoint_waits_until_the_last_is_complete() -> None:
    found = simulated(STORED, iterations=3, checkpoint_every=1, checkpoint_async=True)
    alone = 1e6 + written("llama-2-7b", parallel={"tp": 2}) / 40
    assert found == pytest.approx(simulated(STORED) / 2 + 3 * alone, rel=1e-6)


def test_samples_are_read_once_and_a_step_ahead() -> None:
    plan: dict[str, Any] = {"ranks": 8, "iterations": 3, "sample_size": "1 MiB", **SMALL}
    for parallel, pipeline in (({"tp": 2, "pp": 2}, {}), ({"pp": 4}, {"schedule": "dualpipe"})):
        wish = Plan.model_validate({**plan, "batch": 16, "parallel": parallel, "pipeline": pipeline})
        trace = generate(load_model("llama-2-7b"), wish)
        read = np.array([storage_nodes(graph)[1].sum() for graph in trace.graphs])[trace.rank_graph]
        assert read.sum() == 3 * 16 * 2**20
    plain = simulated(STORED)
    assert simulated(STORED, sample_size="1000 B") == plain
    # Two steps that wait for nothing but what is read: the first step's samples are there.
    assert simulated(STORED, sample_size="8 GiB") == pytest.approx(2 * (1e6 + 64 * 2**30 / 40), rel=1e-6)


def test_train_simulates_storage_that_shares_links() -> None:
    machine: dict[str, Any] = {
        "network": [
            {"name": "in", "topology": "Switch", "size": 4, "bandwidth": "450 GB/s", "latency": "1 us"},
            {"name": "out", "topology": "Switch", "size": 2, "bandwidth": "20 GB/s", "latency": "5 us"},
        ],
        "network_model": "flow",
        "compute": {"roofline": True},
        "npu": {"peak": "989 TFLOP/s", "memory": {"bandwidth": "3350 GB/s", "capacity": "80 GiB"}},
        "storage": {"bandwidth": "40 GB/s", "latency": "1 ms", "at": "out"},
    }
    plan: dict[str, Any] = {**SMALL, "tp": 2, "sharding": "zero-1"}
    plain = armillary.train("llama-2-7b", machine, **plan).step_time_s
    waits, beside = (
        armillary.train("llama-2-7b", machine, checkpoint_every=50, checkpoint_async=each, **plan)
        for each in (False, True)
    )
    # Alone it takes what the storage takes; beside gradients, no more than both in turn, and no less than nothing.
    alone = written("llama-2-7b", parallel={"tp": 2}, data={"sharding": "zero-1"}) / 40e9
    assert 50 * waits.parts["checkpoint"] == pytest.approx(1e-3 + alone, rel=0.05)
    assert 0 < beside.parts["checkpoint"] < 0.8 * waits.parts["checkpoint"]
    assert waits.step_time_s == pytest.approx(plain + waits.parts["checkpoint"])
    assert any("beside which training goes on" in text for text in beside.assumptions)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"checkpoint_every": 3, "iterations": 2}, "no checkpoint in 2 iterations"),
        ({"checkpoint_every": 1, "pipeline": {"schedule": "pipedream"}}, "whose steps do not end"),
        ({"checkpoint_every": 1, "data": {"sharding": "parameter-server"}}, "parameter-server"),
        ({"checkpoint_async": True}, "expected checkpoint_every too"),
        ({"sample_size": "1 MiB", "data": {"sharding": "parameter-server"}}, "got sample_size 1048576"),
    ],
)
def test_what_is_impossible_is_refused(plan: dict[str, Any], words: str) -> None:
    with pytest.raises((InputError, ValueError), match=words):
        generate(load_model("llama-2-7b"), Plan.model_validate({"ranks": 8, **SMALL, **plan}))


@pytest.mark.parametrize(("key", "value"), [("checkpoint_every", 100), ("sample_size", "1 MiB")])
def test_a_machine_without_storage_is_refused(key: str, value: Any) -> None:
    with pytest.raises(
        InputError, match=rf"{key} {value}: the machine has no storage, expected platform\.storage"
    ):
        armillary.train("llama-2-7b", "dgx-h100", tp=2, **{key: value}, **SMALL)
