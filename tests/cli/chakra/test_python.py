"""Scripts that make traces with Chakra's Python modules run with those that `chakra install --python` writes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.trace import load_trace
from armillary.trace.chakra_messages import et_def, open_messages, read_message, write_message
from tests.trace.conftest import CHAKRA

# Written for this test after the description of ASTRA-sim's generators: what they import, and how they add nodes.
GENERATOR = """\
import os

from chakra.schema.protobuf.et_def_pb2 import ALL_REDUCE, COMM_COLL_NODE, GlobalMetadata
from chakra.schema.protobuf.et_def_pb2 import AttributeProto as ChakraAttr
from chakra.schema.protobuf.et_def_pb2 import Node as ChakraNode
from chakra.src.third_party.utils.protolib import encodeMessage as encode_message

os.makedirs("made", exist_ok=True)
for npu in range(4):
    with open(f"made/sum.{npu}.et", "wb") as et:
        encode_message(et, GlobalMetadata(version="0.0.4"))
        node = ChakraNode()
        node.id, node.name, node.type = 1, "All-Reduce", COMM_COLL_NODE
        node.attr.append(ChakraAttr(name="is_cpu_op", bool_val=False))
        node.attr.extend([
            ChakraAttr(name="comm_type", int64_val=ALL_REDUCE), ChakraAttr(name="comm_size", int64_val=1 << 20),
            ChakraAttr(name="involved_dim", bool_list={"values": [True]}),
        ])
        encode_message(et, node)
"""
OLD = """\
from chakra.et_def.et_def_pb2 import COMP_NODE, GlobalMetadata, Node, NodeType
from chakra.schema.protobuf import et_def_pb2
from chakra.third_party.utils.protolib import decodeMessage, openFileRd

et, metadata, node = openFileRd("made/sum.0.et"), GlobalMetadata(), Node()
print(decodeMessage(et, metadata), metadata.version, decodeMessage(et, node), NodeType.Name(node.type), COMP_NODE)
print(decodeMessage(et, Node()), et_def_pb2.Node is Node)
"""


def python(*words: str) -> str:
    path = os.pathsep.join(["bin", *sys.path])
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    return done.stdout


def test_generators_of_traces_run_unchanged(inputs: Path, call) -> None:
    result = call("chakra install bin --python")
    assert result.exit_code == 0 and "wrote bin/chakra: " in result.stdout
    Path("generate.py").write_text(GENERATOR)
    python("generate.py")
    trace = load_trace("made/sum")
    [node] = [{name: value for name, _, value in trace.graph(3).attrs(0)}]
    assert trace.n_ranks == 4 and node["comm_size"] == 1 << 20 and node["involved_dim"] == [True]
    Path("old.py").write_text(OLD)
    assert python("old.py") == "True 0.0.4 True COMM_COLL_NODE 4\nFalse True\n"
    run = python(
        "-m", "chakra.src.jsonizer.jsonizer", "--input_filename=made/sum.0.et", "--output_filename=a.json"
    )
    assert run == "" and "All-Reduce" in Path("a.json").read_text()


def test_another_package_of_that_name_stays(inputs: Path, call) -> None:
    Path("bin/chakra").mkdir(parents=True)
    result = call("chakra install bin --python")
    assert (
        result.exit_code == 2
        and "is there already" in result.stderr
        and not list(Path("bin/chakra").iterdir())
    )
    Path("bin/chakra").rmdir()
    # Ours are replaced.
    assert call("chakra install bin --python").exit_code == call("chakra install bin --python").exit_code == 0


def test_the_schema_is_that_of_the_reference() -> None:
    names = et_def()
    for name in ("AttributeProto", "GlobalMetadata", "Node", "IOInfo"):
        ours, theirs = (each.DESCRIPTOR.fields for each in (names[name], getattr(CHAKRA, name)))
        assert [(f.name, f.number, f.type) for f in ours] == [(f.name, f.number, f.type) for f in theirs]


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"\x85", "within the length"), (b"\xff" * 9, "no length"), (b"\x09\x08", "within a message of 9"),
     (b"\x01\xff", "no message of Chakra's schema")],
)  # fmt: skip
def test_what_is_no_message(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_message(io.BytesIO(data), et_def()["Node"]())


def test_messages_of_any_length(tmp_path: Path) -> None:
    node = et_def()["Node"]
    with (tmp_path / "a.et").open("wb") as out:
        for size in (0, 1, 127, 128, 20_000):
            write_message(out, node(name="n" * size))
    stream, found = open_messages(tmp_path / "a.et"), []
    while read_message(stream, one := node()):
        found.append(len(one.name))
    assert found == [0, 1, 127, 128, 20_000]


def test_without_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(InputError, match=r"pip install armillary\[chakra\]"):
        et_def.__wrapped__()
