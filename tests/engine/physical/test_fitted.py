"""Collectives and messages that a fit times: kernel against reference, folded or not, and what a fit must say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.collective.fitted import load_fit
from armillary.convert.groups import Groups, groups_node
from armillary.platform.collectives import FitChoice, HostPath
from armillary.platform.kernels import Terms
from armillary.platform.model import Collectives, Platform
from armillary.platform.network import Dimension, Port
from armillary.report import bound
from armillary.trace import CollectiveType, GraphBuilder, NodeType, Trace

from .programs import Case, cases
from .test_reference import check

FILE = """
title: a small one
device: a100-sxm
inside:
  all-reduce: {2: [{up_to: 4096 B, latency: 20 ns}, {latency: 300.5 ns, bandwidth: 7 GB/s}]}
  all-to-all: {2: [{latency: 70 ns, bandwidth: 3 GB/s}]}
between:
  all-reduce:
    nic: {1: 1.7 GB/s}
    stages: [{up_to: 5 kB, base: 90.25 ns, hop: 12 ns, load: 0.5}, {step: 7.5 ns, load: 1.0}]
  all-to-all: {nic: {1: 0.7 GB/s, 2: 1.1 GB/s}, stages: [{hop: 30 ns, load: 1.0}]}
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fits") / "small.yaml"
    path.write_text(FILE)
    return path


@st.composite
def fitted(draw: Any) -> tuple[Case, str]:
    """A case, and the name of a fit."""
    case = draw(cases())
    platform = case.platform
    terms = Terms(
        communication=draw(st.sampled_from([0.0, 0.1])),
        communication_inside=draw(st.sampled_from([0.0, 0.05])),
        communication_between=draw(st.sampled_from([0.0, 0.4])),
        launch=draw(st.sampled_from([0.0, 5_000.5])),
        straggler=draw(st.sampled_from([0.0, 0.02])),
    )
    host = draw(st.sampled_from([None, HostPath(0.9, 1), HostPath(3.3, 2)]))
    fit = FitChoice("", draw(st.integers(1, len(platform.dimensions))), host=host)
    collectives = replace(platform.collectives, fit=draw(st.sampled_from([fit, fit, None])))
    return replace(case, platform=replace(platform, collectives=collectives, terms=terms)), draw(
        st.sampled_from(["a100-sxm", ""])
    )


def named(case: Case, name: str) -> Case:
    collectives = case.platform.collectives
    fit = collectives.fit and replace(collectives.fit, name=name)
    return replace(case, platform=replace(case.platform, collectives=replace(collectives, fit=fit)))


@settings(deadline=None, max_examples=80)
@given(fitted())
def test_the_kernel_is_the_reference_folded_or_not(small: Path, given: tuple[Case, str]) -> None:
    check(named(given[0], given[1] or str(small)))


@settings(deadline=None, max_examples=40)
@given(fitted())
def test_no_program_beats_its_bound(small: Path, given: tuple[Case, str]) -> None:
    case = named(given[0], given[1] or str(small))
    timeline = armillary.simulate(case.trace(), case.platform)
    assert bound(timeline).ticks <= timeline.total_ticks


A100 = FitChoice("a100-sxm")


def machine(fit: FitChoice = A100, sizes: tuple[int, ...] = (8, 2)) -> Platform:
    rates = (300.0, 25.0, 25.0)
    dimensions = tuple(
        Dimension(f"d{i}", "Switch", n, rate, 1000.0, Port(rate, rate))
        for i, (n, rate) in enumerate(zip(sizes, rates, strict=False))
    )
    return Platform(dimensions, collectives=Collectives(fit=fit))


def one(kind: CollectiveType, size: int, platform: Platform) -> int:
    b = GraphBuilder()
    b.collective("c", kind, size)
    return armillary.simulate(Trace.replicate(b.graph("r"), platform.npus), platform).total_ticks


@pytest.mark.parametrize("size", [1000, 1 << 20, 1 << 30])
@pytest.mark.parametrize(
    ("kind", "operation", "larger"),
    [
        (CollectiveType.ALL_REDUCE, "all-reduce", 1),
        (CollectiveType.ALL_GATHER, "all-gather", 16),
        (CollectiveType.REDUCE_SCATTER, "reduce-scatter", 1),
        (CollectiveType.ALL_TO_ALL, "all-to-all", 1),
    ],
)
def test_a_collective_alone_takes_what_the_fit_says_of_its_larger_buffer(
    kind: CollectiveType, operation: str, larger: int, size: int
) -> None:
    expected = load_fit("a100-sxm").time(operation, 8, 2, size * larger)
    assert expected is not None
    assert one(kind, size, machine()) == pytest.approx(expected.total_ns, abs=2)


