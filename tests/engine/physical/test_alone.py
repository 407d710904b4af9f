"""Lone collectives that run as nodes of fixed duration, and kernels that run on, against the event loop alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.jit import Mode
from armillary.engine.common.lowered import Run
from armillary.engine.physical import alone as lone
from armillary.engine.physical import layout as lk
from armillary.engine.physical import program as programs
from armillary.engine.physical.lower import lower
from armillary.engine.physical.program import PhysicalProgram, execute
from armillary.platform.model import Platform
from armillary.trace import GraphBuilder, Trace
from armillary.workload.generate import generate
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

from .programs import Case, cases
from .test_placed import MACHINE, MODEL, plans

TABLES = (
    "NODE_START", "NODE_END", "FINISH", "LEFT", "ITEM_INSTANCE", "ORDINALS", "CHUNK_BATCH_START", "CHUNK_BATCH_RATE",
)  # fmt: skip


def check(program: PhysicalProgram, mode: Mode = "interpreted") -> lone.Alone | None:
    """Compare what both leave behind; returns what was found to be alone."""
    with patch.object(programs, "alone", return_value=None):
        expected = execute(program, mode)
    with patch.object(lone, "LEAST_SHARE", 0):
        found, alone = execute(program, mode), lone.alone(program)
    for name in TABLES:
        np.testing.assert_array_equal(found.table(name), expected.table(name), name)
    assert found.scalar(lk.V_EVENTS) == expected.scalar(lk.V_EVENTS)
    return alone


@settings(deadline=None, max_examples=60)
@given(cases(), st.sampled_from([1, 3, 16]), st.booleans())
def test_any_program(case: Case, chunks: int, fold: bool) -> None:
    collectives = replace(case.platform.collectives, chunks=chunks)
    if collectives.chunk_order in ("auto", "optimal"):
        collectives = replace(collectives, chunk_order="baseline")
    check(lower(case.trace(), replace(case.platform, collectives=collectives), fold_ranks=fold))


@settings(deadline=None, max_examples=10)
@given(st.data())
def test_generated_workloads(data: st.DataObject) -> None:
    trace = generate(Decoder.model_validate(MODEL), data.draw(plans()))
    check(lower(trace, armillary.load_platform(MACHINE)), "compiled")


def test_most_collectives_of_tensor_parallelism_are_alone() -> None:
    plan = {"ranks": 16, "batch": 64, "sequence": 32, "parallel": {"tp": 4, "pp": 2}}
    trace = generate(Decoder.model_validate(MODEL), Plan.model_validate(plan))
    found = check(lower(trace, armillary.load_platform(MACHINE)))
    assert found is not None
    # Not those over replicas, which divide their ports with messages of the pipeline.
    assert 0.5 < found.lone.mean() < 1


@pytest.mark.parametrize("micros", [1, 1000])
def test_what_meets_after_all_runs_again(micros: int) -> None:
    """A call on another stream comes after all others in the program, and waits for a kernel only."""
    b = GraphBuilder()
    early = b.compute("k", duration_micros=micros)
    last = b.all_reduce("a", size=1_000_000)
    for _ in range(5):
        last = b.all_reduce("a", size=1_000_000, after=[last])
    b.all_reduce("late", size=1_000_000, after=[early])
    b.nodes[-1].attrs.append(("stream", "int32", 7))
    trace = Trace.replicate(b.graph(), ranks=4)
    platform = armillary.load_platform(
        {"network": [{"topology": "Switch", "size": 4, "bandwidth": "10 GB/s", "latency": "1 us"}]}
    )
    program = lower(trace, platform)
    found = check(program)
    assert found is not None
    run: Run = programs._execute(program, found.tables, "interpreted")
    assert found.is_true(run) == (micros == 1000)


def test_a_kernel_that_becomes_free_meanwhile_comes_between() -> None:
    """Kernels follow each other; one of a lower number, which waits for the CPU, takes its turn when it is free."""
    b = GraphBuilder()
    cpu = b.compute("cpu", duration_micros=5, cpu=True)
    between = b.compute("between", duration_micros=1, after=[cpu])
    last = b.compute("k", duration_micros=2)
    for _ in range(6):
        last = b.compute("k", duration_micros=2, after=[last])
    platform: Platform = armillary.load_platform(
        {"network": [{"topology": "Ring", "size": 2, "bandwidth": "1 GB/s", "latency": "1 us"}]}
    )
    program = lower(Trace.replicate(b.graph(), ranks=2), platform)
    run = execute(program, "interpreted")
    start: Any = dict(zip(b.graph().ids.tolist(), run.table("NODE_START").tolist(), strict=True))
    assert start[between] == 6000
    assert run.table("FINISH").tolist() == [15_000]
