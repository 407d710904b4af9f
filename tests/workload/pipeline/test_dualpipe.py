"""DualPipe (DeepSeek-V3, arXiv 2412.19437, table 2): its bubble, its activations, and twice the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.workload.generate import generate, layers_of, memory_of
from armillary.workload.memory.footprint import worst
from armillary.workload.memory.peak import most_needed
from armillary.workload.models import load_model, read_model
from armillary.workload.pipeline.partition import partition
from armillary.workload.pipeline.tasks import Task, in_flight, tasks, virtual_stage
from armillary.workload.plan.schema import Plan


def end_of(stages: int, microbatches: int, times: tuple[int, int, int], *, atomic: bool) -> int:
    """Return the end of all tasks, without messages; F, B without its weights, and W take `times`.

    Args:
        stages: Pipeline ranks.
        microbatches: Of a step.
        times: Of F, B and W of a stage.
        atomic: Whether an F and the B after it of another chunk are one task, which starts when both may.
    """
    forward, backward, weight = times
    orders = [_parts(order, atomic=atomic) for order in tasks("dualpipe", stages, 1, microbatches)]
    own = [{task[1:] for part in order for task in part if task.kind == "W"} for order in orders]
    ends: dict[tuple[str, int, int, int], int] = {}
    at, now = [0] * stages, [0] * stages
    waits = True
    while waits:
        waits = False
        for rank in range(stages):
            while at[rank] < len(orders[rank]):
                part = orders[rank][at[rank]]
                starts = [now[rank]]
                for task in part:
                    place = virtual_stage("dualpipe", stages, rank, task.chunk)
                    own_end = ("F", task.microbatch, task.chunk, place)
                    before = {
                        "F": [("F", task.microbatch, task.chunk, place - 1)] if place else [],
                        "B": [own_end, *([("B", *own_end[1:3], place + 1)] if place < stages - 1 else [])],
                        "W": [],
                    }[task.kind]
                    starts += [ends.get(each, -1) for each in before]
                if min(starts) < 0:
                    break
                length = sum(
                    {"F": forward, "W": weight}.get(
                        task.kind, backward + weight * (task[1:] not in own[rank])
                    )
                    for task in part
                )
                now[rank] = max(starts) + length
                for task in part:
                    place = virtual_stage("dualpipe", stages, rank, task.chunk)
                    ends[task.kind, task.microbatch, task.chunk, place] = now[rank]
                at[rank] += 1
                waits = True
    assert all(each == len(order) for each, order in zip(at, orders, strict=True))
    return max(now)


def _parts(order: Sequence[Task], *, atomic: bool) -> list[tuple[Task, ...]]:
    found: list[tuple[Task, ...]] = []
    for task in order:
        last = found[-1] if found else ()
        if (
            atomic
            and task.kind == "B"
            and len(last) == 1
            and last[0].kind == "F"
            and last[0].chunk != task.chunk
        ):
            found[-1] = (*last, task)
        else:
            found.append((task,))
    return found


HALVES = st.integers(1, 5)


@given(HALVES, st.integers(0, 12), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_the_bubble(half: int, more: int, forward: int, back: int, weight: int) -> None:
    # As of real layers: W takes no longer than F, and B without it no less.
    stages, microbatches = 2 * half, 4 * half + 2 * more
    weight, back = min(weight, forward), max(back, forward)
    whole = microbatches * (forward + back + weight)
    # (PP / 2 - 1) (F&B + B - 3 W), where F&B is one task and B is with its weights.
    published = (half - 1) * ((forward + back + weight) + (back + weight) - 3 * weight)
    together = end_of(stages, microbatches, (forward, back, weight), atomic=True) - whole
    apart = end_of(stages, microbatches, (forward, back, weight), atomic=False) - whole
    # One after the other they send what the first makes earlier.
    assert together == published >= apart


@given(HALVES, st.integers(0, 12))
def test_every_task_once_and_activations_of_one_more_than_stages(half: int, more: int) -> None:
    stages, microbatches = 2 * half, 4 * half + 2 * more
    for order in tasks("dualpipe", stages, 1, microbatches):
        for kind in "FB":
            assert sorted(task.microbatch for task in order if task.kind == kind) == list(range(microbatches))
        assert in_flight(order, 2).sum(axis=1).max() <= stages + 1


def small() -> Any:
    return read_model(
        {
            "kind": "decoder", "name": "small", "layers": 8, "hidden": 256, "vocabulary": 512, "context": 64,
            "tied": False, "norm": "rms", "activation": "swiglu", "attention": {"heads": 8}, "mlp": {"size": 768},
        }
    )  # fmt: skip


def plan(schedule: str, sharding: str = "ddp", batch: int = 16) -> Plan:
    return Plan.model_validate(
        {
            "ranks": 8, "batch": batch, "parallel": {"pp": 4}, "pipeline": {"schedule": schedule},
            "data": {"sharding": sharding},
        }
    )  # fmt: skip


@pytest.mark.parametrize("sharding", ("ddp", "zero-1", "zero-2", "fsdp"))
def test_twice_the_weights(sharding: str) -> None:
    model = small()
    found = {}
    for schedule in ("1f1b", "dualpipe"):
        made = plan(schedule, sharding)
        stages = partition(layers_of(model, made), made)
        found[schedule] = worst(stages, made)
        assert most_needed(stages, made) == found[schedule].needed
        assert memory_of(model, made)["needed_bytes"] == found[schedule].needed
    # Of a stage of each end: with the tables of both, as every rank at an end has the first and the last stage.
    ends = [sum(each.parameters.values()) for each in layers_of(model, plan("1f1b"))]
    mine = sum(ends[:3]) + sum(ends[-3:])
    shards = 2 if sharding == "fsdp" else 1
    assert found["dualpipe"].timeline["weights"][0] == (4 if sharding == "fsdp" else 2) * mine // shards


@pytest.mark.parametrize("sharding", ("ddp", "zero-1", "fsdp"))
def test_it_runs_and_adds_up_gradients_of_both_copies(sharding: str) -> None:
    model = small()
    trace = generate(model, plan("dualpipe", sharding))
    graph = trace.graph(0)
    names = graph.names()
    assert [name for name in names if "copy" in name] == [
        "send gradients to the copy", "receive gradients of the copy", "add gradients of the copy",
    ]  # fmt: skip
    machine = {
        "network": [{"topology": "Switch", "size": 8, "bandwidth": "1 TB/s", "latency": "0 ns"}],
        "npu": {"peak": "1 TFLOP/s", "memory": {"bandwidth": "1 TB/s"}},
        "compute": {"roofline": True},
    }
    times = {
        schedule: armillary.simulate(generate(model, plan(schedule, sharding)), machine).total_ticks
        for schedule in ("1f1b", "dualpipe")
    }
    assert 0 < times["dualpipe"] < times["1f1b"]


@pytest.mark.parametrize(
    ("keys", "message"),
    (
        ({"parallel": {"pp": 3}}, "pp 3: schedule dualpipe expects an even number"),
        ({"batch": 12}, "6 microbatches: .* at least twice pp 4 .nearest: 8"),
    ),
)
def test_what_cannot_be_is_refused(keys: dict[str, Any], message: str) -> None:
    own = {"ranks": 6 if "parallel" in keys else 8, "batch": 16, "parallel": {"pp": 4}}
    with pytest.raises(InputError, match=message):
        generate(small(), Plan.model_validate({**own, **keys, "pipeline": {"schedule": "dualpipe"}}))


def test_the_preset_takes_it() -> None:
    made = Plan.model_validate(
        {
            "ranks": 32, "batch": 64, "sequence": 4096, "parallel": {"pp": 16, "ep": 2},
            "pipeline": {"schedule": "dualpipe"},
        }
    )  # fmt: skip
    assert memory_of(load_model("deepseek-v3"), made)["needed_bytes"] > 0