def test_a_message_takes_what_the_fit_says_of_its_nodes() -> None:
    fit, size = load_fit("a100-sxm"), 1 << 20
    for target, place in ((1, (2, 1)), (8, (1, 2))):
        graphs = [GraphBuilder(rank=r) for r in range(16)]
        graphs[0].send(target, size, 1)
        graphs[target].recv(0, size, 1)
        trace = Trace.from_ranks([each.graph("r") for each in graphs])
        expected = fit.time("send", *place, size)
        assert expected is not None
        assert armillary.simulate(trace, machine()).total_ticks == pytest.approx(expected.total_ns, abs=2)


def test_a_node_is_what_the_platform_says() -> None:
    two = machine(FitChoice("a100-sxm", 2), (4, 2, 2))
    assert one(CollectiveType.ALL_REDUCE, 1 << 20, two) == one(CollectiveType.ALL_REDUCE, 1 << 20, machine())


def test_two_at_a_time_share_the_port() -> None:
    b = GraphBuilder()
    for stream in range(2):
        b.collective("c", CollectiveType.ALL_REDUCE, 1 << 30)
        b.nodes[-1].attrs.append(("stream", "int32", stream))
    both = armillary.simulate(Trace.replicate(b.graph("r"), 16), machine()).total_ticks
    expected = load_fit("a100-sxm").time("all-reduce", 8, 2, 1 << 30)
    assert expected is not None
    assert both == pytest.approx(2 * expected.transfer_ns + expected.latency_ns, abs=4)


def test_what_the_fit_does_not_know_or_the_network_cannot_is_said() -> None:
    b = GraphBuilder()
    b.collective("c", CollectiveType.BARRIER, 8)
    b.collective("c", CollectiveType.ALL_TO_ALL, 1 << 28)
    slow = machine()
    slow = replace(slow, dimensions=(slow.dimensions[0], replace(slow.dimensions[1], port=Port(1.0, 1.0))))
    timeline = armillary.simulate(Trace.replicate(b.graph("r"), 16), slow)
    said = "\n".join(timeline.info["warnings"])
    assert "does not know barrier: timed by schedules" in said
    assert "all-to-all is faster than the bandwidth of the network allows" in said
    assert bound(timeline).ticks <= timeline.total_ticks


def test_unknown_fits_and_other_networks_are_refused() -> None:
    with pytest.raises(InputError, match=r"a100-sxn.*did you mean 'a100-sxm'"):
        one(CollectiveType.ALL_REDUCE, 8, machine(FitChoice("a100-sxn")))
    trace = Trace.replicate(GraphBuilder().graph("r"), 16)
    with pytest.raises(InputError, match=r"collectives\.fit has no effect .* network model flow"):
        armillary.simulate(trace, machine(), network_model="flow")
    with pytest.raises(InputError, match=r"collectives\.fit"):
        armillary.simulate(trace, machine(), profile="astra-sim")


@pytest.mark.parametrize(("inner", "inside"), [(1, (1,)), (2, (1, 4))])
def test_what_stays_in_a_node_and_what_leaves_it_are_slowed_apart(
    inner: int, inside: tuple[int, ...]
) -> None:
    alone = machine(FitChoice("a100-sxm", inner), (4, 2, 2))

    def message(target: int, terms: Terms) -> int:
        graphs = [GraphBuilder(rank=r) for r in range(16)]
        graphs[0].send(target, 1 << 20, 1)
        graphs[target].recv(0, 1 << 20, 1)
        trace = Trace.from_ranks([each.graph("r") for each in graphs])
        return armillary.simulate(trace, replace(alone, terms=terms)).total_ticks

    terms = Terms(communication_inside=0.25, communication_between=0.5)
    for target in (1, 4, 8):
        slower = 1.25 if target in inside else 1.5
        assert message(target, terms) == pytest.approx(slower * message(target, Terms()), abs=3)
    everywhere = replace(alone, terms=terms)
    assert one(CollectiveType.ALL_REDUCE, 1 << 24, everywhere) == pytest.approx(
        1.5 * one(CollectiveType.ALL_REDUCE, 1 << 24, alone), abs=3
    )


def test_schedules_are_slowed_dimension_by_dimension() -> None:
    alone = replace(machine(), collectives=Collectives())
    took = one(CollectiveType.ALL_REDUCE, 1 << 24, alone)
    both, inside, between = (
        one(CollectiveType.ALL_REDUCE, 1 << 24, replace(alone, terms=terms))
        for terms in (
            Terms(communication=0.25),
            Terms(communication_inside=0.25),
            Terms(communication_between=0.25),
        )
    )
    assert took < min(inside, between)
    assert max(inside, between) < both


def grouped(members_of: Callable[[int], list[int]], platform: Platform, size: int = 1 << 28) -> int:
    """Return the ticks in which all groups reduce at a time; `members_of` names the group of a rank."""
    groups, graphs = Groups(platform.npus), []
    for rank in range(platform.npus):
        members, b = members_of(rank), GraphBuilder(rank=rank)
        number = groups.number(tuple(members))
        b.add("", NodeType.METADATA_NODE)
        b.nodes[-1] = groups_node(b.nodes[-1].id, {number: tuple(members)})
        b.collective("c", CollectiveType.ALL_REDUCE, size, group=number)
        graphs.append(b.graph("r"))
    return armillary.simulate(Trace.from_ranks(graphs), platform).total_ticks


