"""Chunk batches alone on their ports, and kernels that run on, against the event loop without these."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.jit import Mode, is_checking, load
from armillary.engine.common.lowered import Run
from armillary.engine.physical import layout as lk
from armillary.engine.physical.lower import lower
from armillary.engine.physical.program import PhysicalProgram, execute
from armillary.platform.model import Platform
from armillary.trace import GraphBuilder, Trace
from armillary.workload.generate import generate
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan

from .programs import Case, cases
from .test_placed import MACHINE, MODEL, plans

BATCHES = "armillary.engine.physical.batch_kernel"
TABLES = (
    "NODE_START", "NODE_END", "FINISH", "LEFT", "ITEM_INSTANCE", "ORDINALS", "CHUNK_BATCH_START", "CHUNK_BATCH_RATE",
    "ROW_START", "ROW_END", "PORT_COUNT",
)  # fmt: skip


def without(program: PhysicalProgram) -> Run:
    """Run a program in which no chunk batch is alone."""
    with patch.object(load(BATCHES, "interpreted"), "may_be_alone", return_value=False):
        return execute(program, "interpreted")


def check(program: PhysicalProgram, mode: Mode = "interpreted") -> Run:
    """Compare what both leave behind."""
    expected, found = without(program), execute(program, mode)
    for name in TABLES:
        np.testing.assert_array_equal(found.table(name), expected.table(name), name)
    # Where there is as little room as asked for, void events are dropped earlier, and not counted.
    if not is_checking():
        assert found.scalar(lk.V_EVENTS) == expected.scalar(lk.V_EVENTS)
    return found


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


def test_most_collectives_of_tensor_parallelism_take_one_event() -> None:
    plan = {"ranks": 16, "batch": 64, "sequence": 32, "parallel": {"tp": 4, "pp": 2}}
    trace = generate(Decoder.model_validate(MODEL), Plan.model_validate(plan))
    program = lower(trace, armillary.load_platform(MACHINE))
    made, plain = check(program).scalar(lk.V_SEQUENCE), without(program).scalar(lk.V_SEQUENCE)
    assert int(program.is_collective.sum()) / 2 < plain - made <= int(program.is_collective.sum())


@pytest.mark.parametrize("micros", [0, 1, 3, 100, 105, 106, 110, 1000])
def test_another_comes_to_the_ports(micros: int) -> None:
    """A call on another stream comes when the first starts, while it moves data, while it arrives, or later."""
    b = GraphBuilder()
    early = [b.compute("k", duration_micros=micros)] if micros else []
    last = b.all_reduce("a", size=1_000_000)
    for _ in range(2):
        last = b.all_reduce("a", size=1_000_000, after=[last])
    b.all_reduce("late", size=1_000_000, after=early)
    b.nodes[-1].attrs.append(("stream", "int32", 7))
    platform = armillary.load_platform(
        {
            "network": [{"topology": "Switch", "size": 4, "bandwidth": "10 GB/s", "latency": "1 us"}],
            "collectives": {"chunks": 4},
        }
    )
    program = lower(Trace.replicate(b.graph(), ranks=4), platform)
    run = check(program, "compiled")
    # Three calls of 153 us in a row; a fourth one beside them divides the ports.
    assert (run.table("FINISH") > 3 * 153_000).all()


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
