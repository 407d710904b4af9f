"""Chunks that run as a chunk batch against the same chunks one by one: every column of the timeline is the same."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.jit import Mode
from armillary.engine.common.lowered import Run
from armillary.engine.common.result import timeline_of
from armillary.engine.common.timeline import Timeline
from armillary.engine.physical.lower import lower
from armillary.engine.physical.plans import Plans
from armillary.engine.physical.program import PhysicalProgram, execute
from armillary.platform.kernels import Compute
from armillary.platform.memory import LocalMemory
from armillary.platform.model import Collectives, Npu, Platform
from armillary.platform.network import Dimension, Port
from armillary.trace import GraphBuilder, Trace
from armillary.workload.generate import generate
from armillary.workload.models import load_model
from armillary.workload.plan.schema import Plan

from .programs import Case, cases


def simulated(
    trace: Trace, platform: Platform, chunk_batches: bool, mode: Mode | None = None
) -> tuple[PhysicalProgram, Run, Timeline]:
    """Simulate with chunk batches, or every chunk on its own."""
    with nullcontext() if chunk_batches else patch.object(Plans, "is_chunk_batch", return_value=False):
        program = lower(trace, platform)
    run = execute(program, mode)
    return program, run, timeline_of(program, run, platform, {})


def check(trace: Trace, platform: Platform, mode: Mode | None = None) -> tuple[PhysicalProgram, Run]:
    """Compare all columns of both; returns what ran with chunk batches."""
    program, run, fast = simulated(trace, platform, True, mode)
    slow = simulated(trace, platform, False, mode)[2]
    for field in fields(Timeline):
        if field.name not in ("graphs", "info", "network"):
            np.testing.assert_array_equal(getattr(fast, field.name), getattr(slow, field.name), field.name)
    return program, run


@settings(deadline=None, max_examples=50)
@given(cases(), st.sampled_from([2, 7, 64]))
def test_any_program_has_the_same_phases(case: Case, chunks: int) -> None:
    collectives = replace(case.platform.collectives, chunks=chunks)
    if collectives.chunk_order in ("auto", "optimal"):
        collectives = replace(collectives, chunk_order="baseline")
    check(case.trace(), replace(case.platform, collectives=collectives), "interpreted")


def meeting(late: int) -> Trace:
    """Collectives that meet on one port, of sizes that no number of chunks divides."""
    b = GraphBuilder()
    first = b.reduce_scatter("a", size=1_000_003)
    wait = b.compute("k", duration_micros=late)
    b.all_reduce("b", size=333_335, after=[wait])
    b.nodes[-1].attrs.append(("stream", "int32", 7))
    b.all_gather("c", size=5, after=[first])
    return Trace.replicate(b.graph(), ranks=6)


@pytest.mark.parametrize("scheduling", ["fair", "fifo", "lifo"])
@pytest.mark.parametrize("late", [1, 30, 90])
def test_a_rate_that_changes_within_a_chunk_batch_is_seen(scheduling: Any, late: int) -> None:
    """With a slow memory a bigger chunk is reduced later than the smaller one behind it."""
    for memory in (0.0, 2e9, 1e4):
        platform = Platform(
            (Dimension("d", "Ring", 6, 10.0, 100.0, Port(10.0, 7.3)),),
            npu=Npu(memory=LocalMemory(memory / 1e9)),
            collectives=Collectives(chunks=16),
            scheduling=scheduling,
        )
        program, run = check(meeting(late), platform)
        assert all(plan.chunk_batch for plan in program.plans)
        if memory < 1e9 and late == 30:
            # Of chunk batches that met, what the rate was is not kept: their rows were written.
            assert (run.table("CHUNK_BATCH_RATE")[program.is_collective] == 0).any()


PLANS: list[dict[str, Any]] = [
    {"parallel": {"tp": 2, "pp": 2}, "data": {"sharding": "fsdp"}},
    {"parallel": {"tp": 2, "pp": 2}, "pipeline": {"schedule": "interleaved", "virtual": 2}, "recompute": "full"},
    {"parallel": {"tp": 2, "pp": 2}, "pipeline": {"schedule": "zero-bubble"}, "data": {"sharding": "zero-1"}},
    {"parallel": {"tp": 2, "cp": 2, "pp": 2}, "data": {"sharding": "ddp"}},
    {"parallel": {"tp": 4}, "serve": {"prompt": 64, "outputs": 3}, "batch": 4},
]  # fmt: skip
MODEL = """
kind: decoder
name: small
layers: 4
hidden: 256
vocabulary: 1000
context: 128
tied: false
norm: rms
activation: swiglu
attention: {heads: 8}
mlp: {size: 512}
"""


@pytest.mark.parametrize("plan", PLANS)
def test_workloads_have_the_same_phases(plan: dict[str, Any], tmp_path: Any) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(MODEL)
    made = Plan.model_validate({"ranks": 16, "batch": 32, **plan})
    platform = Platform(
        (
            Dimension("node", "Switch", 4, 100.0, 500.0, Port(100.0, 100.0)),
            Dimension("fabric", "Switch", 4, 10.0, 2000.0, Port(10.0, 10.0)),
        ),
        npu=Npu(peak=1e14, memory=LocalMemory(1000.0)),
        compute=Compute(model="roofline"),
        collectives=Collectives(chunks=64),
    )
    program, _ = check(generate(load_model(str(path)), made), platform, "compiled")
    assert any(plan.chunk_batch for plan in program.plans)