@pytest.mark.parametrize(("tp", "crosses"), [(1, False), (2, True), (4, True), (8, False)])
def test_groups_of_a_node_share_the_way_through_its_host(tp: int, crosses: bool) -> None:
    # 2 NPUs per NIC: of 8 members of a node two are near each NIC, of 4 or 2 only one.
    relayed = machine(FitChoice("a100-sxm"))
    through = machine(FitChoice("a100-sxm", host=HostPath(20.0, 2)))

    def members(rank: int) -> list[int]:
        return list(range(rank % tp, 16, tp))

    size = 1 << 28
    expected = load_fit("a100-sxm").time("all-reduce", 8 // tp, 2, size)
    assert expected is not None
    plain, slow = (grouped(members, platform, size) for platform in (relayed, through))
    assert plain == pytest.approx(expected.total_ns, abs=2)
    if not crosses:
        assert slow == plain
        return
    # tp groups of 8 / tp members each send at the rate of the port, 25 GB/s: together 200 of 20 GB/s.
    assert slow == pytest.approx(expected.latency_ns + expected.transfer_ns * 8 * 25 / 20, rel=1e-3)


def test_a_group_alone_has_the_whole_way_through_its_host() -> None:
    through = machine(FitChoice("a100-sxm", host=HostPath(20.0, 2)))
    b, ranks = [GraphBuilder(rank=r) for r in range(16)], (0, 4, 8, 12)
    for rank in ranks:
        number = Groups(16).number(ranks)
        b[rank].add("", NodeType.METADATA_NODE)
        b[rank].nodes[-1] = groups_node(b[rank].nodes[-1].id, {number: ranks})
        b[rank].collective("c", CollectiveType.ALL_REDUCE, 1 << 28, group=number)
    expected = load_fit("a100-sxm").time("all-reduce", 2, 2, 1 << 28)
    assert expected is not None
    took = armillary.simulate(Trace.from_ranks([each.graph("r") for each in b]), through).total_ticks
    assert took == pytest.approx(expected.latency_ns + expected.transfer_ns * 2 * 25 / 20, rel=1e-3)


@st.composite
def crossings(draw: Any) -> Case:
    """Groups with several members in a node reduce and gather at times of their own, and cross its host."""
    inner, outer = draw(st.sampled_from([(2, 2), (4, 2), (4, 3), (6, 2), (3, 4)]))
    n, rates = inner * outer, [10.0, 5.0, 33.3]
    dimensions = tuple(
        Dimension(name, "Switch", size, rate, 1.0, Port(rate, rate))
        for name, size, rate in zip(
            ("node", "rail"), (inner, outer), draw(st.permutations(rates)), strict=False
        )
    )
    ways: list[list[int]] = []
    groups: dict[int, tuple[int, ...]] = {}
    for _ in range(draw(st.integers(1, 3))):
        parts = draw(st.sampled_from([1, 2, 3, inner]))
        plain = [rank % parts for rank in range(n)]
        part_of = draw(st.one_of(st.just(plain), st.lists(st.integers(0, 2), min_size=n, max_size=n)))
        number = {part: len(groups) + 1 + i for i, part in enumerate(sorted(set(part_of)))}
        groups |= {own: tuple(r for r in range(n) if part_of[r] == part) for part, own in number.items()}
        ways.append([number[part] for part in part_of])
    steps: list[Any] = []
    for way in ways:
        micros = draw(st.lists(st.sampled_from([0, 1, 5]), min_size=1, max_size=3))
        steps.append(("compute", tuple(range(len(steps)))[-1:], {"micros": micros, "size": 0}))
        kind = draw(
            st.sampled_from([CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.ALL_TO_ALL])
        )
        call = {
            "way": way,
            "type": kind,
            "size": draw(st.sampled_from([1000, 65536])),
            "dims": None,
            "splits": None,
        }
        steps.append(("collective", (len(steps) - 1,), {**call, "modulus": 1}))
    host = HostPath(draw(st.sampled_from([0.9, 3.3, 50.0])), draw(st.sampled_from([1, 2])))
    platform = Platform(
        dimensions, groups=groups, collectives=Collectives(fit=FitChoice("", 1, host=host)),
        scheduling=draw(st.sampled_from(["fair", "fifo"])),
    )  # fmt: skip
    return Case(platform, tuple(steps), tuple(range(len(steps))))


@settings(deadline=None, max_examples=80)
@given(crossings())
def test_hosts_are_shared_as_in_the_reference_folded_or_not(small: Path, case: Case) -> None:
    check(named(case, str(small)))
