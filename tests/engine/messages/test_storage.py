"""A storage joined to a network shares links with messages as a slow reference and closed forms have it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.base.jit import Mode
from armillary.engine.common.timeline import Timeline
from armillary.engine.messages.lower import lower_messages
from armillary.engine.messages.run import execute
from armillary.engine.messages.stages import network_of, stages_of
from armillary.engine.transport.models import transport_of
from armillary.platform import load_platform
from armillary.platform.topology.attached import ways
from armillary.trace import GraphBuilder, Trace

MB = 10**6
LATENCY, LINK = 1000, 500
"""ns of an operation, and of a link of dimension out."""
Operation = tuple[bool, int]
"""Whether it reads, and bytes."""
GRAPH: dict[str, Any] = {
    "kind": "leaf-spine", "leaves": 2, "spines": 2, "npus_per_leaf": 2, "bandwidth": "50 GB/s", "latency": "500 ns",
}  # fmt: skip


def machine(model: str = "flow", at: str = "out", **storage: Any) -> dict[str, Any]:
    """Return four NPUs, two by two, and a storage of 20 GB/s behind the switches of links of 10 GB/s."""
    dimensions = [("up", "100 GB/s", "100 ns"), ("out", "10 GB/s", "500 ns")]
    network = [
        {"name": name, "topology": "Switch", "size": 2, "bandwidth": rate, "latency": latency}
        for name, rate, latency in dimensions
    ]
    own = {"bandwidth": "20 GB/s", "latency": "1 us", "at": at, **storage}
    npu = {"peak": "100 TFLOP/s", "memory": {"bandwidth": "1 TB/s"}}
    return {"network": network, "npu": npu, "network_model": model, "storage": own}


def one_each(size: int, ranks: int = 4, many: int = 1, read: bool = True) -> Trace:
    """Return ranks that each begin so many operations at once."""
    graph = GraphBuilder()
    for number in range(many):
        graph.storage(f"s{number}", size, "read" if read else "write")
    return Trace.replicate(graph.graph(), ranks=ranks)


def chains(operations: list[list[Operation]]) -> Trace:
    """Return a rank for each list, whose operations follow each other."""
    graphs = []
    for own in operations:
        graph, before = GraphBuilder(), list[int]()
        for number, (read, size) in enumerate(own):
            before = [graph.storage(f"s{number}", size, "read" if read else "write", after=before)]
        graphs.append(graph.graph())
    return Trace(tuple(graphs), np.arange(len(graphs), dtype=np.int32))


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("rate", [5, 20, 100])
def test_readers_share_the_storage_or_their_own_links(read: bool, rate: int) -> None:
    found = armillary.simulate(one_each(10 * MB, read=read), machine(bandwidth=f"{rate} GB/s"))
    # Four ranks: each has a quarter of the storage, but no more than its own link carries.
    each = min(Fraction(rate, 4), Fraction(10))
    assert found.total_ticks == pytest.approx(LATENCY + LINK + 10 * MB / each, abs=4)


def test_reading_and_writing_do_not_share() -> None:
    one = armillary.simulate(chains([[(True, 10 * MB)], [(True, 10 * MB)], [], []]), machine())
    both = armillary.simulate(
        chains([[(True, 10 * MB)], [(True, 10 * MB)], [(False, 10 * MB)], [(False, 10 * MB)]]), machine()
    )
    assert both.total_ticks == one.total_ticks == LATENCY + LINK + MB


@pytest.mark.parametrize("model", ["flow", "congestion", "packet"])
def test_operations_begin_one_after_the_other(model: str) -> None:
    # 16 operations of a byte, of which the storage begins one in 10 us: the last waits for 15.
    found = armillary.simulate(one_each(1, many=4), machine(model, operations=100_000))
    lone = armillary.simulate(one_each(1, ranks=4), machine(model, operations=10**9))
    assert found.total_ticks == pytest.approx(15 * 10_000 + lone.total_ticks, abs=30)


def test_a_read_and_a_message_halve_the_link_that_they_share() -> None:
    sender, receiver = GraphBuilder(), GraphBuilder()
    sender.send(2, size=10 * MB)
    receiver.recv(0, size=10 * MB)
    receiver.storage("batch", 10 * MB)
    nothing = GraphBuilder()
    nothing.compute("work", duration_micros=1)
    graphs = (sender.graph(), nothing.graph(), receiver.graph(), nothing.graph())
    trace = Trace(graphs, np.arange(4, dtype=np.int32))
    found = armillary.simulate(trace, machine())
    # Both have 5 GB/s of the link to rank 2; the read begins 1 us later, when 10 kB of the message are through.
    assert found.finish_ticks[0] == pytest.approx(2 * MB - LATENCY + 2 * LINK, abs=4)
    assert found.finish_ticks[2] == pytest.approx(2 * MB + LINK, abs=600)


@pytest.mark.parametrize("model", ["flow", "congestion", "packet"])
def test_a_checkpoint_slows_collectives_and_is_slowed(model: str) -> None:
    def trace(both: str) -> Trace:
        graph = GraphBuilder()
        if "store" in both:
            graph.storage("save", 4 * MB, "write")
        if "reduce" in both:
            graph.all_reduce("sum", size=4 * MB)
        return Trace.replicate(graph.graph(), ranks=4)

    store, reduce, both = (
        armillary.simulate(trace(which), machine(model, bandwidth="100 GB/s")).total_ticks
        for which in ("store", "reduce", "store reduce")
    )
    assert max(store, reduce) < both <= store + reduce


@pytest.mark.parametrize("model", ["flow", "congestion", "packet"])
@pytest.mark.parametrize("graph", [False, True])
def test_a_storage_without_operations_changes_nothing(model: str, graph: bool) -> None:
    builder = GraphBuilder()
    builder.all_to_all("a", size=4 * MB)
    builder.all_reduce("b", size=3 * MB)
    trace = Trace.replicate(builder.graph(), ranks=4)
    platform = machine(model, "spine" if graph else "out")
    if graph:
        platform |= {"topology": GRAPH}
        del platform["network"]
    without = {key: value for key, value in platform.items() if key != "storage"}
    assert armillary.simulate(trace, platform).total_ticks == armillary.simulate(trace, without).total_ticks


@pytest.mark.parametrize("at", ["out", "up", "npu 1", "up switch 1"])
def test_ways_lead_there_and_back(at: str) -> None:
    topology = network_of(load_platform(machine(at=at))).topology
    found = ways(topology)
    for there, routes in ((True, found.write), (False, found.read)):
        for npu, links in routes.items():
            ends = (npu, found.node) if there else (found.node, npu)
            nodes = [int(topology.tail[links[0]]), *(int(topology.head[link]) for link in links)]
            assert (nodes[0], nodes[-1]) == ends
            assert all(topology.tail[b] == topology.head[a] for a, b in pairwise(links))
            assert len(set(nodes)) == len(nodes)


def reference(operations: list[list[Operation]], rate: Fraction, gap: int) -> list[Fraction]:
    """Return when each rank ends: operations wait their turn, take their latency, then share links max-min fairly.

    Times are exact. Links: 0, 1 out of and into the storage; then of each rank in and out, of 10 bytes per ns.
    """
    capacity = [rate, rate, *[Fraction(10)] * (2 * len(operations))]
    at, ends = [0] * len(operations), [Fraction(0)] * len(operations)
    # (time, rank) of what asks for its turn; (time, rank) of what has had it.
    asking = [(Fraction(0), rank) for rank, own in enumerate(operations) if own]
    begun: list[tuple[Fraction, int]] = []
    moving: dict[int, Fraction] = {}
    now, free = Fraction(0), Fraction(0)
    while asking or begun or moving:
        for when, rank in sorted(asking):
            if when <= now:
                asking.remove((when, rank))
                start = max(when, free)
                free = start + gap
                begun.append((start + LATENCY, rank))
        for when, rank in sorted(begun):
            if when <= now:
                begun.remove((when, rank))
                moving[rank] = Fraction(operations[rank][at[rank]][1])
        used = {
            rank: (0, 2 + 2 * rank) if operations[rank][at[rank]][0] else (1, 3 + 2 * rank) for rank in moving
        }
        rates = max_min(used, capacity)
        next_ends = [now + left / rates[rank] for rank, left in moving.items()]
        later = [when for when, _ in (*asking, *begun)]
        step = min([*next_ends, *later])
        for rank in list(moving):
            moving[rank] -= rates[rank] * (step - now)
            if moving[rank] == 0:
                del moving[rank]
                ends[rank] = step + LINK
                at[rank] += 1
                if at[rank] < len(operations[rank]):
                    asking.append((step + LINK, rank))
        now = step
    return ends


def max_min(used: Mapping[int, tuple[int, ...]], capacity: list[Fraction]) -> dict[int, Fraction]:
    """Return rates such that no flow can have more without taking from one that has no more than it."""
    left, rates, open_ = list(capacity), dict[int, Fraction](), dict(used)
    while open_:
        share = {
            link: left[link] / sum(link in links for links in open_.values())
            for links in open_.values() for link in links
        }  # fmt: skip
        link = min(share, key=lambda each: share[each])
        for flow in [flow for flow, links in open_.items() if link in links]:
            rates[flow] = share[link]
            for each in open_.pop(flow):
                left[each] -= share[link]
    return rates


OPERATIONS = st.lists(
    st.lists(st.tuples(st.booleans(), st.integers(1, 3 * MB)), max_size=3), min_size=4, max_size=4
)


@settings(max_examples=60, deadline=None)
@given(OPERATIONS, st.sampled_from([3, 12, 20, 50]), st.sampled_from([0, 1000, 200_000]))
def test_flows_are_those_of_the_reference(operations: list[list[Operation]], rate: int, every: int) -> None:
    if not any(operations):
        operations[0] = [(True, 5)]
    more: dict[str, Any] = {"operations": 10**9 // every} if every else {}
    trace = chains([own or [] for own in operations])
    found = armillary.simulate(trace, machine(bandwidth=f"{rate} GB/s", **more))
    expected = reference(operations, Fraction(rate), every)
    # Ticks are whole ns, and each operation rounds up: what ends later asks later, and shares otherwise.
    for mine, other in zip(found.finish_ticks.tolist(), expected, strict=True):
        assert abs(mine - other) <= 24


@settings(max_examples=6, deadline=None)
@given(OPERATIONS, st.just("flow"))
def test_compiled_and_interpreted_agree(operations: list[list[Operation]], model: str) -> None:
    operations[0] = operations[0] or [(True, 5)]
    small = [[(read, 1 + size // 100) for read, size in own] for own in operations]
    platform = load_platform(machine(model, operations=10**5))
    ends, modes = [], get_args(Mode)
    for mode in modes:
        program = lower_messages(chains(small), platform, stages_of(platform))
        run = execute(program, transport_of(model, platform), mode)
        ends.append(run.table("FINISH").tolist())
    assert ends[0] == ends[1]


def test_where_nothing_moves_messages_it_has_no_effect_and_says_so() -> None:
    joined, alone = machine("analytical"), machine("analytical")
    del alone["storage"]["at"]
    found = armillary.simulate(one_each(10 * MB), joined)
    assert found.total_ticks == armillary.simulate(one_each(10 * MB), alone).total_ticks
    assert any("storage.at and .operations have no effect" in each for each in found.info["warnings"])


def test_the_answer_says_what_shares_links() -> None:
    found: Timeline = armillary.simulate(one_each(10 * MB), machine())
    expected = "4 nodes of storage: messages share links with what they move, up to 20 GB/s each way"
    assert expected in found.info["assumptions"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"at": "outt"}, "storage.at: got 'outt', expected one of up, out, or a node.*did you mean 'out'"),
        ({"at": "npu 9"}, "storage.at: got 'npu 9'"),
        ({"readers": 2}, "readers: got 2, expected none: with at the links say that"),
        ({"client": "2 GB/s"}, "client: got 2, expected none"),
        ({"at": None, "operations": 5}, "operations: got 5, expected none: it counts with at only"),
        ({"operations": 0}, "operations"),
    ],
)
def test_nonsense_is_refused(keys: dict[str, Any], message: str) -> None:
    platform = machine(**{key: value for key, value in keys.items() if key != "at"})
    platform["storage"] = {
        key: value for key, value in (platform["storage"] | keys).items() if value is not None
    }
    with pytest.raises(InputError, match=message):
        armillary.simulate(one_each(MB), platform)


def test_what_knows_npus_only_is_refused() -> None:
    with pytest.raises(InputError, match=r"storage\.at: protocol rdma moves messages between NPUs only"):
        armillary.simulate(one_each(MB), machine("packet") | {"packets": {"protocol": "rdma"}})
    platform = load_platform(machine("ns3"))
    with pytest.raises(InputError, match=r"storage\.at: ns-3 moves messages between NPUs only"):
        armillary.simulate(one_each(MB), platform)
