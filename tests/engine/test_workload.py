"""Rules of single nodes, each with its ticks worked out by hand (spec: ASTRA-sim 1(b) and 1(e))."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import armillary
from armillary.platform.model import Platform
from armillary.trace import CollectiveType, GraphBuilder, Node, NodeType, Trace

Make = Callable[..., Platform]


def run(trace: Trace | GraphBuilder, platform: Platform, **options: Any) -> armillary.Timeline:
    if isinstance(trace, GraphBuilder):
        trace = Trace.replicate(trace.graph(), platform.npus)
    return armillary.simulate(trace, platform, profile="astra-sim", **options)


def ticks(trace: Trace | GraphBuilder, platform: Platform) -> list[int]:
    folded = run(trace, platform).finish_ticks.tolist()
    assert run(trace, platform, fold=False).finish_ticks.tolist() == folded
    assert run(trace, platform, messages=True).finish_ticks.tolist() == folded
    return folded


def test_duration_is_in_microseconds_and_none_is_one_tick(machine: Make) -> None:
    b = GraphBuilder()
    first = b.compute("a", duration_micros=5)
    b.compute("b", after=[first])
    assert ticks(b, machine()) == [5001] * 4


def test_slots_run_side_by_side_and_hold_one_node_each(machine: Make) -> None:
    b = GraphBuilder()
    for cpu in (False, False, True, True, True):
        b.compute("k", duration_micros=2, cpu=cpu)
    b.collective("b", CollectiveType.BROADCAST, 8, duration_micros=5)
    assert ticks(b, machine()) == [6000] * 4


def test_lower_node_goes_first_where_both_are_free(machine: Make) -> None:
    b = GraphBuilder()
    first = b.compute("a", duration_micros=1)
    b.compute("late", duration_micros=10, after=[first])
    b.compute("other", duration_micros=1)
    timeline = run(b, machine())
    assert timeline.spans(0)[0].tolist() == [0, 1000, 11000]


def test_control_dependencies_hold_like_data(machine: Make) -> None:
    b = GraphBuilder()
    first = b.compute("a", duration_micros=3)
    b.collective("b", CollectiveType.BROADCAST, 8, duration_micros=1, ctrl_after=[first])
    assert ticks(b, machine()) == [4000] * 4


def test_children_of_a_skipped_node_wait_for_the_next_completion(machine: Make) -> None:
    b = GraphBuilder()
    skipped = b.add("invalid", NodeType.INVALID_NODE)
    b.collective("child", CollectiveType.BROADCAST, 8, duration_micros=1, after=[skipped])
    b.compute("other", duration_micros=7)
    assert ticks(b, machine()) == [8000] * 4


def test_replay_only_takes_every_duration_as_given(machine: Make) -> None:
    b = GraphBuilder()
    first = b.all_reduce("c", 1 << 20, duration_micros=4)
    b.send(1, 100, after=[first])
    b.memory_load("m", 100)
    assert ticks(b, machine(replay_only=1)) == [4000 + 1 + 1] * 4


@pytest.mark.parametrize(
    ("flops", "size", "expected"),
    [
        (10**6, 10**6, 20_000),  # intensity 1: 50 GB/s of memory bound it to 50 GFLOP/s
        (10**9, 10**6, 1_000_000),  # intensity 1000: the peak of 1 TFLOP/s
        (999, 7, 0),
        (0, 10**6, 20_000),
    ],
)
def test_roofline(flops: int, size: int, expected: int, machine: Make) -> None:
    b = GraphBuilder()
    b.compute("k", flops=flops, bytes=size, duration_micros=99)
    assert ticks(b, machine(roofline_enabled=1, peak_perf=1)) == [expected] * 4


def test_roofline_leaves_the_cpu_alone_and_skips_what_moves_nothing(machine: Make) -> None:
    b = GraphBuilder()
    b.compute("cpu", flops=10**9, bytes=1, duration_micros=3, cpu=True)
    b.compute("nothing", flops=10**9, bytes=0, duration_micros=99)
    assert ticks(b, machine(roofline_enabled=1, peak_perf=1)) == [3000] * 4


def remote(kind: str, **keys: int) -> dict[str, Any]:
    return {"memory-type": kind, "remote-mem-latency": 100, "remote-mem-bw": 50, **keys}


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (remote("PER_NPU_MEMORY_EXPANSION"), [20_100] * 4),
        (remote("MEMORY_POOL"), [20_100, 40_200, 60_300, 80_400]),
        (
            remote("PER_NODE_MEMORY_EXPANSION", **{"num-nodes": 2, "num-npus-per-node": 2}),
            [20_100, 40_200, 20_100, 40_200],
        ),
    ],
)
def test_remote_memory(memory: dict[str, Any], expected: list[int], machine: Make) -> None:
    b = GraphBuilder()
    b.memory_store("m", 10**6)
    assert ticks(b, machine(memory=memory)) == expected


def test_message_takes_latency_and_bytes_and_holds_its_sender(machine: Make) -> None:
    message = int(500 + 2**20 / (50 * 2**30 / 10**9))
    sender, receiver = GraphBuilder(rank=0), GraphBuilder(rank=1)
    sender.send(1, 1 << 20)
    sender.collective("b", CollectiveType.BROADCAST, 8, duration_micros=1)
    receiver.recv(0, 1 << 20)
    trace = Trace.from_ranks([sender.graph(), receiver.graph(), [], []])
    assert ticks(trace, machine()) == [message + 1000, message, 0, 0]


def test_rendezvous_waits_for_the_receiver(machine: Make) -> None:
    message = int(500 + 2**20 / (50 * 2**30 / 10**9))
    control = int(500 + 8192 / (50 * 2**30 / 10**9))
    sender, receiver = GraphBuilder(rank=0), GraphBuilder(rank=1)
    sender.send(1, 1 << 20)
    receiver.recv(0, 1 << 20, after=[receiver.compute("k", duration_micros=30)])
    trace = Trace.from_ranks([sender.graph(), receiver.graph(), [], []])
    late = 30_000 + control + message
    assert ticks(trace, machine(cli=["--rendezvous-protocol=true"])) == [late, late, 0, 0]


def test_message_that_waits_is_taken_when_it_is_asked_for(machine: Make) -> None:
    sender, receiver = GraphBuilder(rank=0), GraphBuilder(rank=1)
    sender.send(1, 64)
    receiver.recv(0, 64, after=[receiver.compute("k", duration_micros=30)])
    trace = Trace.from_ranks([sender.graph(), receiver.graph(), [], []])
    assert ticks(trace, machine()) == [501, 30_000, 0, 0]


def test_message_pays_for_the_first_dimension_that_differs(machine: Make) -> None:
    near, far = GraphBuilder(rank=0), GraphBuilder(rank=0)
    near.send(1, 1 << 20)
    far.send(5, 1 << 20)
    found = [ticks(Trace.from_ranks([b.graph(), *[[]] * 15]), machine((4, 4)))[0] for b in (near, far)]
    assert found[0] == found[1]


def process_groups(*groups: tuple[str, list[int]]) -> Node:
    text = json.dumps([{"pg_name": name, "ranks": ranks} for name, ranks in groups])
    return Node(0, "groups", NodeType.METADATA_NODE, inputs=(f'["{text}"]', "", ""))


def grouped(operation: int, number: str, metadata: Sequence[Node] = ()) -> list[Node]:
    attrs = [
        ("is_cpu_op", "bool", False), ("comm_type", "int64", operation), ("comm_size", "int64", 4096),
        ("pg_name", "string", number),
    ]  # fmt: skip
    return [*metadata, Node(1, "c", NodeType.COMM_COLL_NODE, attrs=attrs)]


def test_process_groups_of_the_trace_are_those_of_a_file(machine: Make) -> None:
    sets = {"1": [0, 2], "2": [1, 3]}
    metadata = process_groups(*sets.items(), ("9", []))
    number = ["1", "2", "1", "2"]
    by_file = [grouped(0, n) for n in number]
    by_trace = [grouped(0, n, [metadata]) for n in number]
    expected = ticks(Trace.from_ranks(by_file), machine(groups=sets))
    assert ticks(Trace.from_ranks(by_trace), machine()) == expected
    assert len(set(expected)) == 1


def test_empty_process_group_is_every_rank(machine: Make) -> None:
    world = ticks(Trace.replicate(grouped(0, "0"), 4), machine())
    assert ticks(Trace.replicate(grouped(0, "9", [process_groups(("9", []))]), 4), machine()) == world


def test_sub_group_is_a_ring_in_the_order_of_its_file(machine: Make) -> None:
    """Two hops to the next member at positions 0 and 1, one at 2 and 3; the endpoint takes 10 ns."""
    rate = 50 * 2**30 / 10**9
    there, chunk = [0, 2, 4, 6], 1024
    expected = int(2 * 500 + chunk // 4 / rate)
    platform = machine(
        (8,), groups={"1": there}, preferred_dataset_splits=4, endpoint_delay=99, local_mem_bw=0
    )
    ranks = [grouped(7, "1") if rank in there else [] for rank in range(8)]
    found = ticks(Trace.from_ranks(ranks), platform)
    assert [found[rank] for rank in there] == [4 * (10 + 3 * (expected + 10))] * 4


def test_involved_dimensions_are_those_of_a_smaller_machine(machine: Make) -> None:
    masked, plain = GraphBuilder(), GraphBuilder()
    masked.all_reduce("c", 1 << 20, dims=[False, True])
    plain.all_reduce("c", 1 << 20)
    assert set(ticks(masked, machine((2, 4)))) == set(ticks(plain, machine((4,))))


def test_one_collective_at_a_time(machine: Make) -> None:
    one, two = GraphBuilder(), GraphBuilder()
    one.all_reduce("c", 1 << 20)
    two.all_reduce("c", 1 << 20)
    two.all_reduce("d", 1 << 20)
    assert ticks(two, machine()) == [2 * t for t in ticks(one, machine())]


def test_collective_starts_when_its_last_member_does(machine: Make) -> None:
    together, skewed = [], []
    for rank in range(4):
        for micros, graphs in ((0, together), (10 * rank, skewed)):
            b = GraphBuilder()
            b.all_reduce("c", 1 << 20, after=[b.compute("k", duration_micros=micros)] if micros else [])
            graphs.append(b.graph())
    platform = machine(preferred_dataset_splits=1)
    equal = np.array(ticks(Trace.from_ranks(together), platform))
    found = np.array(ticks(Trace.from_ranks(skewed), platform))
    assert (found >= equal).all()
    assert (found <= equal + 30_000).all()
    assert found.max() == equal.max() + 30_000
