"""Terms of a step: what each adds, that each only adds, and where they are refused."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.engine.physical.terms.straggler import slowest
from armillary.platform.kernels import Terms, term_words
from armillary.platform.model import Platform
from armillary.platform.network import Dimension, Port
from armillary.trace import CollectiveType, GraphBuilder, Trace


def machine(terms: Terms, npus: int = 4) -> Platform:
    dimension = Dimension("d", "Switch", npus, 10.0, 100.0, Port(10.0, 10.0))
    return Platform((dimension,), terms=terms)


def step(kernels: list[int], sizes: list[int]) -> Trace:
    """Layers of a step: a kernel, and a collective that runs beside what comes after; all meet at the end."""
    b = GraphBuilder()
    last, sent = None, []
    for micros, size in zip(kernels, sizes, strict=False):
        last = b.compute("k", duration_micros=micros, after=[last] if last is not None else [])
        sent.append(b.collective("c", CollectiveType.ALL_REDUCE, size, after=[last]))
    b.compute("k", duration_micros=1, after=[*sent, *([last] if last is not None else [])])
    return Trace.replicate(b.graph("r"), 4)


def ticks(trace: Trace, terms: Terms) -> int:
    return armillary.simulate(trace, machine(terms)).total_ticks


def test_each_adds_what_it_says() -> None:
    trace = step([10], [1_000_000])
    alone = ticks(trace, Terms())
    edge = alone - 11_000
    assert ticks(trace, Terms(communication=0.1)) == pytest.approx(alone + 0.1 * edge, abs=8)
    assert ticks(trace, Terms(launch=2500.0)) == alone + 1500
    assert ticks(trace, Terms(straggler=0.02)) == pytest.approx(
        alone + 11_000 * (slowest(0.02, 4) - 1), abs=2
    )
    assert ticks(trace, Terms(step_time=1e6)) == alone + 10**6
    assert ticks(trace, Terms(step_share=0.01)) == alone + -(-alone // 100)


def test_host_time_counts_for_each_iteration() -> None:
    trace = step([10], [1000])
    several = Trace(trace.graphs, trace.rank_graph, about={"iterations": 3})
    timeline = armillary.simulate(several, machine(Terms(step_time=1e6)))
    assert timeline.total_ticks == ticks(trace, Terms()) + 3 * 10**6
    assert timeline.info["host_ns"] == 3 * 10**6


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.integers(1, 200), min_size=1, max_size=4),
    st.lists(st.sampled_from([1000, 100_000, 3_000_000]), min_size=4, max_size=4),
    st.sampled_from(
        [
            "overlap_compute",
            "overlap_communication",
            "communication",
            "launch",
            "straggler",
            "step_time",
            "step_share",
        ]
    ),
)
def test_more_of_a_term_never_makes_a_step_faster(kernels: list[int], sizes: list[int], name: str) -> None:
    trace, unit = step(kernels, sizes), 20_000.0 if name in ("launch", "step_time") else 0.2
    found = [ticks(trace, Terms(**{name: factor * unit})) for factor in (0, 1, 2, 4)]
    assert found == sorted(found)


@pytest.mark.parametrize("ranks", [2, 8, 100])
def test_the_slowest_of_many_is_that_of_drawn_ranks(ranks: int) -> None:
    drawn = np.random.default_rng(1).standard_normal((20_000, ranks)).max(axis=1).mean()
    assert slowest(0.02, ranks) - 1 == pytest.approx(0.02 * drawn, rel=0.07)
    assert slowest(0.02, ranks) > 1 + 0.02 * NormalDist().inv_cdf(1 - 1 / ranks)


def test_nothing_is_on_unless_it_is_asked_for() -> None:
    assert Terms().on() == {}
    assert slowest(0.0, 8) == slowest(0.5, 1) == 1.0
    facts = Terms(overlap_compute=0.15, launch=5000.0).facts()
    assert facts == {"overlap_compute_ratio": 0.15, "launch_ns": 5000.0}
    assert term_words(facts) == "overlap compute 15 %, launch 5 µs"


def test_terms_are_refused_where_they_have_no_effect() -> None:
    for how in ({"network_model": "flow"}, {"profile": "astra-sim"}):
        with pytest.raises(InputError, match=r"terms.*overlap\.compute"):
            armillary.simulate(step([1], [8]), machine(Terms(overlap_compute=0.1)), **how)  # type: ignore[arg-type]
