"""Bounds of steps: never above what the simulator says, near it for dense models, the same compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError, StuckError
from armillary.explore.search.bound import StepBound
from armillary.explore.search.pipeline_kernel import T_LIST, T_PARENT, T_RANK, TASK_COLUMNS
from armillary.explore.search.timetable import timetable
from armillary.platform.collectives import FitChoice
from armillary.platform.kernels import Compute, Jitter, Kernels, Terms
from armillary.platform.memory import LocalMemory, RemoteMemory
from armillary.platform.model import Collectives, Npu, Platform
from armillary.platform.network import Dimension
from armillary.workload.generate import generate
from armillary.workload.models.decoder_parts import Attention, Experts, Mlp
from armillary.workload.models.schema import Decoder, Model
from armillary.workload.pipeline.tasks import tasks
from armillary.workload.plan.schema import Plan

TINY = Decoder(
    name="tiny", layers=4, hidden=64, vocabulary=512, context=32, tied=True, norm="rms", activation="swiglu",
    attention=Attention(heads=8, kv_heads=4), mlp=Mlp(size=128),
)  # fmt: skip
MIXED = TINY.model_copy(update={"tied": False, "experts": Experts(count=8, top_k=2, size=32, dense_first=1)})
TOPOLOGIES = ("Ring", "FullyConnected", "Switch", "Mesh", "Torus")


def of(draw: Any, *choices: Any) -> Any:
    return draw(st.sampled_from(choices))


@st.composite
def machines(draw: Any) -> Platform:
    """Machines of 8 NPUs in one to three dimensions."""
    sizes = of(draw, (8,), (2, 4), (4, 2), (2, 2, 2))
    dimensions = tuple(
        Dimension(
            f"d{i}", of(draw, *TOPOLOGIES), size, of(draw, 0.5, 7.3, 100.0), of(draw, 0.0, 33.0, 1000.0)
        )
        for i, size in enumerate(sizes)
    )
    ranks = st.integers(0, 7)
    npu = Npu(
        of(draw, 1e11, 1e12, 1e14),
        LocalMemory(of(draw, 10.0, 1e4)),
        of(draw, 0.0, 5.5),
        draw(st.dictionaries(ranks, st.sampled_from([0.5, 0.9, 1.3]), max_size=2)),
    )
    collectives = Collectives(
        chunks=of(draw, 1, 3, 16),
        chunk_order=of(draw, "baseline", "baseline", "themis", "themis-flex", "online-greedy", "round-robin"),
        fit=of(draw, None, None, FitChoice("a100-sxm"), FitChoice("h100-sxm")),
    )
    return Platform(
        dimensions,
        npu,
        Compute("roofline", kernels=Kernels(0.7, 0.8, of(draw, 0.0, 250.0))),
        collectives,
        RemoteMemory("per-npu", bandwidth=of(draw, 1, 100)),
        scheduling=of(draw, "fair", "fifo", "lifo"),
        stragglers=draw(st.dictionaries(ranks, st.sampled_from([7.0, 5e4]), max_size=2)),
        jitter=of(draw, None, None, None, Jitter(0.1, 1)),
        terms=of(draw, Terms(), Terms(0.1, 0.2, 0.1, 50.0, 0.02, 10.0, 0.01)),
    )


@st.composite
def plans(draw: Any) -> dict[str, Any]:
    """Plans of 8 ranks; some are impossible."""
    pp = of(draw, 1, 1, 2, 4)
    tp = draw(st.sampled_from([1, 2, 4][: 4 - pp.bit_length()]))
    cp = of(draw, 1, 1, 2) if tp * pp < 8 else 1
    schedule = of(draw, "1f1b", "gpipe", "zero-bubble", "interleaved", "interleaved", "pipedream")
    sharding = of(draw, "ddp", "zero-1", "zero-2", "fsdp", "zero-3", "hsdp")
    if schedule == "pipedream":
        sharding = "ddp"
    moe = of(draw, {}, {"ep": 2}, {"ep": 4}, {"ep": 2, "etp": 1})
    data = {
        "sharding": sharding, "overlap": of(draw, True, True, False), "bucket": of(draw, "1000 B", "40 kB", "25 MiB"),
        "prefetch": of(draw, 0, 1, 3), "limit": of(draw, 1, 2, 4), "reshard": of(draw, True, True, False),
        "copies": of(draw, False, True),
    }  # fmt: skip
    if sharding == "hsdp":
        data["shard"] = of(draw, 1, 2)
    return {
        "ranks": 8,
        "batch": of(draw, 32, 64),
        "microbatch": of(draw, 1, 2),
        "iterations": of(draw, 1, 1, 2),
        "parallel": {
            "tp": tp, "pp": pp, "cp": cp, **moe, "sequence": of(draw, True, False),
            "context": of(draw, "ring", "all-gather"),
            "order": of(draw, "tp-cp-ep-dp-pp", "pp-tp-cp-ep-dp"),
        },
        "pipeline": {
            "schedule": schedule, "virtual": 2 if schedule == "interleaved" and pp == 2 else 1,
            "overlap": of(draw, False, False, True),
        },
        "data": data,
        "recompute": of(draw, "none", "selective", "full"),
        "optimizer": of(draw, "adam", "sgd", "none"),
        "offload": of(draw, {}, {}, {"activations": 0.5, "optimizer": 1.0}),
        "experts": {"skew": of(draw, 0.0, 0.0, 1.0) if moe else 0.0},
    }  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(machines(), plans())
def test_no_run_beats_the_bound(platform: Platform, wish: dict[str, Any]) -> None:
    model: Model = MIXED if "ep" in wish["parallel"] else TINY
    try:
        plan = Plan.model_validate(wish)
        trace = generate(model, plan)
    except InputError as error:
        with pytest.raises(InputError):
            StepBound(platform).ticks(model, Plan.model_validate(wish))
        assert str(error)
        return
    least = StepBound(platform, "interpreted").ticks(model, plan)
    try:
        result = armillary.simulate(trace, platform)
    except StuckError:
        # Tasks side by side call one communicator in the order in which each rank comes to it.
        uneven = platform.npu.speed or platform.stragglers or platform.jitter
        assert plan.pipeline.overlap and (uneven or plan.experts.skew)
        return
    assert least <= result.total_ticks
    assert least > 0 or platform.jitter


@settings(max_examples=25, deadline=None)
@given(st.lists(plans(), min_size=2, max_size=4), st.data())
def test_what_was_asked_before_changes_no_bound(wishes: list[dict[str, Any]], data: Any) -> None:
    """What a bound keeps for later plans depends on all that these may differ in."""
    bound = StepBound(switch(8), "interpreted")
    for wish in wishes:
        also = {"early_stop": data.draw(st.booleans()), "numbers": {"compute": of(data.draw, "bf16", "fp8")}}
        experts = {"domain": of(data.draw, None, 2, 4), "dispatch": of(data.draw, None, "fp8")}
        model = MIXED if "ep" in wish["parallel"] else TINY
        try:
            plan = Plan.model_validate(wish | also | {"experts": wish["experts"] | experts})
            alone = StepBound(switch(8), "interpreted").ticks(model, plan)
        except InputError:
            continue
        assert bound.ticks(model, plan) == alone


def switch(npus: int) -> Platform:
    """NPUs on one switch, with an A100's numbers."""
    npu = Npu(312e12, LocalMemory(2039.0))
    return Platform((Dimension("switch", "Switch", npus, 300.0, 700.0),), npu, Compute("roofline"))


