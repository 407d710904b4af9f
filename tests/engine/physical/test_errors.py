"""Bad input gets one clear message; odd but possible input gets an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import armillary
from armillary.base.errors import InputError, StuckError
from armillary.platform.kernels import Compute
from armillary.platform.memory import LocalMemory, RemoteMemory
from armillary.platform.model import AstraSimSystem, Collectives, Npu, Platform
from armillary.platform.network import Dimension, Port
from armillary.trace import CollectiveType, GraphBuilder, NodeType, Trace

KINDS = list(CollectiveType)


def machine(*sizes: int, rate: float = 10.0, latency: float = 100.0, **parts: Any) -> Platform:
    """A platform of switches."""
    dimensions = tuple(
        Dimension(f"d{i}", "Switch", n, rate, latency, Port(rate, rate)) for i, n in enumerate(sizes or (4,))
    )
    return Platform(dimensions, **parts)


def trace(build: Callable[[GraphBuilder, int], Any], ranks: int = 4) -> Trace:
    """Every rank runs what `build` adds for it."""
    graphs = []
    for rank in range(ranks):
        builder = GraphBuilder(rank=rank)
        build(builder, rank)
        graphs.append(builder.graph())
    return Trace.from_ranks(graphs)


def collective(*attrs: tuple[str, str, Any]) -> Callable[[GraphBuilder, int], Any]:
    return lambda b, rank: b.add("c", NodeType.COMM_COLL_NODE, attrs)


def all_reduce(b: GraphBuilder, rank: int, **options: Any) -> None:
    b.all_reduce("grads", 1000, **options)


KIND, BYTES = ("comm_type", "int64", 0), ("comm_size", "int64", 1000)


def endless(b: GraphBuilder) -> None:
    """Add a node whose time a builder refuses, and files may have."""
    b.compute("a")
    b.nodes[-1].duration_micros = 1 << 60


def empty(b: GraphBuilder, peer: int) -> None:
    """Add a message without bytes, likewise."""
    b.send(peer, 1)
    b.nodes[-1].attrs[1] = ("comm_size", "int64", 0)


BAD: dict[str, tuple[Callable[[GraphBuilder, int], Any], Platform, str]] = {
    "unknown collective": (collective(("comm_type", "int64", 77), BYTES), machine(), "comm_type.*77"),
    "no collective type": (collective(BYTES), machine(), "no known comm_type"),
    "negative size": (collective(KIND, ("comm_size", "int64", -5)), machine(), "comm_size -5; expected 0 to"),
    "unknown node type": (lambda b, r: b.add("x", 55), machine(), "unknown node type"),
    "unknown group": (lambda b, r: all_reduce(b, r, group=7), machine(groups={1: (0, 1)}), "pg_name '7'.*groups: 1"),
    "group without this rank": (
        lambda b, r: all_reduce(b, r, group=1), machine(groups={1: (0, 1)}), "rank 2 is not in group 1"
    ),
    "send to nobody": (
        lambda b, r: b.add("s", NodeType.COMM_SEND_NODE, [("comm_size", "int64", 5)]), machine(), "has no comm_dst"
    ),
    "send to a rank that is not there": (lambda b, r: b.send(99, 5), machine(), "comm_dst 99; expected a rank from 0"),
    "send to itself": (lambda b, r: b.send(r, 5), machine(), "the rank of this builder"),
    "message of no bytes": (lambda b, r: empty(b, (r + 1) % 4), machine(), "moves 0 bytes"),
    "no memory": (lambda b, r: b.memory_load("m", 5), machine(), "the machine has none"),
    "cycle": (
        lambda b, r: b.wait_for(b.compute("b"), after=b.compute("a", after=0)), machine(), "cycle"
    ),
    "endless node": (lambda b, r: endless(b), machine(), "duration_micros"),
    "roofline without a peak": (
        lambda b, r: b.compute("a", flops=5), machine(compute=Compute(model="roofline")), "needs npu.peak"
    ),
    "negative work": (
        lambda b, r: b.add("a", NodeType.COMP_NODE, [("is_cpu_op", "bool", False), ("num_ops", "int64", -5)]),
        machine(npu=Npu(peak=1e9, memory=LocalMemory(1.0)), compute=Compute(model="roofline")), "negative num_ops"
    ),
    "a precision without a peak": (
        lambda b, r: b.add("a", 4, [("num_ops", "int64", 5), ("precision", "string", "fp4")]),
        machine(npu=Npu(peak={"bf16": 1e9, "fp8": 2e9}, memory=LocalMemory(1.0)), compute=Compute(model="roofline")),
        "has a precision without a peak; expected one of bf16, fp8",
    ),
    "hardly any bandwidth": (all_reduce, machine(rate=1e-9), "bandwidth"),
    "another number of ranks": (all_reduce, machine(8), "4 ranks.*8 NPUs"),
    "custom collectives of a trace": (
        all_reduce, machine(astra_sim=AstraSimSystem(custom={"all-reduce": "x"})), "all-reduce|custom"
    ),
    "algorithm with a window": (
        all_reduce, machine(collectives=Collectives(algorithms={"all-reduce": ("direct2",)})), "direct2"
    ),
    "algorithm without this collective": (
        all_reduce, machine(collectives=Collectives({"all-reduce": ("pairwise",)})), "pairwise has no all-reduce"
    ),
    "splits of another length": (
        collective(("comm_type", "int64", 6), BYTES, ("comm_splits", "int64_list", [1, 2])), machine(),
        "expected 4 numbers"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("fold", [True, False])
def test_bad_input_is_one_message(what: str, fold: bool) -> None:
    build, platform, message = BAD[what]
    with pytest.raises(InputError, match=message) as caught:
        armillary.simulate(trace(build), platform, fold=fold)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("fold", [True, False])
def test_collectives_that_do_not_match(fold: bool) -> None:
    def build(b: GraphBuilder, rank: int) -> None:
        b.all_reduce("x", 1000 + (rank == 2))

    with pytest.raises(StuckError, match=r"mismatched collectives: rank 0 .*1000 bytes.*rank 2 .*1001 bytes"):
        armillary.simulate(trace(build), machine(), fold=fold)


@pytest.mark.parametrize("fold", [True, False])
def test_a_member_that_never_comes(fold: bool) -> None:
    with pytest.raises(StuckError, match="rank 3 to join all-reduce number 1 of all ranks"):
        armillary.simulate(trace(lambda b, r: all_reduce(b, r) if r < 3 else None), machine(), fold=fold)


@pytest.mark.parametrize("fold", [True, False])
def test_a_message_that_never_comes(fold: bool) -> None:
    with pytest.raises(StuckError, match=r"rank 1 to send (to )?it 5 bytes with tag 3"):
        armillary.simulate(trace(lambda b, r: b.recv(1, 5, 3) if r == 0 else None), machine(), fold=fold)


def test_a_message_that_nobody_receives_is_a_warning() -> None:
    timeline = armillary.simulate(trace(lambda b, r: b.send(3, 1000) if r < 3 else None), machine())
    assert "never received" in timeline.info["warnings"][0]
    assert timeline.total_ticks == 200 + 301  # three share the way into rank 3; a third is rounded down


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
def test_a_group_of_one_takes_no_time(kind: CollectiveType) -> None:
    platform = machine(groups={r + 1: (r,) for r in range(4)})
    timeline = armillary.simulate(
        trace(lambda b, r: b.collective("c", kind, 1000, group=r + 1)), platform, fold=False
    )
    assert timeline.total_ticks == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
@pytest.mark.parametrize("chunks", [1, 8])
def test_no_bytes_take_only_latency(kind: CollectiveType, chunks: int) -> None:
    platform = machine(2, 2, collectives=Collectives(chunks=chunks))
    took = armillary.simulate(trace(lambda b, r: b.collective("c", kind, 0)), platform).total_ticks
    free = replace(platform, dimensions=tuple(replace(d, latency=0.0) for d in platform.dimensions))
    assert took > 0
    assert took % 200 == 0  # rounds of two links
    assert armillary.simulate(trace(lambda b, r: b.collective("c", kind, 0)), free).total_ticks == 0


def test_a_barrier_waits_for_the_last_rank() -> None:
    def build(b: GraphBuilder, rank: int) -> None:
        b.barrier(after=[b.compute("w", duration_micros=rank)])

    timeline = armillary.simulate(trace(build), machine())
    assert set(timeline.finish_ticks.tolist()) == {3000 + 2 * 200}  # two rounds of two links


def test_a_machine_without_links_between_members_of_no_dimension() -> None:
    """No dimension takes part: nothing to do, and it takes no time."""
    timeline = armillary.simulate(trace(lambda b, r: all_reduce(b, r, dims=[False])), machine())
    assert timeline.total_ticks == 0


def test_ranks_without_nodes_and_late_ranks() -> None:
    platform = machine(npu=Npu(speed={2: 0.5}), stragglers={1: 50.5})
    timeline = armillary.simulate(
        trace(lambda b, r: b.compute("w", duration_micros=1) if r else None), platform
    )
    assert timeline.finish_ticks.tolist() == [0, 1051, 2000, 1000]


def test_very_large_and_very_fast() -> None:
    """Volumes and rates near the limits of what is counted neither overflow nor become 0."""
    big = armillary.simulate(trace(lambda b, r: b.all_reduce("x", (1 << 60) - 1)), machine(rate=1e4))
    assert big.total_ticks == pytest.approx(1.5 * 2**60 / 1e4, rel=1e-6)
    fast = armillary.simulate(trace(all_reduce), machine(rate=1e30))
    assert fast.total_ticks == 801  # four rounds of two links, and a volume rounded up


def test_a_million_bytes_on_a_long_line() -> None:
    """The middle link of a line carries n²/4 messages: far more than any port, and still no overflow."""
    line = Platform((Dimension("d", "Mesh", 64, 10.0, 1.0, Port(10.0, 10.0)),))
    line = replace(line, collectives=Collectives(algorithms={"all-gather": ("direct",)}))
    took = armillary.simulate(trace(lambda b, r: b.all_gather("x", 1 << 40), 64), line).total_ticks
    assert took == pytest.approx(32 * 32 * 2 * 2**40 / 10, rel=1e-6)


def test_memory_of_a_pool_serves_the_lowest_rank_first() -> None:
    platform = machine(remote_memory=RemoteMemory("pool", 100, 10))
    timeline = armillary.simulate(trace(lambda b, r: b.memory_load("m", 1000)), platform)
    assert timeline.finish_ticks.tolist() == [200, 400, 600, 800]


@pytest.mark.parametrize(
    ("topology", "group", "model", "warned"),
    [
        ("Mesh", None, "analytical", "d (Mesh)"),
        ("Ring", None, "analytical", ""),
        ("Ring", (0, 1, 2), "analytical", "d (Ring)"),
        ("Switch", (0, 1, 2), "analytical", ""),
        ("Ring", None, "flow", "the network"),
    ],
)
def test_a_root_that_may_take_another_time_is_warned_about(
    topology: Any, group: tuple[int, ...] | None, model: str, warned: str
) -> None:
    platform = Platform(
        (Dimension("d", topology, 4, 10.0, 100.0),), groups={} if group is None else {7: group}
    )

    def broadcast(root: int) -> armillary.Timeline:
        made = []
        for rank in range(4):
            b = GraphBuilder(rank=rank)
            if group is None or rank in group:
                b.collective("c", CollectiveType.BROADCAST, 4096, group=None if group is None else 7)
                b.nodes[-1].attrs.append(("comm_root", "int32", root))
            made.append(b.graph())
        return armillary.simulate(Trace.from_ranks(made), platform, network_model=model)

    first, other = broadcast(0), broadcast(1)
    assert first.total_ticks == other.total_ticks and not first.info["warnings"]
    said = "\n".join(other.info["warnings"])
    assert warned in said and bool(said) == bool(warned)
