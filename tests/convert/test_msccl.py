"""MSCCL XML to Chakra: the same messages as the traces other tools made, and the same time as a custom collective."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary import astra_sim
from armillary.base.errors import InputError
from armillary.convert import Converted, front_end, report
from armillary.platform import Dimension, Platform
from armillary.trace import Graph, NodeType, nodes_of, read_graph, write_trace
from armillary.trace.structure import validate


def ring(n: int, coll: str = "allreduce") -> str:
    """Return a ring all-reduce of `n` chunks: each GPU adds what it gets, passes it on, then passes the sums on."""
    gpus = []
    for g in range(n):
        steps = []
        for k in range(2 * (n - 1)):
            sent, got = (g - k) % n, (g - k - 1) % n
            steps += [("s", sent), ("rrc" if k < n - 1 else "r", got)]
        body = "\n".join(
            f'<step s="{at}" type="{kind}" srcbuf="i" srcoff="{chunk}" dstbuf="i" dstoff="{chunk}" cnt="1"/>'
            for at, (kind, chunk) in enumerate(steps)
        )
        tb = f'<tb id="0" send="{(g + 1) % n}" recv="{(g - 1) % n}" chan="0">\n{body}\n</tb>'
        gpus.append(f'<gpu id="{g}" i_chunks="{n}" o_chunks="0" s_chunks="0">\n{tb}\n</gpu>')
    head = f'<algo name="ring" nchunksperloop="{n}" ngpus="{n}" coll="{coll}" inplace="1">'
    return "\n".join([head, *gpus, "</algo>"])


def convert(text: str, folder: Path, size: str = "1 MiB", **options: object) -> Converted:
    path = folder / "a.xml"
    path.write_text(text)
    return front_end("msccl").convert([path], size=size, **options)


def test_a_ring_of_three(tmp_path: Path) -> None:
    found = convert(ring(3), tmp_path, "96 B", memory_bandwidth="1 GB/s", element_bytes=2)
    nodes = nodes_of(found.trace.graph(0))
    kinds = [NodeType(node.type).name.split("_")[1] for node in nodes]
    assert kinds == ["SEND", "RECV", "NODE"] * 2 + ["SEND", "RECV"] * 2
    assert [list(node.data_deps) for node in nodes] == [[], *([at] for at in range(9))]
    assert nodes[2].attrs == [
        ("is_cpu_op", "bool", False),
        ("num_ops", "int64", 16),
        ("tensor_size", "uint64", 96),
        ("duration_ns", "int64", 96),
    ]
    assert report(found) == {
        "ranks": 3, "nodes": 30, "comm": {"SEND": {"count": 12, "bytes": 384}, "RECV": {"count": 12, "bytes": 384}},
        "groups": {}, "algorithm": "ring", "operation": "all-reduce", "chunk_bytes": 32, "warnings": [],
    }  # fmt: skip


def test_says_what_is_not_moved_and_what_is_no_such_collective(tmp_path: Path) -> None:
    found = convert(ring(3, "alltoall"), tmp_path, "100 B")
    assert [warning.partition("a.xml: ")[2] for warning in found.warnings] == [
        "100 bytes do not divide into 3 chunks: 1 bytes are not moved",
        "is no all-to-all: chunk 0 of the output of gpu 0 ends wrong",
    ]


def test_does_not_check_what_would_take_forever(tmp_path: Path) -> None:
    assert not convert(
        ring(3, "alltoall").replace('loop="3"', 'loop="3000000000"'), tmp_path, "3 GB"
    ).warnings


def test_takes_as_long_as_the_same_custom_collective(tmp_path: Path) -> None:
    write_trace(tmp_path / "ring", convert(ring(4), tmp_path).trace)
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]}
    system = {"scheduling-policy": "FIFO", "preferred-dataset-splits": 1, "local-mem-bw": 50}
    builder = armillary.trace.GraphBuilder()
    builder.all_reduce("sum", "1 MiB")
    write_trace(tmp_path / "sum", armillary.trace.Trace.replicate(builder.graph(), 4))
    converted = astra_sim.simulate(tmp_path / "ring", system, network)
    custom = astra_sim.simulate(
        tmp_path / "sum", system | {"all-reduce-implementation-custom": [str(tmp_path / "a.xml")]}, network
    )
    assert converted.finish_ticks.tolist() == custom.finish_ticks.tolist()
    platform = Platform(dimensions=(Dimension("node", "Ring", 4, bandwidth=100.0, latency=500.0),))
    assert armillary.simulate(convert(ring(4), tmp_path).trace, platform, profile="physical").total_ticks > 0


def sequence(graph: Graph) -> list[tuple[object, ...]]:
    """Return what decides the order and the bytes of every node."""
    found = []
    for node in nodes_of(graph):
        attrs = {name: value for name, _, value in node.attrs}
        peer = attrs.get("comm_dst" if node.type == NodeType.COMM_SEND_NODE else "comm_src")
        moved = (
            (peer, attrs.get("comm_size"), attrs.get("comm_tag")) if node.type != NodeType.COMP_NODE else ()
        )
        found.append((node.type, list(node.data_deps), node.duration_micros, moved))
    return found


@pytest.mark.shared
def test_the_shipped_ring_is_what_the_other_tool_made_of_it(shared: Path, tmp_path: Path) -> None:
    folder = shared / "traces/msccl/custom_ring_allreduce_8npus_1MB"
    found = front_end("msccl").convert([folder / "custom_allreduce.xml"], size="1 MiB")
    for rank in range(8):
        assert sequence(found.trace.graph(rank)) == sequence(
            read_graph(folder / f"custom_allreduce.{rank}.et")
        )
    write_trace(tmp_path / "ring", found.trace)
    system = json.loads((shared / "traces/msccl/custom_collective.json").read_text())
    del system["all-reduce-implementation-custom"]
    network = shared / "traces/astra_examples/config/Ring_8npus.yml"
    # As a custom collective ASTRA-sim gives 90,174 cycles (spec/astra-sim.md, Custom).
    assert astra_sim.simulate(tmp_path / "ring", system, network).total_ticks == 90_174


def test_options_and_files(tmp_path: Path) -> None:
    read = front_end("msccl").convert
    with pytest.raises(InputError, match="2 MSCCL files, expected one"):
        read([tmp_path / "a", tmp_path / "b"], size="1 MiB")
    with pytest.raises(InputError, match="none: cannot be read"):
        read([tmp_path / "none"], size="1 MiB")
    for options, message in (
        ({"size": "12"}, "--size: got '12'"),
        ({"size": "2 B"}, "2 bytes in 3 chunks"),
        ({"memory_bandwidth": "fast"}, "--memory-bandwidth: got 'fast'"),
        ({"memory_bandwidth": "0 GB/s"}, "memory bandwidth 0"),
        ({"element_bytes": 0}, "--element-bytes: got 0"),
    ):
        with pytest.raises(InputError, match=message):
            convert(ring(3), tmp_path, **options)
    with pytest.raises(InputError, match="line 9: not XML"):
        convert(ring(3)[:600], tmp_path)


RING = ring(3)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.tuples(
            st.integers(0, len(RING)),
            st.integers(0, 8),
            st.sampled_from(["", "1", "9", '"', "<", "rrs", "é"]),
        ).map(lambda cut: (RING[: cut[0]] + cut[2] + RING[cut[0] + cut[1] :]).encode()),
    )
)
def test_any_bytes_are_an_algorithm_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("msccl") / "a.xml"
    path.write_bytes(data)
    try:
        found = front_end("msccl").convert([path], size="1 MiB")
    except InputError:
        return
    for graph in found.trace.graphs:
        validate(graph)
