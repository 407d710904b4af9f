"""Replay: everything takes its recorded time, on the stream, thread or communicator that it occupies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.platform.files.native import load_platform
from armillary.platform.model import Npu, Platform, recorded_machine
from armillary.platform.network import Dimension
from armillary.trace import CollectiveType, GraphBuilder, NodeType, Trace
from armillary.trace.node import REPLAY_ONLY
from tests.engine.physical.reference.evaluate import simulate_slowly

KINDS = ("cpu", "gpu", "all-reduce", "send", "recv", "load", "skip")


def add(b: GraphBuilder, kind: str, length: int, where: int, group: int, after: list[int]) -> int:
    """Add a node of so many ns; `where` is its stream or thread (-1: none named)."""
    attrs: list[tuple[str, str, object]] = [("duration_ns", "int64", length)]
    if where >= 0:
        attrs.append(("tid" if kind == "cpu" else "stream", "int64", where))
    types = {
        "cpu": NodeType.COMP_NODE,
        "gpu": NodeType.COMP_NODE,
        "all-reduce": NodeType.COMM_COLL_NODE,
        "send": NodeType.COMM_SEND_NODE,
        "recv": NodeType.COMM_RECV_NODE,
        "load": NodeType.MEM_LOAD_NODE,
        "skip": NodeType.METADATA_NODE,
    }
    attrs.append(("is_cpu_op", "bool", kind == "cpu"))
    if kind == "all-reduce":
        attrs += [("comm_type", "int64", int(CollectiveType.ALL_REDUCE)), ("comm_size", "int64", 4096)]
        attrs += [("pg_name", "string", str(group))] if group else []
    elif kind in ("send", "recv"):
        attrs += [("comm_size", "int64", 10), ("comm_src", "int32", 0), ("comm_dst", "int32", 1)]
    elif kind == "load":
        attrs.append(("tensor_size", "uint64", 100))
    return b.add(kind, types[kind], attrs, after=after)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 50),
        st.integers(-1, 2),
        st.integers(0, 2),
        st.sets(st.integers(0, 11), max_size=3),
    ),
    max_size=12,
)


@settings(max_examples=80, deadline=None)
@given(st.lists(STEPS, min_size=2, max_size=2))
def test_as_the_slow_reference(ranks: list[list[tuple[str, int, int, int, set[int]]]]) -> None:
    graphs = []
    for rank, steps in enumerate(ranks):
        b = GraphBuilder(rank=rank)
        made: list[int] = []
        for kind, length, where, group, deps in steps:
            made.append(add(b, kind, length, where, group, [made[d] for d in sorted(deps) if d < len(made)]))
        graphs.append(b.graph(f"rank {rank}"))
    trace = Trace.from_ranks(graphs)
    platform = replace(recorded_machine(2), npu=Npu(speed={1: 0.5}), groups={1: (0, 1), 2: (1, 0)})
    finish, _, _ = simulate_slowly(trace, platform)
    found = armillary.simulate(trace, platform)
    assert np.asarray(found.finish).tolist() == finish


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=2, max_size=2))
def test_communication_of_unknown_bytes_as_the_slow_reference(
    ranks: list[list[tuple[str, int, int, int, set[int]]]],
) -> None:
    """On a machine, too, it takes its recorded time and meets nobody."""
    graphs = []
    for rank, steps in enumerate(ranks):
        b = GraphBuilder(rank=rank)
        made: list[int] = []
        for kind, length, where, group, deps in steps:
            kind = "gpu" if kind == "load" else kind
            made.append(add(b, kind, length, where, group, [made[d] for d in sorted(deps) if d < len(made)]))
            if kind in ("all-reduce", "send", "recv"):
                b.nodes[-1].attrs.append((REPLAY_ONLY, "bool", True))
        graphs.append(b.graph(f"rank {rank}"))
    trace = Trace.from_ranks(graphs)
    network = Dimension("n", "Ring", 2, bandwidth=1.0, latency=1.0)
    platform = Platform((network,), groups={1: (0, 1), 2: (1, 0)})
    finish, _, _ = simulate_slowly(trace, platform)
    for model in ("analytical", "flow"):
        found = armillary.simulate(trace, platform, network_model=model)
        assert found.finish_ticks.tolist() == finish


def end(*nodes: tuple[str, int, int, int]) -> int:
    """Return when independent nodes (kind, ns, stream, group) have ended."""
    b = GraphBuilder()
    for kind, length, where, group in nodes:
        add(b, kind, length, where, group, [])
    platform = replace(recorded_machine(1), groups={1: (0,), 2: (0,)})
    return int(armillary.simulate(Trace.from_ranks([b.graph()]), platform).finish[0])


def test_exact_durations() -> None:
    assert end(("gpu", 1_234_567, -1, 0)) == 1_234_567
    assert end(("gpu", 0, -1, 0)) == 1, "as every node takes a tick at least"


@pytest.mark.parametrize("kind", ["cpu", "gpu", "all-reduce"])
def test_one_stream_does_one_thing_at_a_time(kind: str) -> None:
    assert end((kind, 100, 7, 0), (kind, 50, 7, 0)) == 150
    assert end((kind, 100, 7, 0), (kind, 50, 8, 0)) == 100


def test_collectives_without_a_stream_are_in_order_with_those_of_their_group() -> None:
    assert end(("all-reduce", 100, -1, 1), ("all-reduce", 50, -1, 1)) == 150
    assert end(("all-reduce", 100, -1, 1), ("all-reduce", 50, -1, 2)) == 100
    assert end(("all-reduce", 100, -1, 0), ("all-reduce", 50, -1, 2)) == 100


def test_messages_need_no_other_end() -> None:
    assert end(("send", 100, -1, 0), ("recv", 70, -1, 0)) == 100


def test_compute_takes_its_exact_duration_on_any_machine() -> None:
    b = GraphBuilder()
    add(b, "gpu", 1_234_567, -1, 0, [])
    machine = Platform((Dimension("n", "Ring", 2, bandwidth=1.0, latency=1.0),))
    assert armillary.simulate(Trace.replicate(b.graph(), ranks=2), machine).finish[0] == 1_234_567


@pytest.mark.parametrize("value", [-1, 2**62])
def test_a_duration_out_of_range(value: int) -> None:
    with pytest.raises(InputError, match="duration_ns out of range"):
        end(("gpu", value, -1, 0))


def test_the_key_of_a_study(tmp_path) -> None:  # type: ignore[no-untyped-def]
    text = "platform:\n  network: [{topology: Ring, size: 2, bandwidth: 1 GB/s, latency: 1 us}]\n  compute: {%s}\n"
    path = tmp_path / "machine.yaml"
    path.write_text(text % "replay: true")
    assert load_platform(str(path)).compute.replay
    path.write_text(text % "replay: true, roofline: true")
    with pytest.raises(InputError, match="expected only one of roofline and replay"):
        load_platform(str(path))
