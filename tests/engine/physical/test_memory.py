"""Local and hierarchical memory: closed forms, sharing, and the message evaluator moving the same chunks."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.engine.transport.offer import offer
from armillary.engine.transport.packet import Packet
from armillary.platform.files.topology import edges
from armillary.platform.memory import LocalMemory, MemoryStage, RemoteMemory, together_ns
from armillary.platform.model import Physical, Platform, System
from armillary.platform.network import Dimension
from armillary.platform.topology.graph import UNBOUNDED, Topology
from armillary.platform.topology.routing import Shortest
from armillary.trace import GraphBuilder, Trace

CHUNK = 1000


def machine(npus: int, memory: RemoteMemory, **more: Any) -> Platform:
    """NPUs on a switch, with a memory."""
    return Platform((Dimension("d", "Switch", npus, 10.0, 100.0),), memory=memory, **more)


def pool(groups: int, switches: int, per_node: int, *rates: float, latency: float = 0.0) -> RemoteMemory:
    """Memory groups of the machine, switches with a link to every node, a fabric for every NPU."""
    kinds = (("groups", "machine", groups), ("switches", "node", switches), ("fabric", "npu", 1))
    stages = tuple(
        MemoryStage(name, per, count, rate, rate, latency)  # type: ignore[arg-type]
        for (name, per, count), rate in zip(kinds, rates, strict=True)
    )
    return RemoteMemory("hierarchical", npus_per_node=per_node, stages=stages, chunk=CHUNK)


def graph_of(memory: RemoteMemory, npus: int) -> Topology:
    """The same as a graph: the groups are its first ranks, then the NPUs; a group hangs on one switch."""
    groups, switches, fabric = memory.stages
    nodes = npus // memory.npus_per_node
    names = [*(f"group {g}" for g in range(groups.count)), *(f"npu {n}" for n in range(npus))]
    links = [(f"group {g}", f"switch {g % switches.count}", groups) for g in range(groups.count)]
    links += [(f"switch {s}", f"node {n}", switches) for s in range(switches.count) for n in range(nodes)]
    links += [(f"node {n // memory.npus_per_node}", f"npu {n}", fabric) for n in range(npus)]
    found = [(one, other, stage.read, stage.latency, UNBOUNDED, "link") for one, other, stage in links]
    return edges("pool", found, npus=names)


def by_messages(memory: RemoteMemory, npus: int, chunks: int, active: int | None = None) -> float:
    """Return the ns in which the message evaluator brings `chunks` chunks to every NPU, spread over the groups.

    Only the first `active` NPUs get any, if that is given.
    """
    groups = memory.stages[0].count
    k, n = np.divmod(np.arange(chunks * npus), npus)
    k, n = k[n < (active or npus)], n[n < (active or npus)]
    routing = Shortest(graph_of(memory, npus))
    source = (
        n + k * npus + k // max(1, groups // npus)
    ) % groups  # every group once in a round, then the next
    found = offer(Packet(mtu=CHUNK, header=0), routing, source, groups + n, CHUNK, mode="interpreted")
    return float(found.arrived.max()) / 1000


def together(memory: RemoteMemory, npus: int, size: int, **access: Any) -> int:
    """Return the ticks in which the engine lets all ranks load `size` bytes."""
    b = GraphBuilder()
    b.memory_load("weights", size, **access)
    timeline = armillary.simulate(Trace.from_ranks([b.graph()] * npus), machine(npus, memory))
    assert len(timeline.finish) == 1
    return timeline.total_ticks


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_all_together_take_what_messages_take(data: st.DataObject) -> None:
    """Exactly, where a round brings one chunk to a device; else what it brings to a node may be late, at most."""
    per_node, nodes = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.integers(1, 3))
    switches = data.draw(st.sampled_from([1, 2, 4]))
    npus = per_node * nodes
    groups = data.draw(
        st.sampled_from(
            [g for g in range(1, 25) if g % switches == 0 and (npus % g == 0 or g % npus == 0)]
            or [switches * npus]
        )
    )
    rates = [data.draw(st.sampled_from([1.0, 2.0, 4.0, 10.0])) for _ in range(3)]
    memory = pool(groups, switches, per_node, *rates, latency=data.draw(st.sampled_from([0.0, 250.0])))
    chunks = groups * data.draw(st.integers(1, 3))
    formula = together_ns(memory, chunks * CHUNK, False, npus)
    assert abs(together(memory, npus, chunks * CHUNK) - formula) <= 1
    moved = by_messages(memory, npus, chunks)
    each = max(1.0, groups / npus)  # chunks of an NPU in a round, in which no group idles
    of_round = (  # to one group, one link of a node at most, one NPU
        each * npus / groups,
        each * per_node,
        max(each, switches),  # the links of a node to its switches bring their chunks at a time
    )
    late = sum((many - 1) * CHUNK / rate for many, rate in zip(of_round, rates, strict=True))
    assert formula - 1 <= moved <= formula + late + 1


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 2),
    st.sampled_from([1, 2, 4]),
    st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=3, max_size=3),
)
def test_one_alone_is_off_by_a_chunk_at_most(times: int, switches: int, rates: list[float]) -> None:
    memory, chunks = pool(8, switches, 4, *rates), 8 * times
    b = GraphBuilder()
    b.memory_load("weights", chunks * CHUNK)
    idle = GraphBuilder().graph()
    took = armillary.simulate(Trace.from_ranks([b.graph(), *[idle] * 7]), machine(8, memory)).total_ticks
    assert abs(took - by_messages(memory, 8, chunks, active=1)) <= CHUNK / min(rates) + 1


@settings(deadline=None, max_examples=30)
@given(st.sampled_from([1, 4]), st.sampled_from([1, 2, 4]), st.integers(1, 3), st.data())
def test_an_in_switch_gather_takes_what_one_npu_of_a_small_machine_takes(
    groups: int, switches: int, times: int, data: st.DataObject
) -> None:
    """Switches copy, so no link of the machine carries more than those of a machine of one NPU."""
    rates = [data.draw(st.sampled_from([1.0, 2.0, 5.0])) for _ in range(3)]
    memory = pool(groups * switches, switches, 4, *rates, latency=100.0)
    chunks = groups * switches * times
    formula = together_ns(memory, chunks * CHUNK, False, 16, collective=True)
    assert abs(together(memory, 16, chunks * CHUNK, in_switch=True) - formula) <= 1
    alone = dataclasses.replace(memory, npus_per_node=1)
    of_round = (1, groups, groups * switches)
    late = sum((many - 1) * CHUNK / rate for many, rate in zip(of_round, rates, strict=True))
    assert formula - 1 <= by_messages(alone, 1, chunks) <= formula + late + 1


def test_in_switch_carries_what_is_common_once() -> None:
    """Every NPU takes 1,600 bytes at 1 byte/ns instead of a sixteenth of the 4 bytes/ns of the machine."""
    memory = RemoteMemory("hierarchical", stages=(MemoryStage("groups", "machine", 4, 1.0, 1.0),
                          MemoryStage("port", "npu", 1, 1.0, 1.0)), chunk=1600)  # fmt: skip
    assert together(memory, 16, 1600) == 16 * 1600 // 4 + 1600
    assert together(memory, 16, 1600, in_switch=True) == 1600 + 1600


@pytest.mark.parametrize(("store", "expected"), [(False, 50 + 1000), (True, 50 + 2000)])
def test_local_accesses_take_latency_and_bytes_by_direction(store: bool, expected: int) -> None:
    b = GraphBuilder()
    (b.memory_store if store else b.memory_load)("m", 10_000, local=True)
    platform = machine(2, RemoteMemory(), physical=Physical(memory=LocalMemory(0, 50.0, 10.0, 5.0)))
    assert armillary.simulate(Trace.from_ranks([b.graph()] * 2), platform).total_ticks == expected


def test_the_roofline_pays_the_latency_of_memory() -> None:
    b = GraphBuilder()
    b.compute("k", flops=10, bytes=1000)
    system = System(local_mem_bandwidth=10e9, peak_performance=1e12, roofline=True)
    platform = machine(
        2, RemoteMemory(), system=system, physical=Physical(memory=LocalMemory(0, 50.0, 10.0, 10.0))
    )
    assert armillary.simulate(Trace.from_ranks([b.graph()] * 2), platform).total_ticks == 150


def test_loads_and_stores_of_a_hierarchical_memory_overlap_with_each_other_and_with_compute() -> None:
    memory = RemoteMemory("hierarchical", stages=(MemoryStage("path", "npu", 1, 1.0, 2.0),), chunk=CHUNK)
    b = GraphBuilder()
    b.memory_load("l", 4000)
    b.memory_store("s", 4000)
    b.compute("k", duration_micros=3)
    assert armillary.simulate(Trace.from_ranks([b.graph()] * 2), machine(2, memory)).total_ticks == 4000


def test_astra_sim_takes_every_access_for_a_remote_one() -> None:
    b = GraphBuilder()
    b.memory_load("m", 1000, local=True)
    platform = machine(2, RemoteMemory("per-npu", 100, 5))
    trace = Trace.from_ranks([b.graph()] * 2)
    assert armillary.simulate(trace, platform, profile="astra-sim").total_ticks == 300


@pytest.mark.parametrize(
    ("attributes", "memory", "said"),
    [
        ({"local": True}, RemoteMemory("per-npu", 1, 1), "expected npu.memory.bandwidth"),
        ({"in_switch": True}, RemoteMemory("pool", 1, 1), "expected remote_memory of kind hierarchical"),
        ({"in_switch": True, "local": True}, RemoteMemory("pool", 1, 1), "expected remote memory"),
        ({}, RemoteMemory(), "the machine has none"),
    ],
)
def test_what_cannot_be_accessed_is_named(
    attributes: dict[str, Any], memory: RemoteMemory, said: str
) -> None:
    b = GraphBuilder()
    b.memory_load("weights", 1000, **attributes)
    with pytest.raises(InputError, match=said) as raised:
        armillary.simulate(Trace.from_ranks([b.graph()] * 2), machine(2, memory))
    assert "weights" in str(raised.value)


def test_other_network_models_say_that_they_do_not_know_the_links() -> None:
    b = GraphBuilder()
    b.memory_load("m", 1000)
    trace = Trace.from_ranks([b.graph()] * 2)
    with pytest.raises(InputError, match="expected network model analytical"):
        armillary.simulate(trace, machine(2, pool(1, 1, 2, 1.0, 1.0, 1.0)), network_model="congestion")


def test_nodes_with_unlike_ranks_fold_by_what_they_share() -> None:
    """Four nodes of two ranks: in two both load, in the others one; a rank alone in its node has it for itself."""
    memory = RemoteMemory(
        "hierarchical", npus_per_node=2, stages=(MemoryStage("link", "node", 1, 1.0, 1.0),), chunk=CHUNK
    )
    b = GraphBuilder()
    b.memory_load("m", 4000)
    loads, idle = b.graph(), GraphBuilder().graph()
    timeline = armillary.simulate(Trace.from_ranks([loads] * 4 + [loads, idle] * 2), machine(8, memory))
    assert timeline.finish_ticks.tolist() == [8000] * 4 + [4000, 0] * 2
    assert len(timeline.finish) == 3


def test_groups_that_lie_alike_fold_and_others_do_not() -> None:
    """Eight groups of two, in one node each or in two: what they share, all of them share."""
    memory = pool(4, 2, 4, 1.0, 3.0, 2.0)
    pairs = {1: [(2 * i, 2 * i + 1) for i in range(8)], 2: [(i, i + 8) for i in range(8)]}
    odd = [(0, 1), (2, 8), (3, 9), (10, 11), (4, 5), (6, 7), (12, 13), (14, 15)]
    for groups, classes in ((pairs[1], 1), (pairs[2], 1), (odd, 16)):
        of_rank = {rank: number for number, pair in enumerate(groups, 1) for rank in pair}
        platform = machine(16, memory, groups=dict(enumerate(groups, 1)))
        graphs = []
        for rank in range(16):
            b = GraphBuilder()
            b.memory_load("m", 4000, in_switch=True, group=of_rank[rank])
            graphs.append(b.graph())
        timeline, alone = (
            armillary.simulate(Trace.from_ranks(graphs), platform, fold=on) for on in (True, False)
        )
        assert len(timeline.finish) == classes
        assert timeline.finish_ticks.tolist() == alone.finish_ticks.tolist()
        assert not len(timeline.phase_dim)
