"""Groups that overlap: the same graph, but for the group's number, is not the same part in the machine."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import StuckError
from armillary.platform.model import Collectives, Platform
from armillary.platform.network import Dimension
from armillary.trace import Graph, GraphBuilder, Trace

Case = tuple[dict[int, tuple[int, ...]], tuple[tuple[int, ...], ...]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Groups of 3 to 6 ranks, and for every rank the groups whose collectives it runs, one after the other."""
    ranks = draw(st.integers(3, 6))
    member = st.lists(st.integers(0, ranks - 1), min_size=2, unique=True).map(tuple)
    groups = dict(enumerate(draw(st.lists(member, min_size=1, max_size=4)), 1))
    order = draw(st.lists(st.sampled_from(sorted(groups)), min_size=1, max_size=6))
    steps = [[group for group in order if rank in groups[group]] for rank in range(ranks)]
    if draw(st.booleans()):
        steps = [draw(st.permutations(own)) for own in steps]
    return groups, tuple(tuple(own) for own in steps)


def graph(steps: tuple[int, ...]) -> Graph:
    builder, last = GraphBuilder(), list[int]()
    for group in steps:
        last = [builder.all_gather("gather", "1 KiB", group=group, after=last)]
    return builder.graph(str(steps))


@settings(max_examples=60, deadline=None)
@given(cases())
@example(({1: (0, 1), 2: (1, 2)}, ((1,), (1, 2), (2,))))
def test_folded_ranks_finish_when_single_ones_do(case: Case) -> None:
    groups, steps = case
    trace = Trace.from_ranks([graph(own) for own in steps])
    network = (Dimension("network", "Switch", len(steps), bandwidth=10.0, latency=10.0),)
    algorithms = {"all-gather": ("direct",)}
    machine = Platform(network, collectives=Collectives(algorithms), groups=groups)
    for profile in ("physical", "astra-sim"):
        assert finish(trace, machine, profile, True) == finish(trace, machine, profile, False)


def finish(trace: Trace, machine: Platform, profile: str, fold: bool) -> list[int] | str:
    try:
        ticks: list[int] = armillary.simulate(
            trace, machine, profile=profile, fold=fold
        ).finish_ticks.tolist()
    except StuckError:
        return "stuck"
    return ticks


def test_the_example_that_was_wrong() -> None:
    trace = Trace.from_ranks([graph((1,)), graph((1, 2)), graph((2,))])
    machine = Platform(
        (Dimension("network", "Switch", 3, bandwidth=10.0, latency=10.0),), groups={1: (0, 1), 2: (1, 2)}
    )
    first, second, third = armillary.simulate(trace, machine, profile="physical").finish_ticks.tolist()
    assert first < second == third
    assert first == pytest.approx(second / 2, abs=1)
