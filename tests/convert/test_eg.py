"""Files of schema 0.0.1, encoded by hand, against what they mean today; and what is mistaken for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.convert import Converted, front_end
from armillary.convert.eg_wire import FIELDS
from armillary.platform import Collectives, Dimension, LocalMemory, Npu, Platform
from armillary.trace import CollectiveType, GraphBuilder, NodeType, Trace, nodes_of, read_graph, write_trace
from armillary.trace.structure import validate

INVALID, LOAD, STORE, COMP, SEND, RECV, COLL = range(7)


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def frame(body: bytes) -> bytes:
    return varint(len(body)) + body


def node(ident: int, kind: int, name: str = "n", **fields: int | Sequence[int]) -> bytes:
    """Encode one node of eg_def.proto (proto2: lists are not packed)."""
    body = b"\x08" + varint(ident) + b"\x12" + frame(name.encode()) + b"\x18" + varint(kind)
    for key, value in fields.items():
        for item in [value] if isinstance(value, int) else value:
            body += varint(FIELDS.index(key) << 3) + varint(item)
    return frame(body)


def convert(folder: Path, *files: bytes, **options: object) -> Converted:
    for rank, data in enumerate(files):
        (folder / f"a.{rank}.eg").write_bytes(data)
    return front_end("eg").convert([folder / "a"], **options)


def test_every_field_and_type(tmp_path: Path) -> None:
    sizes = {"tensor_size": 7, "input_tensor_loc": 1, "input_tensor_size": 3, "output_tensor_loc": 2}
    data = (
        node(5, COMP, "matmul", simulated_run_time=2_600, num_ops=1 << 40, **sizes, output_tensor_size=4)
        + node(6, LOAD, tensor_loc=2, tensor_size=9)
        + node(7, STORE, tensor_loc=1, tensor_size=11)
        + node(8, SEND, parent=(5, 6), comm_src=0, comm_dst=1, comm_size=1 << 33, comm_tag=3, comm_priority=2)
        + node(9, COLL, parent=(8,), comm_type=4, comm_size=64, involved_dim=(1, 0))
        + node(10, COLL, communicator_id=4, comm_type=2, comm_size=8)
        + node(11, COLL, comm_type=0)
        + node(12, INVALID)
    )
    found = convert(tmp_path, data, node(0, RECV, comm_src=0, comm_size=1 << 33, comm_tag=3))
    nodes = nodes_of(found.trace.graph(0))
    assert [(n.id, n.type) for n in nodes] == [
        (5, NodeType.COMP_NODE),
        (6, NodeType.MEM_LOAD_NODE),
        (7, NodeType.COMP_NODE),
        (8, NodeType.COMM_SEND_NODE),
        (9, NodeType.COMM_COLL_NODE),
        (10, NodeType.COMM_COLL_NODE),
        (11, NodeType.COMP_NODE),
        (12, NodeType.COMP_NODE),
    ]
    attrs = [{name: value for name, _, value in n.attrs if name != "is_cpu_op"} for n in nodes]
    assert nodes[0].name == "matmul"
    assert nodes[0].duration_micros == 3
    assert attrs[0] == sizes | {"num_ops": 1 << 40, "output_tensor_size": 4, "duration_ns": 2_600}
    assert attrs[2] == {"num_ops": 0, "tensor_size": 11, "tensor_loc": 1}
    assert attrs[3] == {"comm_src": 0, "comm_dst": 1, "comm_size": 1 << 33, "comm_tag": 3, "comm_priority": 2}
    assert list(nodes[3].data_deps) == [5, 6]
    assert attrs[4] == {
        "comm_type": CollectiveType.REDUCE_SCATTER,
        "comm_size": 64,
        "involved_dim": [True, False],
    }
    assert attrs[5] == {"comm_type": CollectiveType.ALL_TO_ALL, "comm_size": 8}
    assert found.warnings == (
        "1 nodes: accesses to local memory become compute nodes that move tensor_size bytes",
        "1 nodes: collectives of no comm_type become compute nodes of no duration",
        "1 nodes: of no type become compute nodes of no duration",
        "1 collectives of communicator_id 4 are taken for collectives of all ranks; --comm-groups says which it has",
    )


def test_packed_lists_and_the_last_of_a_field_count_as_in_protobuf(tmp_path: Path) -> None:
    body = node(3, COMP, simulated_run_time=1)[1:] + b"\x22\x02\x01\x02" + b"\x38\x09"
    graph = convert(tmp_path, node(1, COMP) + node(2, COMP) + frame(body)).trace.graph(0)
    assert graph.data_deps.tolist() == [1, 2]
    assert graph.ints("duration_ns").tolist() == [0, 0, 9]


def platform(npus: int) -> Platform:
    algorithms = {"all-reduce": ("ring",), "all-gather": ("ring",)}
    collectives = Collectives(algorithms)
    return Platform(
        dimensions=(Dimension("node", "Switch", npus, bandwidth=100.0, latency=500.0),),
        npu=Npu(memory=LocalMemory(2000.0)),
        collectives=collectives,
    )


def test_groups_cycles_and_a_run(tmp_path: Path) -> None:
    (tmp_path / "groups.json").write_text(json.dumps({"7": [0, 1], "8": [2, 3]}))
    files = [
        node(0, COMP, simulated_run_time=20)
        + node(1, COLL, parent=(0,), communicator_id=7 + rank // 2, comm_type=1, comm_size=1 << 20)
        + node(2, COLL, parent=(1,), comm_type=3, comm_size=1 << 10)
        for rank in range(4)
    ]
    found = convert(tmp_path, *files, cycle="1 us", groups=tmp_path / "groups.json")
    assert found.groups == {1: (0, 1), 2: (2, 3)}
    assert not found.warnings
    assert len(found.trace.graphs) == 2
    assert found.trace.graph(0).duration_micros.tolist() == [20, 0, 0, 0]
    builders = [GraphBuilder() for _ in range(2)]
    for number, builder in enumerate(builders, 1):
        first = builder.compute("n", duration_micros=20)
        second = builder.all_reduce("n", 1 << 20, group=number, after=[first])
        builder.all_gather("n", 1 << 10, after=[second])
    reference = Trace.from_ranks([builders[rank // 2].graph() for rank in range(4)])
    groups = {"groups": {1: (0, 1), 2: (2, 3)}}
    for profile in ("physical", "astra-sim"):
        expected = armillary.simulate(reference, replace(platform(4), **groups), profile=profile).total_ticks
        assert armillary.simulate(found.trace, platform(4), profile=profile).total_ticks == expected > 20_000
    with pytest.raises(
        InputError, match=r"node 1 'n': communicator_id is 9, expected one of --comm-groups: \[7, 8\]"
    ):
        convert(
            tmp_path,
            node(1, COLL, communicator_id=9, comm_type=1),
            *files[1:],
            groups=tmp_path / "groups.json",
        )


def test_ranks_come_from_the_names(tmp_path: Path) -> None:
    paths = [tmp_path / f"x.{rank}.eg" for rank in (10, *range(10))]
    for rank, path in enumerate(paths):
        path.write_bytes(node(rank, COMP))
    read = front_end("eg").convert
    for given_paths in (paths, [tmp_path / "x"]):
        assert [int(read(given_paths).trace.graph(rank).ids[0]) for rank in range(11)] == [*range(1, 11), 0]
    (tmp_path / "plain.eg").write_bytes(node(77, COMP))
    assert read([tmp_path / "plain.eg"]).trace.graph(0).ids.tolist() == [77]
    with pytest.raises(InputError, match=r"no file for rank 1 of 2 files, expected <prefix>\.1\.eg"):
        read([paths[1], paths[3]])
    with pytest.raises(InputError, match=r"none: no such file, and no file none\.<rank>\.eg"):
        read([tmp_path / "none"])
    for cycle in ("1", "0 ns", "-1 ns"):
        with pytest.raises(InputError, match="--cycle: got"):
            read([paths[1]], cycle=cycle)


ONE = node(0, COMP, "a", simulated_run_time=5)
ATTRIBUTE = b"\x5a" + frame(b"\x0a\x07runtime\x10\x02\x18\x05")
BAD = {
    "empty": (b"", "the file is empty"),
    "frame cut off": (ONE + b"\x0a\x08", "damaged or cut off: byte 10 of 12, in node message 1"),
    "length cut off": (ONE + b"\x80", "damaged or cut off: byte 10 of 11, in node message 1: expected more bytes"),
    "value cut off": (ONE + frame(b"\x08\x01\x12\x01a\x38\x80"), "byte 16 of 18, in node message 1: expected more"),
    "no id": (ONE + frame(b"\x12\x01a\x18\x03"), "byte 10 of 16, in node message 1: the node has no id"),
    "no name": (ONE + frame(b"\x08\x01\x18\x03"), "the node has no name"),
    "name not text": (ONE + frame(b"\x08\x01\x12\x01\xff"), "byte 15 of 16, .*: expected a name in UTF-8"),
    "unknown field": (ONE + frame(b"\x08\x01\x12\x01a\xa8\x01\x01"), "field 21 of wire type 0 is not in the schema"),
    "type": (node(3, 9, "b"), "node 3 'b': node_type is 9, expected 0 to 6"),
    "comm_type": (node(3, COLL, comm_type=5), "node 3 'n': comm_type is 5, expected 0 to 4"),
    "too big": (node(3, COMP, comm_dst=1 << 31), "'comm_dst' .* expected an integer"),
    "endless": (node(3, COMP, simulated_run_time=(1 << 64) - 1), "'duration_ns' .* expected an integer"),
    "twice": (ONE + ONE, "1 node has the id of an earlier node"),
    "cycle": (node(1, COMP, parent=(2,)) + node(2, COMP, parent=(1,)), "dependency cycle of 2 nodes"),
    "schema 0.0.2": (frame(ONE[1:] .replace(b"\x38\x05", b"") + ATTRIBUTE), "field 11 of .*; schemas 0.0.2 and 0.0.3"),
    "schema 0.0.3": (
        frame(b"\x0a" + frame(b"\x0a\x01v\x10\x02")) + frame(ONE[1:].replace(b"\x38\x05", b"") + ATTRIBUTE),
        "not Chakra schema 0.0.1: byte 1 of .*schemas 0.0.2 and 0.0.3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_broken_files_are_refused_with_the_place(tmp_path: Path, case: str) -> None:
    data, message = BAD[case]
    with pytest.raises(InputError, match=r"a\.0\.eg: .*" + message):
        convert(tmp_path, data)


def test_todays_files_and_old_ones_are_told_apart(tmp_path: Path) -> None:
    builder = GraphBuilder()
    builder.compute("a", duration_micros=5)
    write_trace(tmp_path / "new", Trace.replicate(builder.graph(), 1))
    read = front_end("eg").convert
    for data in ((tmp_path / "new.0.et").read_bytes(), b"\x00" + ONE, b"\x00"):
        (tmp_path / "new.0.eg").write_bytes(data)
        with pytest.raises(InputError, match=r"is a Chakra trace of schema 0\.0\.4 or newer already"):
            read([tmp_path / "new.0.eg"])
    (tmp_path / "old.0.et").write_bytes(ONE)
    with pytest.raises(InputError, match="armillary trace convert --from eg"):
        read_graph(tmp_path / "old.0.et")
    convert(tmp_path, ONE)


@pytest.mark.shared
def test_the_only_file_there_is(shared: Path) -> None:
    found = front_end("eg").convert([shared / "traces/eg_old/twoCompNodesDependent.0.eg"])
    graph = found.trace.graph(0)
    assert [(n.id, n.name, n.type, list(n.data_deps)) for n in nodes_of(graph)] == [
        (0, "COMP_NODE", NodeType.COMP_NODE, []),
        (1, "COMP_NODE", NodeType.COMP_NODE, [0]),
    ]
    assert graph.ints("duration_ns").tolist() == [5, 5]


@pytest.mark.shared
def test_newer_files_of_others_are_recognised(shared: Path) -> None:
    for path in sorted((shared / "traces").glob("**/*.et"))[:40]:
        with pytest.raises(InputError, match=r"schema 0\.0\.4 or newer already"):
            front_end("eg").convert([path])


NODES = node(0, COMP, "a", simulated_run_time=5) + node(
    300, SEND, "bé", parent=(0,), comm_dst=1, comm_size=1 << 40
)


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=40),
        st.tuples(st.integers(0, len(NODES)), st.integers(0, 3), st.binary(max_size=3)).map(
            lambda cut: NODES[: cut[0]] + cut[2] + NODES[cut[0] + cut[1] :]
        ),
    )
)
def test_any_bytes_are_nodes_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    try:
        found = convert(tmp_path_factory.mktemp("eg"), data)
    except InputError:
        return
    for graph in found.trace.graphs:
        validate(graph)
