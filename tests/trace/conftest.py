"""The Chakra schema as classes of the protobuf runtime, the reference our decoder is held against."""

from __future__ import annotations

import gzip
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SHARED = Path(__file__).resolve().parents[2] / ".." / "shared"
SCALARS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64",
    "fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
FIELD = descriptor_pb2.FieldDescriptorProto


def _add(
    message: Any, name: str, number: int, kind: str, *, repeated: bool = False, oneof: bool = False
) -> None:
    field = message.field.add(name=name, number=number)
    field.label = FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
    if kind in SCALARS:
        field.type = getattr(FIELD, f"TYPE_{kind.upper()}")
    elif kind == "NodeType":
        field.type, field.type_name = FIELD.TYPE_ENUM, ".ChakraProtoMsg.NodeType"
    else:
        field.type, field.type_name = FIELD.TYPE_MESSAGE, f".ChakraProtoMsg.{kind}"
    if oneof:
        field.oneof_index = 0


def _build() -> SimpleNamespace:
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package="ChakraProtoMsg", syntax="proto3")
    attribute = file.message_type.add(name="AttributeProto")
    _add(attribute, "name", 1, "string")
    _add(attribute, "doc_string", 2, "string")
    attribute.oneof_decl.add(name="value")
    for i, kind in enumerate(SCALARS):
        many = kind.capitalize() + "List"
        _add(file.message_type.add(name=many), "values", 1, kind, repeated=True)
        _add(attribute, f"{kind}_val", 3 + 2 * i, kind, oneof=True)
        _add(attribute, f"{kind}_list", 4 + 2 * i, many, oneof=True)
    metadata = file.message_type.add(name="GlobalMetadata")
    _add(metadata, "version", 1, "string")
    _add(metadata, "attr", 2, "AttributeProto", repeated=True)
    types = file.enum_type.add(name="NodeType")
    names = ["INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL"]
    for number, name in enumerate(names):
        types.value.add(name=f"{name}_NODE", number=number)
    io = file.message_type.add(name="IOInfo")
    for number, name in enumerate(("values", "shapes", "types"), start=1):
        _add(io, name, number, "string")
    node = file.message_type.add(name="Node")
    for number, (name, kind, repeated) in enumerate(
        (
            ("id", "uint64", False),
            ("name", "string", False),
            ("type", "NodeType", False),
            ("ctrl_deps", "uint64", True),
            ("data_deps", "uint64", True),
            ("start_time_micros", "uint64", False),
            ("duration_micros", "uint64", False),
            ("inputs", "IOInfo", False),
            ("outputs", "IOInfo", False),
            ("attr", "AttributeProto", True),
        ),
        start=1,
    ):
        _add(node, name, number, kind, repeated=repeated)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    classes = {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ChakraProtoMsg.{name}"))
        for name in ("AttributeProto", "GlobalMetadata", "Node", "IOInfo")
    }
    return SimpleNamespace(**classes)


CHAKRA = _build()


def varint(value: int) -> bytes:
    """Encode one unsigned number."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def frame(data: bytes) -> bytes:
    """Return a message with its length before it."""
    return varint(len(data)) + data


def parse(data: bytes) -> list[Any]:
    """Parse a file with the protobuf runtime; the first message is the GlobalMetadata."""
    messages, pos = [], 0
    while pos < len(data):
        size = shift = 0
        while True:
            byte = data[pos]
            pos += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        if pos + size > len(data):
            raise ValueError("frame past the end")
        messages.append(
            (CHAKRA.Node if messages else CHAKRA.GlobalMetadata).FromString(data[pos : pos + size])
        )
        pos += size
    return messages


def bits(value: Any) -> Any:
    """Make values comparable: NaN equals NaN."""
    if isinstance(value, list):
        return [bits(item) for item in value]
    return struct.pack("<d", value) if isinstance(value, float) else value


def attributes_of(message: Any) -> list[tuple[Any, ...]]:
    """Return the attributes of a protobuf message as our triples (and doc string)."""
    found = []
    for attr in message.attr:
        member = attr.WhichOneof("value")
        value: Any = None
        if member is not None:
            value = getattr(attr, member)
            value = list(value.values) if member.endswith("_list") else value
        kind = "unset" if member is None else member.removesuffix("_val")
        found.append((attr.name, kind, bits(value), *([attr.doc_string] if attr.doc_string else [])))
    return found


def assert_same(graph: Any, messages: list[Any]) -> None:
    """Compare a graph with what the protobuf runtime read."""
    head, *nodes = messages
    assert graph.version == head.version
    assert [(n, k, bits(v), *d) for n, k, v, *d in graph.metadata_with_docs()] == attributes_of(head)
    assert graph.n_nodes == len(nodes)
    assert graph.ids.tolist() == [node.id for node in nodes]
    assert graph.types.tolist() == [node.type for node in nodes]
    assert graph.start_micros.tolist() == [node.start_time_micros for node in nodes]
    assert graph.duration_micros.tolist() == [node.duration_micros for node in nodes]
    assert graph.names() == [node.name for node in nodes]
    assert graph.ctrl_deps.tolist() == [dep for node in nodes for dep in node.ctrl_deps]
    assert graph.data_deps.tolist() == [dep for node in nodes for dep in node.data_deps]
    for i, node in enumerate(nodes):
        assert graph.ctrl_ptr[i + 1] - graph.ctrl_ptr[i] == len(node.ctrl_deps)
        assert graph.data_ptr[i + 1] - graph.data_ptr[i] == len(node.data_deps)
        mine = [(n, k, bits(v), *d) for n, k, v, *d in graph.attrs_with_docs(i) if k != "field"]
        assert mine == attributes_of(node)
        io = graph.io(i)
        for side in ("inputs", "outputs"):
            assert (side in io) == node.HasField(side)
            if side in io:
                info = getattr(node, side)
                assert io[side] == (info.values, info.shapes, info.types)


def shared_traces() -> Iterator[tuple[str, bytes]]:
    """Yield name and decompressed contents of every reference trace."""
    traces = SHARED / "traces"
    for path in sorted(traces.rglob("*.et")):
        yield str(path.relative_to(traces)), path.read_bytes()
    for path in sorted(traces.rglob("*.et.gz")):
        yield str(path.relative_to(traces)), gzip.decompress(path.read_bytes())
    for path in sorted((traces / "et_astra_history").glob("*.tar")):
        with tarfile.open(path) as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is not None:
                    yield f"{path.name}/{member.name}", stream.read()


@pytest.fixture(scope="session")
def chakra() -> SimpleNamespace:
    """Message classes and helpers of the protobuf runtime."""
    return SimpleNamespace(
        **vars(CHAKRA),
        varint=varint,
        frame=frame,
        parse=parse,
        bits=bits,
        assert_same=assert_same,
        kinds=[kind + end for kind in SCALARS for end in ("", "_list")],
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give every test with an argument `reference` one case per reference trace."""
    if "reference" in metafunc.fixturenames:
        traces = list(shared_traces())
        missing = pytest.param(("", b""), id="none", marks=pytest.mark.skip(reason="needs ../shared"))
        metafunc.parametrize("reference", [pytest.param(trace, id=trace[0]) for trace in traces] or [missing])


@pytest.fixture(scope="session")
def traces(shared: Path) -> dict[str, bytes]:
    """All reference traces by name."""
    return dict(shared_traces())
