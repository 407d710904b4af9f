"""What collectives take of a device: processors from GEMMs, bandwidth from what the memory bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.collective.fitted import load_fit
from armillary.engine.physical.terms.resources import MOST, WHOLE, lacked
from armillary.platform.collectives import FitChoice
from armillary.platform.kernels import Terms
from armillary.platform.memory import LocalMemory
from armillary.platform.model import Collectives, Npu, Platform
from armillary.platform.network import Dimension, Port
from armillary.trace import CollectiveType, GraphBuilder, Trace

SHEET = load_fit("a100-sxm").sheet
PLAIN = Platform(
    (Dimension("d", "Switch", 4, 10.0, 100.0, Port(10.0, 10.0)),),
    npu=Npu(peak=1e15, memory=LocalMemory(bandwidth=100.0)),
    collectives=Collectives(fit=FitChoice("a100-sxm")),
)


def ends(terms: Terms, size: int = 1 << 30, calls: int = 1, **work: int) -> tuple[int, int, int]:
    """Return start of the transfer and end of a collective, and end of a kernel beside it."""
    b = GraphBuilder()
    b.compute("k", duration_micros=100, **work)
    for stream in range(calls):
        b.collective("c", CollectiveType.ALL_REDUCE, size)
        b.nodes[-1].attrs.append(("stream", "int32", stream))
    timeline = armillary.simulate(Trace.replicate(b.graph("r"), 4), replace(PLAIN, terms=terms))
    return int(timeline.phase_start.min()), int(timeline.node_end[1]), int(timeline.node_end[0])


COMPUTES: dict[str, Any] = {"flops": 10**12, "bytes": 10}
MOVES: dict[str, Any] = {"flops": 10, "bytes": 10**9}


def test_a_gemm_lacks_the_processors_of_the_collective() -> None:
    terms = Terms(overlap_processors=24, overlap_traffic=2.5)
    assert ends(terms, **COMPUTES)[2] == pytest.approx(100_000 / (1 - 24 / SHEET.processors), rel=1e-3)


def test_a_kernel_bound_by_memory_lacks_the_bandwidth_of_the_collective() -> None:
    begun, ended, _ = ends(Terms(), **MOVES)
    bus = 2 * 3 / 4 * (1 << 30) / (ended - begun)
    terms = Terms(overlap_processors=24, overlap_traffic=0.25)
    assert ends(terms, **MOVES)[2] == pytest.approx(100_000 / (1 - 0.25 * bus / 100.0), rel=1e-3)


def test_what_takes_place_elsewhere_or_names_no_work() -> None:
    assert (
        ends(Terms(overlap_processors=24), **MOVES)[2]
        == ends(Terms(overlap_traffic=2.5), **COMPUTES)[2]
        == 100_000
    )
    assert ends(Terms(overlap_processors=24))[2] > 100_000


def test_what_several_take_adds_up_and_leaves_something() -> None:
    one, two = (ends(Terms(overlap_processors=24), calls=calls, **COMPUTES)[2] for calls in (1, 2))
    assert (1 - 100_000 / two) == pytest.approx(2 * (1 - 100_000 / one), rel=1e-3)
    most = ends(Terms(overlap_processors=100), calls=3, **COMPUTES)[2]
    assert most == pytest.approx(100_000 / (1 - MOST / WHOLE), rel=1e-3)


Spans = list[tuple[int, int, int]]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=6),
       st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9), st.integers(0, WHOLE)), max_size=6))  # fmt: skip
def test_shares_are_those_of_single_ticks(mine: list[tuple[int, int]], others: Spans) -> None:
    taken = [min(sum(units for s, took, units in others if s <= t < s + took), MOST) for t in range(60)]
    expected = [sum(taken[s : s + took]) / (took * WHOLE) if took else 0.0 for s, took in mine]
    a, b = np.array(mine, np.int64).reshape(-1, 2), np.array(others, np.int64).reshape(-1, 3)
    found = lacked(a[:, 0], a.sum(axis=1), b[:, 0], b[:, 0] + b[:, 1], b[:, 2])
    assert found.tolist() == expected


def test_what_the_machine_must_say() -> None:
    for terms, platform, message in (
        (
            Terms(overlap_processors=8),
            replace(PLAIN, collectives=Collectives()),
            "compute.model gpu or collectives.fit",
        ),
        (Terms(overlap_processors=108), PLAIN, "less than the 108 processors"),
        (Terms(overlap_traffic=2.0), replace(PLAIN, npu=Npu()), "npu.memory.bandwidth and npu.peak"),
    ):
        trace = Trace.replicate(GraphBuilder().graph("r"), 4)
        with pytest.raises(InputError, match=message):
            armillary.simulate(trace, replace(platform, terms=terms))
