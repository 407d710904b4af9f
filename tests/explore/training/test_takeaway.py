"""Files that start a run: what they ask for is the predicted plan, and what they cannot ask for is named in them."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

import armillary
from armillary.explore.training.takeaway import megatron, torchtitan
from armillary.explore.training.unsaid import comment, unsaid
from armillary.workload.models import load_model

MODEL = "llama-2-7b"


def step(**plan: Any) -> Any:
    """Return a small step."""
    return armillary.train(MODEL, "dgx-h100", **{"batch": 32, "sequence": 1024, "tp": 1, **plan})


def job(found: Any) -> dict[str, Any]:
    """Return torchtitan's job of a step."""
    return tomllib.loads("\n".join(torchtitan(found, load_model(MODEL))))


def flags(found: Any) -> str:
    """Return Megatron-core's flags of a step."""
    return " ".join(megatron(found, load_model(MODEL)))


def test_torchtitan_accumulates_microbatches_where_no_pipeline_cuts_its_batch() -> None:
    training = job(step(sharding="fsdp", microbatch=2))["training"]
    assert (training["local_batch_size"], training["global_batch_size"]) == (2, 32)
    piped = job(step(sharding="zero-1", pp=2, microbatch=2))
    assert piped["training"]["local_batch_size"] == 8
    assert piped["parallelism"]["pipeline_parallel_microbatch_size"] == 2


@pytest.mark.parametrize(
    ("plan", "mode"),
    [
        ({"recompute": "none"}, {"mode": "none"}),
        ({"recompute": "full"}, {"mode": "full"}),
        ({"recompute": "selective"}, {"mode": "selective", "selective_ac_option": "op"}),
        ({"recompute": "full", "recompute_every": 2}, {"mode": "selective", "selective_ac_option": "2"}),
    ],
)
def test_torchtitan_recomputes_what_the_plan_does(plan: dict[str, Any], mode: dict[str, str]) -> None:
    assert job(step(sharding="fsdp", **plan))["activation_checkpoint"] == mode


@pytest.mark.parametrize(
    ("sharding", "flag"),
    [
        ("zero-1", "--use-distributed-optimizer"),
        ("zero-2", "--data-parallel-sharding-strategy optim_grads --"),
        ("zero-3", "--data-parallel-sharding-strategy optim_grads_params --"),
        ("fsdp", "--data-parallel-sharding-strategy optim_grads_params --"),
    ],
)
def test_megatron_shares_what_the_plan_does(sharding: str, flag: str) -> None:
    found = step(sharding=sharding)
    assert flag in flags(found)
    assert not unsaid(found, load_model(MODEL), "megatron-core")


def test_a_plan_of_the_software_itself_is_said_in_full() -> None:
    model = load_model(MODEL)
    assert not comment(step(software="megatron-core", tp=2), model, "megatron-core")
    assert not comment(step(software="torchtitan"), model, "torchtitan")
    # How Megatron-core lays out its buffers is no choice of the plan; that it shards states is.
    assert unsaid(step(software="megatron-core"), model, "torchtitan") == {"data.sharding": "zero-1"}


def test_what_flags_do_not_say_is_named() -> None:
    model, found = load_model(MODEL), step(lora={"rank": 8}, optimizer="sgd", precision="fp8")
    assert comment(found, model, "megatron-core") == [
        "# Of the plan these settings do not say: optimizer sgd, lora.rank 8, lora.targets qkv+out+up+down"
    ]
    assert {"numbers.compute", "lora.rank"} <= set(unsaid(found, model, "torchtitan"))
    assert "# Of the plan these settings do not say" in "\n".join(torchtitan(found, model))
    halves = step(sharding="hsdp", data={"shard": 4})
    assert unsaid(halves, model, "megatron-core") == {"data.sharding": "hsdp", "data.shard": 4}
    assert not unsaid(halves, model, "torchtitan")
