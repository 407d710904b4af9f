"""Bounds of steps: never above what the simulator says, near it for dense models, the same compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.errors import InputError
from armillary.platform import load_platform
from armillary.platform.model import (
    Algorithm,
    Dimension,
    Jitter,
    Kernels,
    Physical,
    Platform,
    RemoteMemory,
    System,
)
from armillary.platform.profiles import with_roofline
from armillary.study.search.bound import StepBound
from armillary.study.search.timetable import timetable
from armillary.workload.generate import generate
from armillary.workload.models import load_model
from armillary.workload.models.schema import Attention, Decoder, Experts, Mlp, Model
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
    physical = Physical(
        scheduling=of(draw, "fair", "fifo", "lifo"),
        chunks=of(draw, 1, 3, 16),
        speed=draw(st.dictionaries(ranks, st.sampled_from([0.5, 0.9, 1.3]), max_size=2)),
        delay=draw(st.dictionaries(ranks, st.sampled_from([7.0, 5e4]), max_size=2)),
        jitter=of(draw, None, None, None, Jitter(0.1, 1)),
        endpoint_delay=of(draw, 0.0, 5.5),
        kernels=Kernels(compute=0.7, memory=0.8, overhead=of(draw, 0.0, 250.0)),
        chunk_order=of(draw, "baseline", "baseline", "themis", "themis-flex", "online-greedy", "round-robin"),
    )
    system = System(
        roofline=True, peak_performance=of(draw, 1e11, 1e12, 1e14), local_mem_bandwidth=of(draw, 1e10, 1e13)
    )
    return Platform(dimensions, system, physical, RemoteMemory("per-npu", bandwidth=of(draw, 1, 100)))


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
        "pipeline": {"schedule": schedule, "virtual": 2 if schedule == "interleaved" and pp == 2 else 1},
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
    assert 0 < least <= armillary.simulate(trace, platform).total_ticks