DENSE = TINY.model_copy(update={"layers": 8, "hidden": 2048, "context": 1024, "mlp": Mlp(size=8192)})
TIGHT: dict[str, dict[str, Any]] = {
    "ddp": {},
    "tp": {"parallel": {"tp": 4}},
    "1f1b": {"parallel": {"pp": 4}},
    "interleaved": {"parallel": {"pp": 2}, "pipeline": {"schedule": "interleaved", "virtual": 2}},
    "zero-bubble": {"parallel": {"pp": 4}, "pipeline": {"schedule": "zero-bubble"}},
    "gpipe": {"parallel": {"tp": 2, "pp": 2}, "pipeline": {"schedule": "gpipe"}, "recompute": "full"},
    "fsdp": {"data": {"sharding": "fsdp"}},
    "zero-1": {"parallel": {"tp": 2}, "data": {"sharding": "zero-1"}},
    "zero-2": {"data": {"sharding": "zero-2"}},
    "ring": {"parallel": {"cp": 2}},
}


@pytest.mark.parametrize("name", TIGHT)
def test_dense_models_come_near_it(name: str) -> None:
    plan = Plan.model_validate({"ranks": 8, "batch": 64} | TIGHT[name])
    machine = switch(8)
    least = StepBound(machine).ticks(DENSE, plan)
    took = armillary.simulate(generate(DENSE, plan), machine).total_ticks
    assert 0.95 * took <= least <= took
    assert StepBound(machine, "compiled").ticks(DENSE, plan) == least


def test_what_is_not_known_has_a_weaker_bound() -> None:
    machine = switch(8)
    plan = Plan(ranks=8, batch=64)
    whole = StepBound(machine).ticks(DENSE, plan)
    shaky = replace(machine, jitter=Jitter(0.1))
    assert 0 < StepBound(shaky).ticks(DENSE, plan) < whole / 2
    served = Plan.model_validate({"ranks": 8, "batch": 64, "serve": {"prompt": 8, "outputs": 2}})
    assert StepBound(machine).ticks(DENSE, served) == 0


@pytest.mark.parametrize(
    ("schedule", "stages", "virtual", "count"),
    [
        ("1f1b", 4, 1, 6),
        ("gpipe", 3, 1, 2),
        ("zero-bubble", 4, 1, 8),
        ("interleaved", 2, 3, 4),
        ("1f1b", 1, 1, 3),
    ],
)
def test_a_timetable_has_every_task_after_what_it_needs(
    schedule: str, stages: int, virtual: int, count: int
) -> None:
    table = timetable(schedule, stages, virtual, count)
    rows = table.tasks.reshape(-1, TASK_COLUMNS)
    orders = tasks(schedule, stages, virtual, count)
    assert len(rows) == sum(map(len, orders))
    assert (rows[:, T_PARENT] < np.arange(len(rows))).all()
    for rank in range(stages):
        own = table.own[table.own_ptr[rank] : table.own_ptr[rank + 1]]
        assert (np.diff(own) > 0).all()
        assert (rows[own, T_RANK] == rank).all()
        assert [row // 4 // stages for row in rows[own, T_LIST]] == [task.chunk for task in orders[rank]]
    first = [task.kind == "F" and task.chunk == 0 for task in orders[0]]
    weights = sum(task.kind == "W" for order in orders for task in order)
    assert (rows[:, T_PARENT] < 0).sum() == sum(first) + weights
