"""Contention: against an obvious reference, against the analytical network where nothing is shared, and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base import tables
from armillary.base.errors import InputError, ShortageError, StuckError
from armillary.base.jit import Mode
from armillary.base.tables import room
from armillary.engine.astra_sim import run as engine_run
from armillary.engine.astra_sim.program import lower
from armillary.engine.astra_sim.run import execute
from armillary.engine.common.diagnose import check_finished
from armillary.platform.memory import LocalMemory
from armillary.platform.model import Collectives, Npu, Platform
from armillary.platform.network import Dimension
from armillary.trace import CollectiveType, Graph, GraphBuilder, Trace

from .reference import Reference, Step

KINDS = {
    "all-reduce": CollectiveType.ALL_REDUCE,
    "reduce-scatter": CollectiveType.REDUCE_SCATTER,
    "all-gather": CollectiveType.ALL_GATHER,
    "all-to-all": CollectiveType.ALL_TO_ALL,
}


def platform(
    dimensions: tuple[Dimension, ...],
    algorithm: str = "ring",
    endpoint_delay: int | None = None,
    **keys: Any,
) -> Platform:
    algorithms = {kind: (algorithm,) * len(dimensions) for kind in KINDS}
    return Platform(
        dimensions,
        Npu(memory=LocalMemory(50.0), endpoint_delay=endpoint_delay),
        collectives=Collectives(algorithms, **keys),
        dialect="astra-sim",
    )


def ranks_of(steps: list[list[Step]], work: list[list[int]] | None = None) -> Trace:
    """Each rank computes and sends in turn and works on its CPU; its receives wait for nothing."""
    builders = [GraphBuilder() for _ in steps]
    for rank, own in enumerate(steps):
        last: list[int] = []
        for number, (micros, to, size) in enumerate(own):
            last = [builders[rank].compute(f"{number}", duration_micros=micros, after=last)]
            last = [builders[rank].send(to, size, tag=number, after=last)]
            builders[to].recv(rank, size, tag=number)
    for builder, micros_of in zip(builders, work or [[] for _ in steps], strict=True):
        last = []
        for micros in micros_of:
            last = [builder.compute("CPU", duration_micros=micros, cpu=True, after=last)]
        if not builder.nodes:
            builder.compute("idle")
    return Trace.from_ranks({rank: builder.graph() for rank, builder in enumerate(builders)})


@st.composite
def networks(draw: Any) -> tuple[Dimension, ...]:
    topology = st.sampled_from(["Ring", "FullyConnected", "Switch", "Mesh"])
    sizes = draw(st.lists(st.integers(2, 5), min_size=1, max_size=3).filter(lambda s: 2 < np.prod(s) <= 24))
    rates, waits = st.sampled_from([0.7, 1.0, 3.0]), st.sampled_from([0.0, 0.6, 100.0, 1000.0])
    return tuple(Dimension("", draw(topology), size, draw(rates), draw(waits)) for size in sizes)


@settings(max_examples=120, deadline=None)
@given(networks(), st.data())
def test_equal_to_the_reference(dimensions: tuple[Dimension, ...], data: Any) -> None:
    npus = int(np.prod([d.size for d in dimensions]))
    steps: list[list[Step]] = []
    for rank in range(npus):
        others = st.integers(0, npus - 1).filter(lambda to, rank=rank: to != rank)
        step = st.tuples(st.integers(0, 2), others, st.sampled_from([1, 500, 1000, 1001, 3000]))
        steps.append(data.draw(st.lists(step, max_size=4)))
    work = data.draw(st.lists(st.lists(st.integers(1, 3), max_size=3), min_size=npus, max_size=npus))
    expected = Reference(dimensions, steps, work).run()
    mode: Mode = data.draw(st.sampled_from(["interpreted", "compiled"]))
    lowered = lower(ranks_of(steps, work), platform(dimensions), contention=True)
    found = execute(lowered, mode)
    check_finished(lowered, found)
    first = np.cumsum([0, *(len(view.nodes.order) for view in lowered.views)])
    ends = found.table("NODE_END")
    for rank, view in enumerate(lowered.views):
        sends = [item for item in view.pairs() if view.sends(item)]
        assert ends[first[rank] + view.nodes.items[sends]].tolist() == expected[rank]


@st.composite
def unshared(draw: Any) -> tuple[Trace, Platform]:
    """Collectives whose messages cross one link each, that no other message uses meanwhile."""
    sizes = draw(st.sampled_from([(3,), (4,), (8,), (9,), (3, 4), (4, 2), (3, 2, 2)]))
    topology, algorithm = draw(
        st.sampled_from([("Ring", "ring"), ("FullyConnected", "ring"), ("FullyConnected", "direct")])
    )
    latency, bandwidth = draw(st.sampled_from([0.3, 500.0])), draw(st.sampled_from([0.9, 50.0]))
    operations = sorted(KINDS) if len(sizes) == 1 else ["all-gather", "all-reduce", "reduce-scatter"]
    builder = GraphBuilder()
    for kind in draw(st.lists(st.sampled_from(operations), min_size=1, max_size=3)):
        builder.compute("compute", duration_micros=draw(st.integers(1, 3)))
        builder.collective(kind, KINDS[kind], draw(st.sampled_from([1, 1000, 1 << 20])))
    machine = platform(
        tuple(Dimension("", topology, size, bandwidth, latency) for size in sizes), algorithm,
        chunks=draw(st.integers(1, 3)), endpoint_delay=draw(st.integers(1, 10)),
    )  # fmt: skip
    return Trace.replicate(builder.graph(), machine.npus), machine


@settings(max_examples=120, deadline=None)
@given(unshared())
def test_analytical_where_no_link_is_shared(case: tuple[Trace, Platform]) -> None:
    trace, machine = case
    with_links, without = (
        armillary.simulate(trace, machine, profile="astra-sim", network_model=model)
        for model in ("congestion", "analytical")
    )
    assert with_links.finish_ticks.tolist() == without.finish_ticks.tolist()
    assert with_links.info["folded"] is False


def all_to_all(size: int) -> Graph:
    builder = GraphBuilder()
    builder.collective("exchange", KINDS["all-to-all"], size)
    return builder.graph()


def ticks(machine: Platform, size: int) -> list[int]:
    trace = Trace.replicate(all_to_all(size), machine.npus)
    result = armillary.simulate(trace, machine, profile="astra-sim", network_model="congestion")
    return sorted(set(result.finish_ticks.tolist()))


def test_a_port_sends_one_message_after_the_other() -> None:
    # 7 messages of 1,000 ticks leave a port one by one; the last crosses a second link after 2 latencies.
    machine = platform((Dimension("", "Switch", 8, 1.0, 50.0),), "direct", endpoint_delay=10)
    assert ticks(machine, 8000) == [10 + 7 * 1000 + 50 + 1000 + 50 + 10]


def test_a_machine_of_one_npu_has_no_messages() -> None:
    assert ticks(platform((Dimension("", "Switch", 1, 1.0, 50.0),)), 1000) == [0]


def test_messages_pay_every_dimension() -> None:
    steps: list[list[Step]] = [[(1, 3, 100)], [], [], []]
    dimensions = (Dimension("", "Ring", 2, 1.0, 7.0), Dimension("", "Switch", 2, 2.0, 11.0))
    assert Reference(dimensions, steps).run()[0] == [1000 + 107 + 2 * 61]
    machine = platform(dimensions)
    found = armillary.simulate(ranks_of(steps), machine, profile="astra-sim", network_model="congestion")
    assert found.finish_ticks[[0, 3]].tolist() == [1229, 1229]


def test_the_rank_that_is_due_first_at_a_tick_does_all_it_has_to_do() -> None:
    # Both send at tick 2000; rank 1, which has known since tick 0 that something is due then, comes first.
    builders = [GraphBuilder() for _ in range(3)]
    for rank in (0, 1):
        first = builders[rank].compute("first", duration_micros=1)
        second = builders[rank].compute("second", duration_micros=1, after=[first])
        builders[rank].send(2, 1000, after=[second])
        builders[2].recv(rank, 1000)
    builders[1].compute("CPU", duration_micros=2, cpu=True)
    trace = Trace.from_ranks({rank: builder.graph() for rank, builder in enumerate(builders)})
    machine = platform((Dimension("", "Switch", 3, 1.0, 50.0),))
    found = armillary.simulate(trace, machine, profile="astra-sim", network_model="congestion")
    assert found.finish_ticks.tolist() == [2000 + 2 * 1050 + 1000, 2000 + 2 * 1050, 2000 + 2 * 1050 + 1000]


@pytest.mark.parametrize("budget", [1, 7])
def test_a_run_goes_on_where_it_was_interrupted(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = platform((Dimension("", "Switch", 5, 1.0, 50.0),), "direct", chunks=3)
    whole = ticks(machine, 5000)
    monkeypatch.setattr(engine_run, "BUDGET", budget)
    assert ticks(machine, 5000) == whole


def test_memory_grows_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = platform((Dimension("", "Ring", 7, 1.0, 50.0),), "direct", chunks=4, active_chunks=4)
    whole = ticks(machine, 70_000)
    grown = []
    monkeypatch.setattr(engine_run, "FIRST_WORDS", 0)
    monkeypatch.setattr(tables, "room", lambda *a: grown.append(1) or room(*a))
    assert ticks(machine, 70_000) == whole
    assert grown


def test_ticks_that_do_not_fit_are_refused() -> None:
    machine = platform((Dimension("", "Switch", 8, 1e-9, 0.0),), "direct")
    assert ticks(machine, 1 << 32)
    with pytest.raises(InputError, match=r"more than 4.61e\+18 ns, with messages waiting for links"):
        ticks(machine, 1 << 33)


def test_memory_that_is_not_there_is_named() -> None:
    with pytest.raises(ShortageError, match=r"takes 1.86e\+09 GiB of working memory, more than there is"):
        room(250_000_000_000_000_000, "compiled")


def test_no_bandwidth_is_refused() -> None:
    with pytest.raises(InputError, match=r"bandwidth: got 0.0, expected more than 0"):
        Dimension("rack", "Switch", 4, 0.0, 500.0)


def test_who_waits_for_whom_is_told() -> None:
    builder = GraphBuilder()
    builder.recv(1, 100)
    graphs = {0: builder.graph(), 1: all_to_all(1000), 2: all_to_all(1000)}
    with pytest.raises(StuckError, match="rank 1 to send it 100 bytes"):
        armillary.simulate(
            Trace.from_ranks(graphs), platform((Dimension("", "Switch", 3, 1.0, 0.0),)),
            profile="astra-sim", network_model="congestion",
        )  # fmt: skip


def test_profile_astra_sim_says_which_profile_has_more_models() -> None:
    machine = platform((Dimension("", "Ring", 4, 1.0, 0.0),))
    with pytest.raises(
        InputError,
        match=r"'flow' is not available in this version in profile astra-sim.*profile physical has",
    ):
        armillary.simulate(
            Trace.replicate(all_to_all(1000), 4), machine, profile="astra-sim", network_model="flow"
        )
