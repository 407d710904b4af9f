"""Computation and communication that slow each other: by definition, folded or not, and against plain sets of ticks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.engine.common.result import timeline_of
from armillary.engine.common.timeline import Timeline
from armillary.engine.physical import layout as lk
from armillary.engine.physical.lower import lower
from armillary.engine.physical.program import execute
from armillary.engine.physical.terms.overlap import measure, parts, settle
from armillary.platform.collectives import FitChoice
from armillary.platform.kernels import Terms
from armillary.platform.model import Platform
from armillary.platform.network import Dimension, Port
from armillary.report import bound
from armillary.trace import CollectiveType, GraphBuilder, Trace
from tests.engine.physical.programs import Case, cases
from tests.engine.physical.terms.slow import settle_slowly

Spans = list[tuple[int, int]]


def machine(terms: Terms, npus: int = 4) -> Platform:
    dimension = Dimension("d", "Switch", npus, 10.0, 100.0, Port(10.0, 10.0))
    return Platform((dimension,), terms=terms)


def beside(kernels_us: int, size: int, terms: Terms) -> Timeline:
    """One kernel beside one collective."""
    b = GraphBuilder()
    b.compute("k", duration_micros=kernels_us)
    b.collective("c", CollectiveType.ALL_REDUCE, size)
    return armillary.simulate(Trace.replicate(b.graph("r"), 4), machine(terms))


def test_what_is_covered_takes_the_share_longer() -> None:
    timeline = beside(100, 10_000_000, Terms(overlap_compute=0.15))
    assert timeline.node_end[0] == pytest.approx(115_000, abs=1)
    alone = beside(1, 1_000_000, Terms())
    slowed = beside(1000, 1_000_000, Terms(overlap_communication=0.3))
    assert slowed.node_end[1] == pytest.approx(1.3 * alone.node_end[1], rel=1e-4)


def test_a_kernel_that_outlasts_the_collective_is_slowed_for_so_long() -> None:
    timeline = beside(1000, 1_000_000, Terms(overlap_compute=0.5))
    began, ended = timeline.phase_start.min(), timeline.node_end[1]
    # Of the time beside the collective a third is lost.
    assert timeline.node_end[0] == pytest.approx(1_000_000 + (ended - began) / 3, rel=1e-3)


def test_what_does_not_overlap_is_as_before() -> None:
    b = GraphBuilder()
    first = b.compute("k", duration_micros=5)
    b.collective("c", CollectiveType.ALL_REDUCE, 1000, after=[first])
    trace = Trace.replicate(b.graph("r"), 4)
    terms = Terms(overlap_compute=0.5, overlap_communication=0.5)
    assert (
        armillary.simulate(trace, machine(terms)).total_ticks
        == armillary.simulate(trace, machine(Terms())).total_ticks
    )


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=6),
       st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=6))  # fmt: skip
def test_parts_are_those_of_sets_of_ticks(mine: Spans, others: Spans) -> None:
    covered = {tick for start, took in others for tick in range(start, start + took)}
    expected = [
        len(covered & set(range(start, start + took))) / took if took else 0.0 for start, took in mine
    ]
    a, b = (np.array(rows, np.int64).reshape(-1, 2) for rows in (mine, others))
    assert parts(a[:, 0], a.sum(axis=1), b[:, 0], b.sum(axis=1)).tolist() == expected


@settings(deadline=None, max_examples=30)
@given(cases())
def test_a_collective_is_as_slow_as_its_slowest_member(case: Case) -> None:
    program = lower(case.trace(), case.platform, fold_ranks=False)
    run = execute(program)
    timeline = timeline_of(program, run, case.platform, {})
    nodes, items = measure(program, timeline, run)
    assert ((nodes >= 0) & (nodes <= 1)).all()
    assert ((items >= 0) & (items <= 1)).all()
    instance = run.table("ITEM_INSTANCE")
    by: dict[tuple[int, int], set[float]] = {}
    for at in np.flatnonzero(program.is_collective).tolist():
        by.setdefault((int(program.items[at, lk.I_COMM]), int(instance[at])), set()).add(float(items[at]))
    assert all(len(found) == 1 for found in by.values())


@settings(deadline=None, max_examples=60)
@given(cases(), st.sampled_from([(0.15, 0.3), (0.378, 0.0), (0.0, 1.0)]))
def test_folded_is_unfolded_and_no_run_beats_its_bound(case: Case, shares: tuple[float, float]) -> None:
    terms = Terms(overlap_compute=shares[0], overlap_communication=shares[1], step_time=12.5, step_share=0.01)
    platform = replace(case.platform, terms=terms)
    folded, plain = (armillary.simulate(case.trace(), platform, fold=fold) for fold in (True, False))
    assert folded.finish_ticks.tolist() == plain.finish_ticks.tolist()
    for rank in range(case.platform.npus):
        one, other = (t.spans(int(t.rank_class[rank])) for t in (folded, plain))
        assert (one[0] == other[0]).all()
        assert (one[1] == other[1]).all()
    assert bound(folded).ticks <= folded.total_ticks
    assert folded.info["warnings"] == plain.info["warnings"]


def test_a_round_in_which_collectives_no_longer_match_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    b = GraphBuilder()
    b.compute("k", duration_micros=100)
    b.collective("c", CollectiveType.ALL_REDUCE, 1_000_000)
    trace, alone = Trace.replicate(b.graph("r"), 4), machine(Terms())
    program = lower(trace, alone)
    run, broken = execute(program), execute(program)
    broken.state[lk.V_STATUS] = lk.MISMATCH
    monkeypatch.setattr("armillary.engine.physical.terms.overlap.execute", lambda _: broken)
    found, done = settle(program, run, machine(Terms(overlap_compute=0.5)))
    assert done is run
    assert "round 0 of 3" in found.warnings[-1]


@settings(deadline=None, max_examples=60)
@given(cases(), st.sampled_from([0.15, 0.378, 1.0]), st.booleans())
def test_kernels_beside_collectives_are_those_of_the_reference(
    case: Case, share: float, fitted: bool
) -> None:
    fit = FitChoice("a100-sxm") if fitted else None
    collectives = replace(case.platform.collectives, fit=fit)
    platform = replace(case.platform, collectives=collectives, terms=Terms(overlap_compute=share))
    assert armillary.simulate(case.trace(), platform).finish_ticks.tolist() == settle_slowly(
        case.trace(), platform
    )


@settings(deadline=None, max_examples=60)
@given(cases(), st.sampled_from([0.0, 0.2]), st.sampled_from([0, 20]), st.sampled_from([0.0, 2.5, 60.0]))
def test_what_collectives_take_of_a_device_is_that_of_the_reference_folded_or_not(
    case: Case, share: float, processors: int, traffic: float
) -> None:
    collectives = replace(case.platform.collectives, fit=FitChoice("a100-sxm"))
    npu = case.platform.npu
    if not (npu.memory.bandwidth and npu.peak_flops):
        npu = replace(npu, memory=replace(npu.memory, bandwidth=50.0), peak=1e13)
    compute = replace(case.platform.compute, model="") if case.platform.compute.model == "gpu" else None
    terms = Terms(overlap_compute=share, overlap_processors=processors, overlap_traffic=traffic)
    platform = replace(
        case.platform, collectives=collectives, npu=npu, compute=compute or case.platform.compute, terms=terms
    )
    folded, plain = (armillary.simulate(case.trace(), platform, fold=fold) for fold in (True, False))
    assert (
        folded.finish_ticks.tolist() == plain.finish_ticks.tolist() == settle_slowly(case.trace(), platform)
    )
